-- Ended allocations of jobs that are not over, with their nodes: a late report names its node after
-- a restart as well. At most 1000 per job, the oldest are deleted first.
create table past (
    allocation text primary key,
    job uuid not null,
    node text not null
);
create index past_job on past (job);
