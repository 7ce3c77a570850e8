-- Orchestrators, and the last map of work that each of them had accepted (fair-share scheduling,
-- section 7). Their work is not in `work`: it begins and ends with the map.

create table orchestrator (
    name text primary key,
    -- Whose shares may be charged for its work; null means anybody's.
    users text[],
    created_at_ms bigint not null,
    -- Of the last accepted map, together or not at all.
    lineage text,
    sequence bigint,
    accepted_at_ms bigint,
    -- Lineages another one took over from, oldest first: they are not heard any more.
    past text[] not null default '{}',
    -- Entries of that map that were refused, and why.
    faults json not null default '{}',
    check ((lineage is null) = (sequence is null)),
    check ((lineage is null) = (accepted_at_ms is null))
);

create table orchestrated (
    -- The number in the work id of its demand.
    id uuid primary key,
    orchestrator text not null,
    -- The id that its orchestrator chose.
    name text not null,
    -- The entry as it was accepted last.
    entry json not null,
    arrived_at_ms bigint not null,
    -- Why it asks for nothing any more.
    over text check (over in ('not_schedulable', 'process_ended', 'refused')),
    -- For people, when it was refused.
    reason text,
    -- No map names it any more; it is kept until its last share is gone.
    gone boolean not null default false
);
create index orchestrated_name on orchestrated (orchestrator);
