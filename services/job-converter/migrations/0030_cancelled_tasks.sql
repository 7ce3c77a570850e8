-- Tasks that ended without a run, as ranges: a cancellation may name ten million of them.
create table unrun (
    job uuid not null,
    -- First task, and one past the last.
    first bigint not null,
    past bigint not null,
    state text not null check (state in ('cancelled', 'not_run')),
    -- One sentence for people.
    message text not null,
    ended_at_ms bigint not null,
    primary key (job, first),
    check (first < past)
);
-- Tasks that were cancelled while a process had them, until their job ends. A row without an
-- outcome means that the run has to be stopped.
create table task_stop (
    job uuid not null,
    task bigint not null,
    requested_by text not null,
    primary key (job, task)
);
