//! Preemption: queues under their guarantee take space from queues over theirs.
//!
//! An attempt is simulated first. It finds a node, the victims on it, and victims on other nodes if
//! queues lack quota too. It is then carried out as a whole or not at all, and the node is reserved
//! for the work. For a gang the attempt covers all its missing processes ([`gangs`]).
//!
//! Invariants:
//!
//! * A victim is never in the same queue as the work, never of higher priority, and never outside
//!   the fence.
//! * No queue falls below its guarantee.
//! * There are no more victims than needed, and none when waiting is enough.

mod gangs;
mod guarantee;
mod quota;
mod required;
mod victims;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    plan::{Receipt, VacateReason},
    snapshot::queues::Preemption,
};
use hayward_vocabulary::WorkId;

use crate::{
    future_nodes::Occupancy,
    reserve::reserve_with_victims,
    resource_vec::Vector,
    round_state::{RoundState, Why},
    tree::ROOT,
};

use guarantee::{Guarantees, net};
use victims::{Choice, VictimSearch};

pub(crate) use quota::enforce;

/// Maximum number of attempts per leaf and round.
const MAX_ATTEMPTS: u64 = 10;

/// Needs of one process, or of all missing processes of a gang.
pub(super) struct PreemptionRequest {
    /// Index of the work item. For a gang, its part of the lowest priority.
    pub item: usize,
    pub leaf: usize,
    /// Index of the queue that all victims must be below.
    pub fence: usize,
    pub vector: Vector,
    /// Resources by which queues on the path would exceed their maxima.
    pub short: Vector,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    PreconditionsFailed,
    DoesNotHelp,
    Done,
}

pub(crate) fn run(round: &mut RoundState) {
    let occupancy = Occupancy::new(round);
    required::run(round, &occupancy);
    if !round.queues.preemption {
        return;
    }
    let guarantees = Guarantees::new(round);
    let mut tried: BTreeMap<usize, u64> = BTreeMap::new();
    // After a failed attempt equal work would fail too, because usage shrinks only when victims are
    // taken.
    let mut hopeless: BTreeSet<(usize, usize, i32)> = BTreeSet::new();
    for item in round.aside.clone() {
        let Some(leaf) = round.queue_of(item) else {
            continue;
        };
        let it = &round.items[item];
        if it.gang_lacks() > 0 {
            let tries = tried.entry(leaf).or_default();
            if *tries < MAX_ATTEMPTS && gangs::may_try(round, item, leaf) {
                let outcome = gangs::attempt(round, &guarantees, &occupancy, item, leaf);
                *tries += u64::from(outcome != Outcome::PreconditionsFailed);
            }
            continue;
        }
        let alike = (leaf, it.shape, it.queued.priority);
        let anywhere = it.anywhere;
        if !may_try(round, item) || (anywhere && hopeless.contains(&alike)) {
            continue;
        }
        let tries = tried.entry(leaf).or_default();
        while *tries < MAX_ATTEMPTS && unreserved(round, item) > 0 {
            let outcome = attempt(round, &guarantees, &occupancy, item, leaf);
            match outcome {
                Outcome::Done => *tries += 1,
                Outcome::PreconditionsFailed => break,
                Outcome::DoesNotHelp => {
                    *tries += 1;
                    let (work, now) = (round.items[item].work.clone(), round.snapshot.now);
                    round.carried.attempts.insert(work, now);
                    hopeless.extend(anywhere.then_some(alike));
                    break;
                }
            }
        }
    }
}

/// Checks the preconditions that do not depend on guarantees.
fn may_try(round: &RoundState, item: usize) -> bool {
    let it = &round.items[item];
    let queue_state = round.queue_of(item).map(|queue| &round.tree.entries[queue]);
    let delay = queue_state.map_or(u64::MAX, |queue_state| {
        queue_state.settings.preemption_delay_ms
    });
    let waits_for_space = matches!(it.why, Some(Why::NoNode | Why::QueueQuota { .. }));
    waits_for_space
        && it.queued.preempts
        && it.queued.required_node.is_none()
        && !it.starts_whole()
        && !round.carried.attempts.contains_key(it.work)
        && !left_in_vain(round, it.work)
        && round.snapshot.now.ms_since(it.waits_since) >= delay
}

/// Returns true if victims left for this work recently and it did not start.
fn left_in_vain(round: &RoundState, work: &WorkId) -> bool {
    let lapsed = round.carried.lapsed.get(work);
    lapsed.is_some_and(|until| *until > round.snapshot.now)
}

/// Returns the number of missing processes without reserved space.
fn unreserved(round: &RoundState, item: usize) -> u64 {
    let it = &round.items[item];
    let all = round.carried.reservations.values();
    let mine = all.filter(|reservation| reservation.cleared && &reservation.work == it.work);
    let reserved = mine.map(|reservation| reservation.processes).sum();
    it.missing().saturating_sub(reserved)
}

fn attempt(
    round: &mut RoundState,
    guarantees: &Guarantees,
    occupancy: &Occupancy,
    item: usize,
    leaf: usize,
) -> Outcome {
    let vector = round.vector(item).clone();
    let may = round.may_run(round.items[item].app).is_ok() && round.user_may_hold(item, &vector);
    if !may || !guarantees.is_short(round, leaf, &vector) {
        return Outcome::PreconditionsFailed;
    }
    let (fence, short) = fence(round, guarantees, leaf, &vector);
    let request = PreemptionRequest {
        item,
        leaf,
        fence,
        vector,
        short,
    };
    let choice = VictimSearch::new(round, guarantees, &request).choose(occupancy);
    match choice {
        None => Outcome::DoesNotHelp,
        Some(choice) => {
            commit(round, &request, &choice);
            Outcome::Done
        }
    }
}

/// Returns the nearest ancestor that has a fence, is at its maximum, or has an exhausted guarantee.
/// Also returns the amounts that would exceed the maxima on the path. Space that victims are
/// freeing counts as used.
fn fence(
    round: &RoundState,
    guarantees: &Guarantees,
    leaf: usize,
    vector: &Vector,
) -> (usize, Vector) {
    let mut short = round.dims.zero();
    let mut fence = None;
    for at in round.tree.path(leaf) {
        let queue_state = &round.tree.entries[at];
        let cleared = round.cleared_at(at);
        let mut over = false;
        for (dim, max) in queue_state.max.iter().enumerate() {
            let Some(max) = max else { continue };
            let wanted = net(round, at, dim)
                .saturating_add(vector[dim])
                .saturating_add(cleared[dim]);
            if vector[dim] > 0 && wanted > *max {
                over = true;
                short[dim] = short[dim].max(wanted - max);
            }
        }
        let closed = queue_state.preemption == Preemption::Fence;
        if fence.is_none() && (over || closed || guarantees.is_used_up(round, leaf, at, vector)) {
            fence = Some(at);
        }
    }
    (fence.unwrap_or(ROOT), short)
}

/// Vacates all victims and reserves the node.
fn commit(round: &mut RoundState, request: &PreemptionRequest, choice: &Choice) {
    let name = round.nodes.node_states[choice.node].name.clone();
    let queue = &round.tree.entries[request.leaf].path.clone();
    for victim in &choice.victims {
        // The victim's user reads this text, so it names no other work. The receipt does (S12).
        let detail = if round.held[*victim].node == Some(choice.node) {
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

/// Vacates one victim for this work item and writes the receipt.
fn vacate_victim(round: &mut RoundState, victim: usize, item: usize, detail: String) {
    let held = &round.held[victim];
    let allocation = held.allocation;
    let began = allocation.running_since.or(allocation.started_at);
    let began = began.unwrap_or(allocation.granted_at);
    let ran = round.snapshot.now.ms_since(began);
    let in_flight = allocation.item_ms.filter(|item| *item > 0);
    let estimated = in_flight.map_or(ran, |item| ran % item);
    let receipt = Receipt {
        allocation: held.id.clone(),
        work: allocation.work.clone(),
        user: allocation.user.clone(),
        node: allocation.node.clone(),
        order: allocation.order,
        lost_ms: allocation.investment_ms.unwrap_or(estimated),
        beneficiary: Some(round.items[item].work.clone()),
        for_user: Some(round.items[item].demand.user.clone()),
    };
    round
        .carried
        .hit
        .insert(allocation.work.clone(), round.snapshot.now);
    round.receipts.push(receipt);
    round.vacate(victim, VacateReason::Preempted, detail);
}
