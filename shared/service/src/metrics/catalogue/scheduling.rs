//! Who waits, what rounds do, how fair it is, and what is taken back.

use super::super::{Attribute, Group, Metric};
use super::{CLASS, JOBS, KIND, POOL, SCHEDULER, USER};

/// The closed list of section 13.2.
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

/// `whole` is all of it; the others are its parts, in order. `commit` is told of rounds that
/// decided something.
pub static PHASE: Attribute = Attribute::listed(
    "hayward.round.phase",
    &[
        "whole",
        "prepare",
        "snapshot",
        "how_much",
        "what_of",
        "defragment",
        "tell",
        "check",
        "carry_out",
        "commit",
    ],
);

/// Why the check refused a part of a plan.
pub static REFUSAL: Attribute = Attribute::listed(
    "hayward.refusal.cause",
    &[
        "unknown_work",
        "misdescribed",
        "unknown_node",
        "node_closed",
        "wrong_class",
        "outside_pools",
        "not_listed",
        "avoided",
        "not_apart",
        "wrong_size",
        "no_room",
        "too_many",
        "wrong_gpus",
        "over_allotment",
        "over_quota",
        "unknown_allocation",
        "told_already",
        "not_takeable",
        "false_reason",
        "needless_purge",
    ],
);

/// Why an allocation was told to leave.
pub static LEAVES: Attribute = Attribute::listed(
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

pub static GANG_STATE: Attribute =
    Attribute::listed("hayward.gang.state", &["waiting", "bound", "below_minimum"]);

pub static WAITING_SLOTS: Metric = Metric::gauge(
    "hayward.waiting.slots",
    "{slot}",
    Group::Waiting,
    "processes that work could use and does not have",
)
.by(&[&REASON, &CLASS, &POOL])
.of(SCHEDULER)
.rare();
pub static WAITING_QUANTA: Metric = Metric::gauge(
    "hayward.waiting.quanta",
    "{quantum}",
    Group::Waiting,
    "the same in quanta",
)
.by(&[&REASON, &CLASS, &POOL])
.of(SCHEDULER)
.rare();
pub static WAITING_OLDEST: Metric = Metric::gauge(
    "hayward.waiting.oldest",
    "s",
    Group::Waiting,
    "since when the work that waits longest for its first process was submitted; 0 where none \
     waits",
)
.by(&[&CLASS, &POOL])
.of(SCHEDULER);
pub static WAITING_TARGET: Metric = Metric::gauge(
    "hayward.waiting.target",
    "s",
    Group::Waiting,
    "how long work of a class may wait for its first process before somebody is told (T8)",
)
.by(&[&CLASS])
.of(SCHEDULER);
pub static WORK_TIME_TO_START: Metric = Metric::histogram(
    "hayward.work.time_to_start",
    "s",
    Group::Waiting,
    "from the submission of work until its first process is known to run (G8)",
)
.by(&[&KIND, &CLASS])
.of(SCHEDULER);
pub static ALLOCATION_TIME_TO_START: Metric = Metric::histogram(
    "hayward.allocation.time_to_start",
    "s",
    Group::Waiting,
    "from the grant of an allocation until its process is known to run",
)
.by(&[&CLASS, &POOL])
.of(SCHEDULER);

pub static ROUND_DURATION: Metric = Metric::histogram(
    "hayward.round.duration",
    "s",
    Group::Rounds,
    "how long rounds and their phases take",
)
.by(&[&PHASE])
.of(SCHEDULER);
pub static ROUND_PLACEMENTS: Metric = Metric::counter(
    "hayward.round.placements",
    "{allocation}",
    Group::Rounds,
    "allocations that rounds granted",
)
.by(&[&CLASS, &POOL])
.of(SCHEDULER);
pub static ROUND_REFUSALS: Metric = Metric::counter(
    "hayward.round.refusals",
    "{part}",
    Group::Rounds,
    "parts of plans that the check refused to commit; any is a defect",
)
.by(&[&REFUSAL])
.of(SCHEDULER)
.rare();
pub static ROUND_SNAPSHOT_AGE: Metric = Metric::gauge(
    "hayward.round.snapshot_age",
    "s",
    Group::Rounds,
    "since when the neighbour heard longest ago has not been heard; up to 10 s where nothing \
     happens",
)
.of(SCHEDULER);

pub static FAIRNESS_ENTITLED: Metric = Metric::gauge(
    "hayward.fairness.entitled",
    "{quantum}",
    Group::Fairness,
    "quanta a user is due in a class",
)
.by(&[&USER, &CLASS])
.of(SCHEDULER);
pub static FAIRNESS_WANTED: Metric = Metric::gauge(
    "hayward.fairness.wanted",
    "{quantum}",
    Group::Fairness,
    "quanta the work of a user could use in a class",
)
.by(&[&USER, &CLASS])
.of(SCHEDULER);
pub static FAIRNESS_RECEIVED: Metric = Metric::gauge(
    "hayward.fairness.received",
    "{quantum}",
    Group::Fairness,
    "quanta a user holds in a class",
)
.by(&[&USER, &CLASS])
.of(SCHEDULER);
pub static FAIRNESS_ERROR: Metric = Metric::gauge(
    "hayward.fairness.error",
    "{quantum}",
    Group::Fairness,
    "quanta received less entitled: below zero somebody gets less than is due (G15)",
)
.by(&[&USER, &CLASS])
.of(SCHEDULER);

pub static PREEMPTION_ALLOCATIONS: Metric = Metric::counter(
    "hayward.preemption.allocations",
    "{allocation}",
    Group::Preemption,
    "allocations that were told to leave",
)
.by(&[&LEAVES])
.of(SCHEDULER);
pub static PREEMPTION_LOST: Metric = Metric::counter(
    "hayward.preemption.lost",
    "{quantum_second}",
    Group::Preemption,
    "quanta times seconds of work that has to be done again because others were due the room (G16)",
)
.of(SCHEDULER);
pub static PREEMPTION_BUDGET_LEFT: Metric = Metric::gauge(
    "hayward.preemption.budget.left",
    "{quantum}",
    Group::Preemption,
    "quanta that may still be taken back in a pool within this hour, where that is limited (B5)",
)
.by(&[&POOL])
.of(SCHEDULER)
.rare();
pub static PREEMPTION_BUDGET_ALLOWED: Metric = Metric::gauge(
    "hayward.preemption.budget.allowed",
    "{quantum}",
    Group::Preemption,
    "quanta that may be taken back in a pool within an hour, where that is limited (B5)",
)
.by(&[&POOL])
.of(SCHEDULER)
.rare();
pub static PREEMPTION_PING_PONG: Metric = Metric::counter(
    "hayward.preemption.ping_pong",
    "{allocation}",
    Group::Preemption,
    "allocations taken back for work that had to give way to theirs within the hour; must stay 0",
)
.of(SCHEDULER);

pub static GANG_COUNT: Metric = Metric::gauge(
    "hayward.gang.count",
    "{gang}",
    Group::Gangs,
    "gangs that wait to be whole, that are, and that have lost a part of their minimum",
)
.by(&[&GANG_STATE])
.of(JOBS);

pub static POOL_USABLE: Metric = Metric::gauge(
    "hayward.pool.usable",
    "{quantum}",
    Group::Nodes,
    "quanta of the nodes of a pool that take work",
)
.by(&[&POOL])
.of(SCHEDULER);
pub static POOL_FREE: Metric = Metric::gauge(
    "hayward.pool.free",
    "{quantum}",
    Group::Nodes,
    "quanta free on the nodes of a pool that take work",
)
.by(&[&POOL])
.of(SCHEDULER);
pub static POOL_LARGEST_HOLE: Metric = Metric::gauge(
    "hayward.pool.largest_hole",
    "{quantum}",
    Group::Nodes,
    "quanta free on the one node of a pool that has most of them free",
)
.by(&[&POOL])
.of(SCHEDULER);
pub static POOL_FRAGMENTATION: Metric = Metric::gauge(
    "hayward.pool.fragmentation",
    "1",
    Group::Nodes,
    "the part of what is free in a pool that is not in its largest hole",
)
.by(&[&POOL])
.of(SCHEDULER);

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
