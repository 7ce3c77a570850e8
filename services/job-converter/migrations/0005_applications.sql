-- Applications of the application protocol: both machines of each, as they stand.

create table application (
    -- In the ids of its work; never used again.
    number uuid primary key,
    -- Chosen by whoever submits it.
    id text not null unique,
    user_name text not null,
    -- The front, the core, both state logs, the counters of its groups, timers as instants.
    body json not null
);

-- A task, or a placeholder that waits for a place or holds one.
create table application_task (
    application uuid not null references application (number) on delete cascade,
    id text not null,
    -- As both machines keep it, what it runs, where it stands, how it ended.
    body json not null,
    primary key (application, id)
);
