//! Preemption: queues below their guarantee take space from queues above theirs. The preempted
//! allocations are called victims.
//!
//! An attempt is simulated first. The simulation finds a node, the victims on that node, and
//! victims on other nodes if queues lack quota too. The attempt is then carried out as a whole or
//! not at all, and the node is reserved for the work. For a gang the attempt covers all missing
//! processes ([`gangs`]).
//!
//! Invariants:
//!
//! * A victim is never in the same queue as the work, never of higher priority, and never outside
//!   the fence.
//! * No queue falls below its guarantee.
//! * There are no more victims than needed, and none when waiting is enough.

mod gangs;
mod guarantee;
mod maximum_enforcement;
mod required_node;
mod victims;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    plan::{Receipt, VacateReason},
    snapshot::queues::Preemption,
};
use hayward_vocabulary::WorkId;

use crate::{
    future_free_space::Occupancy,
    queue_tree::ROOT,
    reserve::reserve_with_victims,
    resource_vec::Vector,
    round_state::{RoundState, WaitReason},
};

use guarantee::{Guarantees, remaining_usage};
use victims::{Choice, VictimSearch};

pub(crate) use maximum_enforcement::enforce;

/// Maximum number of attempts per leaf and round.
const MAX_ATTEMPTS: u64 = 10;

/// Needs of one process, or of all missing processes of a gang.
pub(super) struct PreemptionRequest {
    /// Index of the work item. For a gang, its part of the lowest priority.
    pub item: usize,
    /// Index of the queue of the work.
    pub leaf: usize,
    /// Index of the queue that all victims must be below.
    pub fence: usize,
    /// Needed resources.
    pub vector: Vector,
    /// Resources by which queues on the path would exceed their maxima.
    pub missing_quota: Vector,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// A limit or the guarantee of the queue does not allow the work to preempt.
    PreconditionsFailed,
    /// No set of victims makes enough space.
    NoSolution,
    /// Victims were vacated, and their space is reserved.
    Done,
}

/// Tries to preempt for each skipped work item.
pub(crate) fn run(round: &mut RoundState) {
    let occupancy = Occupancy::new(round);
    required_node::run(round, &occupancy);
    if !round.queues.preemption {
        return;
    }
    let guarantees = Guarantees::new(round);
    let mut attempts_by_leaf: BTreeMap<usize, u64> = BTreeMap::new();
    // After a failed attempt equal work would fail too, because usage shrinks only when victims are
    // taken.
    let mut failed_requests: BTreeSet<(usize, usize, i32)> = BTreeSet::new();
    for item in round.skipped.clone() {
        let Some(leaf) = round.queue_of(item) else {
            continue;
        };
        let work_item = &round.items[item];
        if work_item.missing_gang_processes() > 0 {
            let attempts = attempts_by_leaf.entry(leaf).or_default();
            if *attempts < MAX_ATTEMPTS && gangs::may_try(round, item, leaf) {
                let outcome = gangs::attempt(round, &guarantees, &occupancy, item, leaf);
                *attempts += u64::from(outcome != Outcome::PreconditionsFailed);
            }
            continue;
        }
        let request_key = (leaf, work_item.shape, work_item.queued.priority);
        let may_use_any_node = work_item.may_use_any_node;
        if !may_try(round, item) || (may_use_any_node && failed_requests.contains(&request_key)) {
            continue;
        }
        let attempts = attempts_by_leaf.entry(leaf).or_default();
        while *attempts < MAX_ATTEMPTS && count_unreserved(round, item) > 0 {
            let outcome = attempt(round, &guarantees, &occupancy, item, leaf);
            match outcome {
                Outcome::Done => *attempts += 1,
                Outcome::PreconditionsFailed => break,
                Outcome::NoSolution => {
                    *attempts += 1;
                    let (work, now) = (round.items[item].work.clone(), round.snapshot.now);
                    round.carried.attempts.insert(work, now);
                    failed_requests.extend(may_use_any_node.then_some(request_key));
                    break;
                }
            }
        }
    }
}

/// Checks the preconditions that do not depend on guarantees.
fn may_try(round: &RoundState, item: usize) -> bool {
    let work_item = &round.items[item];
    let queue_state = round.queue_of(item).map(|queue| &round.tree.entries[queue]);
    let delay_ms = queue_state.map_or(u64::MAX, |queue_state| {
        queue_state.settings.preemption_delay_ms
    });
    let waits_for_space = matches!(
        work_item.wait_reason,
        Some(WaitReason::NoNode | WaitReason::QueueQuota { .. })
    );
    waits_for_space
        && work_item.queued.preempts
        && work_item.queued.required_node.is_none()
        && !work_item.starts_with_gang()
        && !round.carried.attempts.contains_key(work_item.work)
        && !has_lapsed_reservation(round, work_item.work)
        && round.snapshot.now.ms_since(work_item.waits_since) >= delay_ms
}

/// Returns true if victims left for this work recently and the work did not start.
fn has_lapsed_reservation(round: &RoundState, work: &WorkId) -> bool {
    let lapsed = round.carried.lapsed.get(work);
    lapsed.is_some_and(|until| *until > round.snapshot.now)
}

/// Returns the number of missing processes without reserved space.
fn count_unreserved(round: &RoundState, item: usize) -> u64 {
    let work_item = &round.items[item];
    let reservations = round.carried.reservations.values();
    let own = reservations
        .filter(|reservation| reservation.cleared && &reservation.work == work_item.work);
    let reserved = own.map(|reservation| reservation.processes).sum();
    work_item.missing().saturating_sub(reserved)
}

/// Simulates the preemption for one process, and carries it out if it succeeds.
fn attempt(
    round: &mut RoundState,
    guarantees: &Guarantees,
    occupancy: &Occupancy,
    item: usize,
    leaf: usize,
) -> Outcome {
    let vector = round.vector(item).clone();
    let is_allowed =
        round.may_run(round.items[item].app).is_ok() && round.user_may_hold(item, &vector);
    if !is_allowed || !guarantees.stays_within_guarantee(round, leaf, &vector) {
        return Outcome::PreconditionsFailed;
    }
    let (fence, missing_quota) = find_fence(round, guarantees, leaf, &vector);
    let request = PreemptionRequest {
        item,
        leaf,
        fence,
        vector,
        missing_quota,
    };
    let choice = VictimSearch::new(round, guarantees, &request).choose(occupancy);
    match choice {
        None => Outcome::NoSolution,
        Some(choice) => {
            commit(round, &request, &choice);
            Outcome::Done
        }
    }
}

/// Returns the nearest ancestor that has a fence, is at its maximum, or has an exhausted guarantee.
/// Also returns the amounts that would exceed the maxima on the path. Space that victims are
/// freeing counts as used.
fn find_fence(
    round: &RoundState,
    guarantees: &Guarantees,
    leaf: usize,
    vector: &Vector,
) -> (usize, Vector) {
    let mut missing_quota = round.dims.zero();
    let mut fence = None;
    for ancestor in round.tree.path(leaf) {
        let queue_state = &round.tree.entries[ancestor];
        let reserved = round.reserved_with_victims(ancestor);
        let mut exceeds_max = false;
        for (dim, max) in queue_state.max.iter().enumerate() {
            let Some(max) = max else { continue };
            let needed = remaining_usage(round, ancestor, dim)
                .saturating_add(vector[dim])
                .saturating_add(reserved[dim]);
            if vector[dim] > 0 && needed > *max {
                exceeds_max = true;
                missing_quota[dim] = missing_quota[dim].max(needed - max);
            }
        }
        let is_fence = queue_state.preemption == Preemption::Fence;
        if fence.is_none()
            && (exceeds_max
                || is_fence
                || guarantees.is_guarantee_exhausted(round, leaf, ancestor, vector))
        {
            fence = Some(ancestor);
        }
    }
    (fence.unwrap_or(ROOT), missing_quota)
}

/// Vacates all victims and reserves the node.
fn commit(round: &mut RoundState, request: &PreemptionRequest, choice: &Choice) {
    let name = round.nodes.node_states[choice.node].name.clone();
    let queue = &round.tree.entries[request.leaf].path.clone();
    for victim in &choice.victims {
        // The victim's user reads this text, so it names no other work. The receipt does (S12).
        let detail = if round.allocation_states[*victim].node == Some(choice.node) {
            format!("the guarantee of queue {queue} entitles its work to the space on node {name}")
        } else {
            format!(
                "work of queue {queue} is due a part of what queue {} may have at most, by its \
                 guarantee",
                round.tree.entries[request.fence].path
            )
        };
        vacate_victim(round, *victim, request.item, detail);
    }
    reserve_with_victims(round, request.item, choice.node);
}

/// Vacates one victim for this work item and writes the receipt. Without a reported investment, the
/// lost time is estimated: the running time since the start of the current task, or of the process
/// if the duration of its tasks is unknown.
fn vacate_victim(round: &mut RoundState, victim: usize, beneficiary: usize, detail: String) {
    let allocation_state = &round.allocation_states[victim];
    let allocation = allocation_state.allocation;
    let began = allocation.running_since.or(allocation.started_at);
    let began = began.unwrap_or(allocation.granted_at);
    let ran_ms = round.snapshot.now.ms_since(began);
    let item_ms = allocation.item_ms.filter(|ms| *ms > 0);
    let estimated_ms = item_ms.map_or(ran_ms, |ms| ran_ms % ms);
    let receipt = Receipt {
        allocation: allocation_state.id.clone(),
        work: allocation.work.clone(),
        user: allocation.user.clone(),
        node: allocation.node.clone(),
        quanta: allocation.quanta,
        lost_ms: allocation.investment_ms.unwrap_or(estimated_ms),
        beneficiary: Some(round.items[beneficiary].work.clone()),
        for_user: Some(round.items[beneficiary].demand.user.clone()),
    };
    round
        .carried
        .last_loss
        .insert(allocation.work.clone(), round.snapshot.now);
    round.receipts.push(receipt);
    round.vacate(victim, VacateReason::Preempted, detail);
}
