-- Items for one job, graceful evacuation and trials; what happened on the machines, what was
-- concluded from it before, and by which strategy.

alter table block
    -- Blocked for this work alone; empty is the whole cluster.
    add column job text not null default '',
    -- Milliseconds of grace of an evacuation; null where nothing is taken off.
    add column grace_ms bigint,
    -- On trial since and until; null where it is not. The causes and sources are then those of the
    -- block that ended.
    add column trial_since_ms bigint,
    add column trial_until_ms bigint,
    add constraint block_or_trial check (action is null or trial_since_ms is null),
    add constraint whole_trial check ((trial_since_ms is null) = (trial_until_ms is null)),
    drop constraint block_pkey,
    add primary key (kind, identifier, job);

update block set grace_ms = 0 where action = 'MARK_BLOCKLISTED_AND_EVACUATE_TASKS';

-- The revision a change became visible with: the number readers of the feed go by.
alter table block_change add column version bigint not null default 0;
create index block_change_version on block_change (version);

-- How far the feed has been forgotten: a reader that is behind has to begin anew.
create table block_log (
    one boolean primary key default true check (one),
    forgotten_version bigint not null
);
insert into block_log (forgotten_version) values (0);

-- Automatic blocks, for the back-off: one that repeats lasts twice as long.
create table block_history (
    kind text not null,
    identifier text not null,
    job text not null,
    blocked_ms bigint not null,
    duration_ms bigint not null,
    -- The sources, joined.
    source text not null
);
create index block_history_age on block_history (blocked_ms);

-- What happened on the machines, trimmed by the longest window of the strategy.
create table failure_fact (
    -- Its name where it was told; told again, it is the same fact.
    key text not null,
    what text not null check (what in ('FAILED', 'WORKED', 'SILENCED', 'HEARD', 'SLOW')),
    node text not null,
    at_ms bigint not null,
    -- The attempt; null for what is about the machine itself.
    work text,
    owner text,
    cause text,
    cause_code text,
    ran boolean not null,
    held_ms bigint not null,
    -- It has led to a block and counts no more.
    spent boolean not null,
    primary key (key, what)
);

-- Names of machines that were seen once. They stay known: a machine may return under its name.
create table machine_seen (
    node text primary key
);

-- The strategy in force, where somebody chose one; else it is the one of the settings.
create table strategy (
    one boolean primary key default true check (one),
    name text not null,
    parameters json not null,
    chosen_by text not null,
    chosen_ms bigint not null
);
