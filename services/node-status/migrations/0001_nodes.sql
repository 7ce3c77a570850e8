-- What node-status must not forget: which machines there are, what an operator said of them, and
-- how they were judged last. Heartbeats that change nothing leave no trace here; when a node was
-- last heard is kept in memory alone, because after an outage everyone has a fresh grace anyway.

create table node (
    node text primary key,
    -- The nodepool, as the agent named it when it last started.
    pool text not null,
    -- What the machine is, as last reported. Stored and shown, never looked into.
    inventory json not null,
    -- Changes with each boot of the machine.
    boot_id text not null,
    -- Changes with each start of the agent.
    agent_instance text not null,
    -- The node asks for no new work.
    quiesced boolean not null,
    -- The last judgement, and its reason for people.
    health text not null check (health in ('healthy', 'suspect', 'lost', 'quiesced')),
    health_reason text not null,
    -- False while an operator has varied the node off; a heartbeat does not change it (R-6.5).
    schedulable boolean not null,
    -- Who varied it off and why; empty while it is on.
    off_reason text not null,
    -- When health or schedulable last changed, in milliseconds since 1970.
    since_ms bigint not null
);

-- One row per change of meaning; the newest few hundred of each node are kept.
create table node_change (
    node text not null,
    serial bigint generated always as identity,
    at_ms bigint not null,
    health text not null,
    schedulable boolean not null,
    reason text not null,
    -- Who caused it; null where it was judged.
    by text,
    primary key (node, serial)
);

-- Permissions for one agent to fetch its first token. They are dead after a quarter of an hour and
-- kept a day, so that asking again with the same key is recognised.
create table enrolment (
    -- Who asked, and the key they asked with.
    principal text not null,
    idempotency_key text not null,
    -- What makes a repeated request the same.
    request_digest bytea not null,
    node text not null,
    -- SHA-256 of the secret; the secret itself is nowhere.
    secret_digest bytea not null,
    created_ms bigint not null,
    expires_ms bigint not null,
    -- A secret is good for one token.
    used boolean not null,
    primary key (principal, idempotency_key)
);
