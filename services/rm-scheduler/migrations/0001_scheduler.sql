-- What the scheduler owns: who holds what, under which policy, and what each round decided. What it
-- follows (nodes, demand, blocks, containers) belongs to its neighbours and is not copied here.

-- Quanta of one node bound to one piece of work, from grant to burial.
create table allocation (
    id text primary key,
    work text not null,
    -- Bound once, for its whole life (I1).
    node text not null,
    -- Quanta held.
    quanta bigint not null check (quanta > 0),
    -- Number of the attempt among all attempts of the work.
    incarnation bigint not null,
    -- False once it has ended; it then waits to be buried and holds nothing.
    live boolean not null,
    -- Not preemptable.
    fixed boolean not null,
    -- The whole entry as published.
    body json not null,
    -- One attempt has one number (I3).
    unique (work, incarnation)
);

-- Last attempt number given to a piece of work, so that numbers only grow while it lasts.
create table incarnation (
    work text primary key,
    last bigint not null
);

-- The policy documents, newest generation in force.
create table policy (
    generation bigint primary key,
    document json not null,
    changed_by text not null,
    changed_at_ms bigint not null
);

-- Rounds that changed something, the newest thousand.
create table round (
    round bigint primary key,
    body json not null
);

-- Quantum-milliseconds each user was due and received per class, since the first round (I10, G15).
create table usage (
    username text not null,
    class text not null,
    due_quantum_ms bigint not null,
    received_quantum_ms bigint not null,
    primary key (username, class)
);
