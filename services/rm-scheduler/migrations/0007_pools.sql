-- Worker pools with an outside owner (specification of worker pools, section 18). What runs out
-- while an owner is bound (deadlines, its silence, a pause after failed starts) is not here: after
-- a restart nobody is bound, and all of it begins anew. What the platform tells a pool needs no
-- table of inputs seen: it is taken in by the transaction that changes the allocation.
create table pool (
    -- Also the first part of the ids of the works it asks for: wp_….NUMBER.
    id text primary key,
    -- What the owner calls its job.
    job_id text not null,
    -- managed or standalone.
    mode text not null,
    -- Workers wished.
    designated bigint not null check (designated >= 0),
    -- Of the size.
    version bigint not null,
    -- Numbers of the works asked for and not granted.
    requested bigint[] not null,
    -- The last number ever asked for.
    last_number bigint not null check (last_number >= 0),
    -- Absent: any number.
    max_failed bigint check (max_failed >= 0),
    failed_so_far bigint not null check (failed_so_far >= 0),
    -- When they were, in unix milliseconds; empty where they count for ever.
    failed_at_ms bigint[] not null,
    -- When it was stopped; absent while it runs.
    stopped_at_ms bigint,
    -- Absent while it runs, and in standalone.
    final_status text,
    final_message text,
    owner_epoch bigint not null,
    connection_no bigint not null,
    -- Number of the newest event.
    event_seq bigint not null,
    created_at_ms bigint not null,
    -- Who made it under which Idempotency-Key, as a digest, and a digest of what was asked.
    made_by bytea not null unique,
    made_from bytea not null,
    -- User, class and worker specification.
    body json not null
);

create table pool_worker (
    pool_id text not null,
    -- Of the allocation, or whatever an owner reported.
    resource_id text not null,
    -- LAUNCHING, STARTED, RETURNING or FOREIGN.
    state text not null,
    -- The number it was asked for by; absent where the pool never asked for it.
    number bigint,
    node text,
    -- Epoch of the owner that reported it last; absent while none ever has.
    reported_by_epoch bigint,
    -- The owner itself gave it up.
    ordered boolean not null,
    primary key (pool_id, resource_id)
);

-- What owners have to hear, the newest thousand of each pool; append only.
create table pool_event (
    pool_id text not null,
    seq bigint not null,
    kind text not null,
    worker_id text,
    text text not null,
    at_ms bigint not null,
    primary key (pool_id, seq)
);
