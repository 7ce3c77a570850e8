//! Metrics of waiting work, rounds, fairness and preemption.

use super::super::{Attribute, Group, Metric};
use super::{CLASS, JOBS, KIND, POOL, SCHEDULER, USER};

/// Reason why work waits or has less than it wants. The values are the codes of
/// `hayward_vocabulary::WaitReason`.
pub static REASON: Attribute = Attribute::listed(
    "hayward.reason",
    &[
        "zero_share",
        "waiting_for_preemption",
        "waiting_for_defragmentation",
        "insufficient_resources",
        "no_host_large_enough",
        "no_host_of_size",
        "resources_exhausted",
        "allotment_exceeded",
        "no_listed_machine",
        "all_blocked",
        "kept_apart",
        "initialization_cap",
        "at_fair_share",
        "stale_input",
        "no_class",
        "unknown_class",
        "not_authorised",
        "policy_mismatch",
        "queue_quota",
        "user_quota",
        "not_runnable",
        "backing_off",
        "gang_incomplete",
        "nodes_reserved",
        "outside_planner",
        "satisfied",
        "unknown",
    ],
);

/// Phase of a round. `whole` is the whole round. The other values are its parts, in the order in
/// which they run.
pub static PHASE: Attribute = Attribute::listed(
    "hayward.round.phase",
    &[
        "whole",
        // Applies the changes since the last round and builds the input of the planner.
        "prepare",
        // The planner updates its index from that input.
        "snapshot",
        // Computes the entitlements: how many processes each piece of work is due.
        "how_much",
        // Chooses allocations: places processes, preempts for needy work, and lends idle space.
        "what_of",
        // Moves processes away, so that needy work finds contiguous space on one node.
        "defragment",
        // Reports verdicts and shares.
        "tell",
        // Checks the plan independently of the planner.
        "check",
        // Applies the plan to the working set.
        "carry_out",
        // Writes the result to the database, in rounds that changed something.
        "commit",
    ],
);

/// Reason why the check refused a grant or a vacate of a plan.
pub static REFUSAL: Attribute = Attribute::listed(
    "hayward.refusal.cause",
    &[
        "unknown_work",
        // The grant and the work differ in user, kind or policy.
        "misdescribed",
        "unknown_node",
        "node_closed",
        "wrong_class",
        "outside_pools",
        // The node is not in the node list of the work.
        "not_listed",
        // The node is blocked for the work.
        "avoided",
        // Anti-affinity: other work of its group is on the node.
        "not_apart",
        "wrong_size",
        "no_room",
        "too_many",
        "wrong_gpus",
        "over_allotment",
        "over_quota",
        "unknown_allocation",
        // The allocation was vacated before.
        "told_already",
        // The allocation is never preempted for other work.
        "not_takeable",
        // The reason of the vacate does not hold.
        "false_reason",
        // The allocation is removed without its agent, although the node can answer.
        "needless_purge",
    ],
);

/// Reason why an allocation was vacated.
pub static VACATE_CAUSE: Attribute = Attribute::listed(
    "hayward.preemption.cause",
    &[
        "preempted",
        "blocked",
        "node_lost",
        "node_offline",
        "drained",
        "work_gone",
        "moved",
        "replaced",
        "unknown",
    ],
);

/// State of a gang. A bound gang has its minimum of tasks. A gang below its minimum has lost some.
pub static GANG_STATE: Attribute =
    Attribute::listed("hayward.gang.state", &["waiting", "bound", "below_minimum"]);

pub static WAITING_SLOTS: Metric = Metric::gauge(
    "hayward.waiting.slots",
    "{slot}",
    Group::Waiting,
    "processes that work could use and does not have",
)
.with_attributes(&[&REASON, &CLASS, &POOL])
.reported_by(SCHEDULER)
.rare();
pub static WAITING_QUANTA: Metric = Metric::gauge(
    "hayward.waiting.quanta",
    "{quantum}",
    Group::Waiting,
    "quanta of processes that work could use and does not have",
)
.with_attributes(&[&REASON, &CLASS, &POOL])
.reported_by(SCHEDULER)
.rare();
pub static WAITING_OLDEST: Metric = Metric::gauge(
    "hayward.waiting.oldest",
    "s",
    Group::Waiting,
    "age of the submission that has waited longest for its first process; 0 when no work waits",
)
.with_attributes(&[&CLASS, &POOL])
.reported_by(SCHEDULER);
pub static WAITING_TARGET: Metric = Metric::gauge(
    "hayward.waiting.target",
    "s",
    Group::Waiting,
    "longest permitted wait of a class for its first process; longer waits raise an alert (T8)",
)
.with_attributes(&[&CLASS])
.reported_by(SCHEDULER);
pub static WORK_TIME_TO_START: Metric = Metric::histogram(
    "hayward.work.time_to_start",
    "s",
    Group::Waiting,
    "time from the submission of work until its first process runs (G8)",
)
.with_attributes(&[&KIND, &CLASS])
.reported_by(SCHEDULER);
pub static ALLOCATION_TIME_TO_START: Metric = Metric::histogram(
    "hayward.allocation.time_to_start",
    "s",
    Group::Waiting,
    "time from the grant of an allocation until its process runs",
)
.with_attributes(&[&CLASS, &POOL])
.reported_by(SCHEDULER);

pub static ROUND_DURATION: Metric = Metric::histogram(
    "hayward.round.duration",
    "s",
    Group::Rounds,
    "duration of rounds and their phases",
)
.with_attributes(&[&PHASE])
.reported_by(SCHEDULER);
pub static ROUND_PLACEMENTS: Metric = Metric::counter(
    "hayward.round.placements",
    "{allocation}",
    Group::Rounds,
    "allocations that rounds granted",
)
.with_attributes(&[&CLASS, &POOL])
.reported_by(SCHEDULER);
pub static ROUND_REFUSALS: Metric = Metric::counter(
    "hayward.round.refusals",
    "{part}",
    Group::Rounds,
    "parts of plans that the check refused; each one is a defect",
)
.with_attributes(&[&REFUSAL])
.reported_by(SCHEDULER)
.rare();
pub static ROUND_SNAPSHOT_AGE: Metric = Metric::gauge(
    "hayward.round.snapshot_age",
    "s",
    Group::Rounds,
    "time since the last answer of the longest silent neighbour; up to 10 s when nothing changes",
)
.reported_by(SCHEDULER);

pub static FAIRNESS_ENTITLED: Metric = Metric::gauge(
    "hayward.fairness.entitled",
    "{quantum}",
    Group::Fairness,
    "quanta that a user is entitled to in a class",
)
.with_attributes(&[&USER, &CLASS])
.reported_by(SCHEDULER);
pub static FAIRNESS_WANTED: Metric = Metric::gauge(
    "hayward.fairness.wanted",
    "{quantum}",
    Group::Fairness,
    "quanta that a user's work could use in a class",
)
.with_attributes(&[&USER, &CLASS])
.reported_by(SCHEDULER);
pub static FAIRNESS_RECEIVED: Metric = Metric::gauge(
    "hayward.fairness.received",
    "{quantum}",
    Group::Fairness,
    "quanta that a user holds in a class",
)
.with_attributes(&[&USER, &CLASS])
.reported_by(SCHEDULER);
pub static FAIRNESS_ERROR: Metric = Metric::gauge(
    "hayward.fairness.error",
    "{quantum}",
    Group::Fairness,
    "quanta received minus entitled; below zero the user has less than is due (G15)",
)
.with_attributes(&[&USER, &CLASS])
.reported_by(SCHEDULER);

pub static PREEMPTION_ALLOCATIONS: Metric = Metric::counter(
    "hayward.preemption.allocations",
    "{allocation}",
    Group::Preemption,
    "vacated allocations",
)
.with_attributes(&[&VACATE_CAUSE])
.reported_by(SCHEDULER);
pub static PREEMPTION_LOST: Metric = Metric::counter(
    "hayward.preemption.lost",
    "{quantum_second}",
    Group::Preemption,
    "quantum seconds of work lost by preemption (G16)",
)
.reported_by(SCHEDULER);
pub static PREEMPTION_BUDGET_LEFT: Metric = Metric::gauge(
    "hayward.preemption.budget.left",
    "{quantum}",
    Group::Preemption,
    "quanta of a pool that may still be preempted within this hour, when a budget applies (B5)",
)
.with_attributes(&[&POOL])
.reported_by(SCHEDULER)
.rare();
pub static PREEMPTION_BUDGET_ALLOWED: Metric = Metric::gauge(
    "hayward.preemption.budget.allowed",
    "{quantum}",
    Group::Preemption,
    "quanta of a pool that may be preempted within an hour, when a budget applies (B5)",
)
.with_attributes(&[&POOL])
.reported_by(SCHEDULER)
.rare();
pub static PREEMPTION_PING_PONG: Metric = Metric::counter(
    "hayward.preemption.ping_pong",
    "{allocation}",
    Group::Preemption,
    "allocations preempted for work that was preempted for theirs within the hour; must stay 0",
)
.reported_by(SCHEDULER);

pub static GANG_COUNT: Metric = Metric::gauge(
    "hayward.gang.count",
    "{gang}",
    Group::Gangs,
    "gangs by state: waiting, bound, below their minimum",
)
.with_attributes(&[&GANG_STATE])
.reported_by(JOBS);

pub static POOL_USABLE: Metric = Metric::gauge(
    "hayward.pool.usable",
    "{quantum}",
    Group::Nodes,
    "quanta of the nodes of a pool that take new work",
)
.with_attributes(&[&POOL])
.reported_by(SCHEDULER);
pub static POOL_FREE: Metric = Metric::gauge(
    "hayward.pool.free",
    "{quantum}",
    Group::Nodes,
    "free quanta on the nodes of a pool that take new work",
)
.with_attributes(&[&POOL])
.reported_by(SCHEDULER);
pub static POOL_LARGEST_HOLE: Metric = Metric::gauge(
    "hayward.pool.largest_hole",
    "{quantum}",
    Group::Nodes,
    "most free quanta on one node of a pool",
)
.with_attributes(&[&POOL])
.reported_by(SCHEDULER);
pub static POOL_FRAGMENTATION: Metric = Metric::gauge(
    "hayward.pool.fragmentation",
    "1",
    Group::Nodes,
    "part of a pool's free quanta outside of its largest free space",
)
.with_attributes(&[&POOL])
.reported_by(SCHEDULER);

pub(super) static ALL: &[&Metric] = &[
    &WAITING_SLOTS,
    &WAITING_QUANTA,
    &WAITING_OLDEST,
    &WAITING_TARGET,
    &WORK_TIME_TO_START,
    &ALLOCATION_TIME_TO_START,
    &ROUND_DURATION,
    &ROUND_PLACEMENTS,
    &ROUND_REFUSALS,
    &ROUND_SNAPSHOT_AGE,
    &FAIRNESS_ENTITLED,
    &FAIRNESS_WANTED,
    &FAIRNESS_RECEIVED,
    &FAIRNESS_ERROR,
    &PREEMPTION_ALLOCATIONS,
    &PREEMPTION_LOST,
    &PREEMPTION_BUDGET_LEFT,
    &PREEMPTION_BUDGET_ALLOWED,
    &PREEMPTION_PING_PONG,
    &GANG_COUNT,
    &POOL_USABLE,
    &POOL_FREE,
    &POOL_LARGEST_HOLE,
    &POOL_FRAGMENTATION,
];
