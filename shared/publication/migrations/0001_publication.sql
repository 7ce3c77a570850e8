-- One writer, one revision, any number of published maps. Each service schema has these tables.

-- The writer's lease and the revision counter are one row, so that the row is the fence: a commit
-- raises the revision `where epoch = mine`, and a writer that lost its lease raises nothing and
-- commits nothing (I7, R3). Instants are the database's own (R4).
create table writer (
    -- There is exactly one row.
    sole boolean primary key default true check (sole),
    -- Names this history. A restored or recreated database that starts anew gets another lineage.
    lineage uuid not null default gen_random_uuid(),
    -- Number of the last commit. All publications of the service share it.
    revision bigint not null default 0,
    -- Number of the leadership term; raised each time the lease changes hands.
    epoch bigint not null default 0,
    -- Who leads, for people.
    holder text not null default '',
    -- From this instant on anyone may take the lease.
    expires_at timestamptz not null default '-infinity'
);

insert into writer default values;

-- The entries of all maps this service publishes, as last committed.
create table entry (
    publication text not null,
    -- Part of a map that has its own readers, as one node's desired set; '' where there is one.
    scope text not null,
    key text not null,
    -- The commit that wrote it.
    revision bigint not null,
    -- The entry as sent. Null marks a removal, kept for a while so that readers can be told.
    -- `json`, not `jsonb`: it is stored and sent, never looked into.
    body json,
    primary key (publication, scope, key)
);

-- Trimming old removals and loading in order of revision.
create index entry_removed on entry (revision) where body is null;

-- How far this service has read its neighbours. Used at start for one thing only: a neighbour that
-- answers with the same lineage and a smaller revision has lost commits (R9).
create table followed (
    source text primary key,
    lineage uuid not null,
    revision bigint not null
);
