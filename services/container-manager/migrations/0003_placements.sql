-- Reserved for a process whose predecessor has not ended: its node is told nothing of it yet.
alter table container add column held boolean not null default false;
-- The allocation whose place it takes, and the request of an action that it answers.
alter table container add column predecessor text;
alter table container add column request text;

-- Deployments of services that have been heard of, so that a dead one is told from one that never
-- was.
create table deployment (
    id text primary key,
    service text not null,
    user_name text not null,
    -- Since then it is dead, and its placements are not readable any more.
    ended_at_ms bigint
);

-- What controllers asked for, and what became of it.
create table placement (
    uuid text primary key,
    deployment text not null,
    processor text not null,
    -- In the order in which they came; pages go by it.
    seq bigint not null,
    status text not null,
    -- Its parent holds the place in flight already.
    under_parent boolean not null,
    updated_at_ms bigint not null,
    -- What is shown of it, and what the action has in hand.
    body json not null
);
-- One action in flight for each processor: this index is the rule.
create unique index placement_in_flight on placement (deployment, processor)
    where status in ('ACCEPTED', 'IN_PROGRESS') and not under_parent;
create index placement_page on placement (deployment, seq);
