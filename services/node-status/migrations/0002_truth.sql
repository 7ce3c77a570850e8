-- Nodes that tell the truth: why a node asks for quiet, which agents it is torn between, what it
-- may claim at most, and its drain.

-- Why the node asks for no new work, for people; empty where it does not or does not say.
alter table node add column quiesce_reason text not null default '';
-- Other agents that report as this node (F28). Not empty: nobody there is trusted.
alter table node add column rivals text[] not null default '{}';
-- Agents an operator said not to be this node; they are not listened to.
alter table node add column refused text[] not null default '{}';

-- S15: the most a node may say it has. Its own table: a node is enrolled before it is heard.
create table node_limit (
    node text primary key,
    -- A size; what is zero in it is not limited.
    most json not null
);

-- What the node will be held to once the secret is exchanged; null for no limit.
alter table enrolment add column most json;

-- The last drain of each node (W5). A cancelled one stays, so that numbers are never used again.
create table drain (
    node text primary key,
    -- Counts the drains of this node.
    number bigint not null,
    reason text not null,
    by text not null,
    began_ms bigint not null,
    -- When disruption limits end to matter; null for never.
    deadline_ms bigint,
    paused boolean not null,
    state text not null check (state in ('draining', 'paused', 'drained', 'failed', 'cancelled')),
    -- When it came to this state.
    state_since_ms bigint not null
);
