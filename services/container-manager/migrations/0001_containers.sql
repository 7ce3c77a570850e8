-- What container-manager owns: containers, from the order to start them until some time after their
-- burial, and the newest part of what they wrote. What is published of them is in `entry`.

create table container (
    -- The id of the allocation it runs in; there is one container per allocation.
    id text primary key,
    work text not null,
    kind text not null,
    user_name text not null,
    -- Bound once, for its whole life (I1).
    node text not null,
    incarnation bigint not null,
    -- Limits, as granted. `json` is stored and sent, never looked into.
    size json not null,
    -- What to start. It may hold secrets, so it goes when the container has ended.
    launch json,
    state text not null check (state in ('ordered', 'launching', 'running', 'stopping', 'ended')),
    -- Term of the writer that last changed what the node is told.
    epoch bigint not null,
    -- Milliseconds since 1970, by the clock of the writer.
    ordered_at_ms bigint not null,
    -- Revision at which it became known that the node had it; absence in a report that answers an
    -- older one proves nothing.
    launched bigint,
    -- Revision at which the node was told to end it.
    stop bigint,
    -- Its allocation is gone, its burial waits for its end.
    orphan boolean not null default false,
    pid bigint,
    -- By the clock of the node; shown, never compared (R4).
    started_at_ms bigint,
    exit json,
    -- Since then nobody is told of it any more; it is history that people may read for a while.
    buried_at_ms bigint,
    -- An end has an exit, and nothing else has.
    check ((state = 'ended') = (exit is not null)),
    check (buried_at_ms is null or state = 'ended')
);

-- The working set, read once at the start of a term.
create index container_alive on container (id) where buried_at_ms is null;
-- Lists of one piece of work, one node, one user, in order of id.
create index container_work on container (work, id);
create index container_node on container (node, id);
create index container_user on container (user_name, id);
-- History goes oldest first.
create index container_buried on container (buried_at_ms, id) where buried_at_ms is not null;

-- How far the output of a container is known. The row is also the lock of those who add to it.
create table output_head (
    id text primary key references container on delete cascade,
    -- Bytes the container has written, as far as reported.
    written bigint not null default 0
);

-- The newest output of a container, in pieces that never overlap.
create table output (
    id text not null references output_head on delete cascade,
    -- Bytes of output before this piece.
    start bigint not null,
    -- Bytes of output it stands for; differs from the length of the text where bytes were replaced.
    bytes bigint not null check (bytes > 0),
    text text not null,
    primary key (id, start)
);
