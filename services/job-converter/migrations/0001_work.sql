-- What job-converter owns: work as submitted, who may run which task, and how each task ended.
-- Ids of work are stored without their prefix, as uuid; `kind` tells the prefix. Instants are
-- milliseconds since 1970 by the service's clock: they are shown, and never decide a lease.

-- Tokens that runners lease tasks with. Jobs submitted by one user in one moment share one.
create table runner (
    -- The work id in the token's scope: the first job that used it.
    id text primary key,
    token text not null
);

create table work (
    id uuid primary key,
    kind text not null check (kind in ('job', 'service', 'reservation')),
    -- Whose share is charged; from the token of the submission.
    user_name text not null,
    submitted_at_ms bigint not null,
    -- Commit that accepted it.
    revision bigint not null,
    -- The request as understood, never looked into.
    submission json not null,
    -- W3C trace context of the submission.
    traceparent text,
    -- The token its runners get; only of jobs.
    runner text,
    -- Set when its user told it to stop.
    cancelled_at_ms bigint,
    -- Set once, together: how and when it ended.
    state text check (state in ('completed', 'failed', 'cancelled', 'refused')),
    reason text,
    ended_at_ms bigint,
    check ((state is null) = (ended_at_ms is null))
);

-- The outcome of a task. The key makes a second outcome impossible, whoever reports it.
create table outcome (
    job uuid not null,
    task bigint not null,
    attempt int not null,
    succeeded boolean not null,
    exit_code int,
    signal int,
    error text,
    duration_us bigint not null,
    -- Null when the runner was quicker than the news of its allocation.
    node text,
    allocation text not null,
    output text not null,
    ended_at_ms bigint not null,
    primary key (job, task)
);

-- Attempts that failed and were counted, of tasks that had another one.
create table attempt (
    job uuid not null,
    task bigint not null,
    attempt int not null,
    exit_code int,
    signal int,
    error text,
    node text,
    allocation text not null,
    ended_at_ms bigint not null,
    primary key (job, task, attempt)
);

-- What an allocation may run now. No expiry is stored: after a restart every lease has a fresh,
-- full grace by the new monotonic clock.
create table lease (
    allocation text primary key,
    job uuid not null,
    -- [[first task, one past the last, attempt], …]
    tasks json not null
);
create index lease_job on lease (job);

-- Ended allocations whose end was taken note of; kept until the scheduler has buried them.
create table settled (
    allocation text primary key,
    -- The work id it belonged to: an instance, for a service.
    slot text not null,
    work uuid not null
);
create index settled_work on settled (work);

-- Ends in a row without progress, of work (or an instance) that is held back for it.
create table brake (
    slot text primary key,
    work uuid not null,
    strikes int not null
);
create index brake_work on brake (work);

-- History for people. The submission itself is in `work`.
create table event (
    work uuid not null,
    -- From 1, bounded per work.
    number int not null,
    at_ms bigint not null,
    revision bigint not null,
    event text not null,
    primary key (work, number)
);

-- What was answered to which Idempotency-Key (A4), in the transaction of the effect.
create table answered (
    -- Half a SHA-256 of principal, route and key.
    key uuid primary key,
    -- Half a SHA-256 of the request.
    request uuid not null,
    at_ms bigint not null,
    answer json not null
);

-- Work that is no longer kept; its history is deleted piece by piece outside the commits.
create table forgotten (
    work uuid primary key
);
