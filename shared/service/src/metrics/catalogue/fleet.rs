//! Metrics of nodes, blocks, agents, containers and work.

use super::super::{Attribute, Group, Metric};
use super::{AGENTS, BLOCKS, CONTAINERS, JOBS, KIND, NODES, POOL, SCHEDULER};

/// State of a node. A node in several states counts for the last of them in this list.
pub static NODE_STATE: Attribute = Attribute::listed(
    "hayward.node.state",
    &[
        "healthy", "quiesced", "offline", "draining", "suspect", "lost",
    ],
);
/// Whether the program of a granted process started.
pub static LAUNCH_OUTCOME: Attribute =
    Attribute::listed("hayward.launch.outcome", &["started", "failed"]);
pub static BLOCK_KIND: Attribute = Attribute::listed("hayward.block.kind", &["node", "worker"]);
pub static BLOCK_STATE: Attribute =
    Attribute::listed("hayward.block.state", &["in_force", "on_trial"]);
/// Cause of a block: an operator, or an automatic rule that evaluates failures.
pub static BLOCK_CAUSE: Attribute =
    Attribute::listed("hayward.block.cause", &["ordered", "automatic"]);
/// State of a container, in the order of its life.
pub static CONTAINER_STATE: Attribute = Attribute::listed(
    "hayward.container.state",
    &[
        // The agent must not start the container yet.
        "held",
        // The agent has not started the container yet.
        "ordered",
        "launching",
        "running",
        "stopping",
        "ended",
    ],
);
/// Cause of the end of a container. `hayward_vocabulary::ExitCause` explains each value.
pub static EXIT_CAUSE: Attribute = Attribute::listed(
    "hayward.exit.cause",
    &[
        "success",
        "user_error",
        "user_limit",
        "launch_failed",
        "node",
        "intended",
        "launch_unknown",
        "unknown",
    ],
);
pub static TASK_OUTCOME: Attribute =
    Attribute::listed("hayward.task.outcome", &["succeeded", "failed"]);
/// Whether the action requested a preferred node or any node.
pub static PLACEMENT_HOST: Attribute =
    Attribute::listed("hayward.placement.host", &["preferred", "any"]);
/// Reason why a placement action failed.
pub static PLACEMENT_REASON: Attribute = Attribute::listed(
    "hayward.placement.reason",
    &[
        "REQUEST_EXPIRED",
        "STOP_FAILED",
        "LAUNCH_FAILED",
        "CONSTRAINT_AT_LAUNCH",
        "DESTINATION_BLOCKED",
        "MANAGER_RESTARTED",
        "JOB_ENDED",
        "UNKNOWN_PROCESSOR",
        "STALE_DEPLOYMENT",
        "STANDBY_CONSTRAINT",
        "NOT_RUNNING",
        "NO_STANDBY",
        "POOL_MANAGED",
    ],
);

pub static NODE_COUNT: Metric = Metric::gauge(
    "hayward.node.count",
    "{node}",
    Group::Nodes,
    "nodes of a pool by state",
)
.with_attributes(&[&POOL, &NODE_STATE])
.reported_by(NODES);
pub static NODE_HEARTBEAT_AGE: Metric = Metric::gauge(
    "hayward.node.heartbeat_age",
    "s",
    Group::Nodes,
    "time since the last heartbeat of the longest silent node of a pool that is not given up",
)
.with_attributes(&[&POOL])
.reported_by(NODES);
pub static NODE_FLAPS: Metric = Metric::counter(
    "hayward.node.flaps",
    "{flap}",
    Group::Nodes,
    "number of times that a healthy node of a pool fell silent",
)
.with_attributes(&[&POOL])
.reported_by(NODES)
.rare();
pub static NODE_BRAKE: Metric = Metric::gauge(
    "hayward.node.brake",
    "1",
    Group::Nodes,
    "one while the brake of a pool is on and none of its nodes is given up (B1)",
)
.with_attributes(&[&POOL])
.reported_by(NODES);
pub static POOL_MINIMUM: Metric = Metric::gauge(
    "hayward.pool.floor",
    "{node}",
    Group::Nodes,
    "least number of nodes of a pool that must take work (B4)",
)
.with_attributes(&[&POOL])
.reported_by(NODES);
pub static LAUNCH_COUNT: Metric = Metric::counter(
    "hayward.launch.attempts",
    "{launch}",
    Group::Nodes,
    "launches of processes in a pool, by outcome",
)
.with_attributes(&[&POOL, &LAUNCH_OUTCOME])
.reported_by(SCHEDULER);
pub static BLOCK_COUNT: Metric = Metric::gauge(
    "hayward.block.count",
    "{block}",
    Group::Nodes,
    "blocked nodes and workers, and those on trial",
)
.with_attributes(&[&BLOCK_KIND, &BLOCK_STATE, &BLOCK_CAUSE])
.reported_by(BLOCKS);

pub static AGENT_GENERATION_LAG: Metric = Metric::gauge(
    "hayward.agent.generation_lag",
    "s",
    Group::Agents,
    "age of the oldest order that its agent has not answered; 0 when all are answered",
)
.reported_by(CONTAINERS);
pub static AGENT_JOURNAL_ERRORS: Metric = Metric::counter(
    "hayward.agent.journal_errors",
    "{error}",
    Group::Agents,
    "failed writes to the journal of an agent",
)
.reported_by(AGENTS);
pub static AGENT_ORPHANS: Metric = Metric::counter(
    "hayward.agent.orphans",
    "{container}",
    Group::Agents,
    "containers on a node that its agent's journal did not have",
)
.reported_by(AGENTS);

pub static CONTAINER_COUNT: Metric = Metric::gauge(
    "hayward.container.count",
    "{container}",
    Group::Work,
    "containers that are not removed, by state",
)
.with_attributes(&[&CONTAINER_STATE])
.reported_by(CONTAINERS);
pub static CONTAINER_EXITS: Metric = Metric::counter(
    "hayward.container.exits",
    "{container}",
    Group::Work,
    "ended containers, by cause",
)
.with_attributes(&[&EXIT_CAUSE])
.reported_by(CONTAINERS);
pub static CONTAINER_LAUNCH_DURATION: Metric = Metric::histogram(
    "hayward.container.launch_duration",
    "s",
    Group::Work,
    "time from the intent to start a container until its program runs, by the agent's clock",
)
.reported_by(AGENTS);
pub static WORK_SUBMITTED: Metric = Metric::counter(
    "hayward.work.submitted",
    "{work}",
    Group::Work,
    "accepted jobs, services and reservations",
)
.with_attributes(&[&KIND])
.reported_by(JOBS);
pub static WORK_OPEN: Metric = Metric::gauge(
    "hayward.work.open",
    "{work}",
    Group::Work,
    "jobs, services and reservations that have not ended",
)
.with_attributes(&[&KIND])
.reported_by(JOBS);
pub static TASKS: Metric = Metric::counter(
    "hayward.task.outcomes",
    "{task}",
    Group::Work,
    "reported attempts at tasks, by outcome",
)
.with_attributes(&[&TASK_OUTCOME])
.reported_by(JOBS);

pub static PLACEMENT_REQUESTS: Metric = Metric::counter(
    "hayward.placement.requests",
    "{request}",
    Group::Placements,
    "places requested by placement actions",
)
.with_attributes(&[&PLACEMENT_HOST])
.reported_by(CONTAINERS)
.rare();
pub static PLACEMENT_MATCHES: Metric = Metric::counter(
    "hayward.placement.matches",
    "{request}",
    Group::Placements,
    "requests with a granted place",
)
.with_attributes(&[&PLACEMENT_HOST])
.reported_by(CONTAINERS)
.rare();
pub static PLACEMENT_EXPIRATIONS: Metric = Metric::counter(
    "hayward.placement.expirations",
    "{request}",
    Group::Placements,
    "requests that expired without a place",
)
.with_attributes(&[&PLACEMENT_HOST])
.reported_by(CONTAINERS)
.rare();
pub static PLACEMENT_FAILURES: Metric = Metric::counter(
    "hayward.placement.failures",
    "{action}",
    Group::Placements,
    "failed placement actions",
)
.with_attributes(&[&PLACEMENT_REASON])
.reported_by(CONTAINERS)
.rare();
pub static PLACEMENT_FORCED_STOP_FAILURES: Metric = Metric::counter(
    "hayward.placement.forced_stop_failures",
    "{process}",
    Group::Placements,
    "processes that did not end at a forced restart",
)
.reported_by(CONTAINERS)
.rare();

pub(super) static ALL: &[&Metric] = &[
    &NODE_COUNT,
    &NODE_HEARTBEAT_AGE,
    &NODE_FLAPS,
    &NODE_BRAKE,
    &POOL_MINIMUM,
    &LAUNCH_COUNT,
    &BLOCK_COUNT,
    &AGENT_GENERATION_LAG,
    &AGENT_JOURNAL_ERRORS,
    &AGENT_ORPHANS,
    &WORK_SUBMITTED,
    &WORK_OPEN,
    &TASKS,
    &CONTAINER_COUNT,
    &CONTAINER_EXITS,
    &CONTAINER_LAUNCH_DURATION,
    &PLACEMENT_REQUESTS,
    &PLACEMENT_MATCHES,
    &PLACEMENT_EXPIRATIONS,
    &PLACEMENT_FAILURES,
    &PLACEMENT_FORCED_STOP_FAILURES,
];
