-- What outlives a manager about the processors of services (container placement, 10 to 12).

-- Only of processors that have anything to remember.
create table processor (
    -- The work id of its demand entry.
    slot text primary key,
    work uuid not null,
    -- Failures that are counted, and what was noted of the last one; together or not at all.
    failures int,
    last_failure_ms bigint,
    last_delay_ms bigint,
    -- It gets no process any more: its retries are exhausted, or it ended with status 0.
    ended text check (ended in ('failed', 'completed')),
    -- A failover that is not over: what was lost, which hosts and standbys were tried, which host
    -- is asked for, which standby has to end first.
    failover json,
    check ((failures is null) = (last_failure_ms is null)),
    check ((failures is null) = (last_delay_ms is null))
);
create index processor_work on processor (work);

-- Where a processor was started last. It belongs to the service by its name, so that it outlives
-- deployments; to one without a name by its id. Kept as long as such a service can be read.
create table locality (
    user_name text not null,
    service text not null,
    -- `0`, or `0-0` for the first standby of `0`.
    processor text not null,
    node text not null,
    at_ms bigint not null,
    primary key (user_name, service, processor)
);
