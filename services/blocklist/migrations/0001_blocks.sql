-- What must be avoided, and what was taken away: a removal is remembered for a while, so that an
-- older copy of an item cannot bring it back.

create table block (
    kind text not null check (kind in ('NODE', 'WORKER')),
    -- Name of the node, or id of the worker.
    identifier text not null,
    -- How often an item of this key was removed or has expired.
    removal_no bigint not null,
    -- The item; null where it was removed and only the number above is kept.
    action text check (action in ('MARK_BLOCKLISTED', 'MARK_BLOCKLISTED_AND_EVACUATE_TASKS')),
    -- Lists of distinct texts. Stored and shown, never looked into.
    causes json not null,
    sources json not null,
    start_ms bigint not null,
    -- From this instant on the item is over; null is permanent.
    end_ms bigint,
    -- When this row last changed; counts the life of a removal.
    updated_ms bigint not null,
    primary key (kind, identifier)
);

-- Who blocked what, why, and how it ended. The newest ten thousand or so are kept.
create table block_change (
    serial bigint generated always as identity primary key,
    at_ms bigint not null,
    event text not null,
    -- Null where an end was reached.
    by text,
    why text,
    -- The item after it was added to, or as it was before it went.
    item json not null
);
