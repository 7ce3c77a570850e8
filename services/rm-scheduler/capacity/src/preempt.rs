//! Taking back what is over a guarantee for who is under one, by the laws of section 10.
//!
//! Everything is simulated before anything is told: an attempt finds a node, the processes that
//! would have to leave it and, where only the queue is short, others elsewhere; it is carried out
//! whole or not at all, and the node is kept for the ask. Invariants: no victim of the ask's own
//! queue, none of higher priority, none from outside the ask's fence, no queue pushed below what it
//! is guaranteed, no more than what the ask needs, and nothing taken where waiting is enough. For a
//! gang the attempt is about all that it lacks ([`gangs`]).

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
    future_nodes::Yard,
    reserve::book_cleared,
    resource_vec::Vector,
    round_state::{Books, Why},
    tree::ROOT,
};

use guarantee::{Guarantees, net};
use victims::Choice;

pub(crate) use quota::enforce;

/// After an attempt that did not help, the next one of the same work waits so long.
pub(crate) const AGAIN_MS: u64 = 15_000;
/// Attempts of one leaf in one round.
const ATTEMPTS: u64 = 10;

/// What one process of an ask would need, or all that a gang lacks.
pub(super) struct Wish {
    /// Of a gang, its part of the lowest priority.
    pub ask: usize,
    pub leaf: usize,
    /// Victims are below this queue.
    pub fence: usize,
    pub vector: Vector,
    /// What queues on its path lack beside room on a node.
    pub short: Vector,
}

/// What came of an attempt (10.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    PreconditionsFailed,
    DoesNotHelp,
    Done,
}

pub(crate) fn run(books: &mut Books) {
    let yard = Yard::of(books);
    required::run(books, &yard);
    if !books.queues.preemption {
        return;
    }
    let guarantees = Guarantees::of(books);
    let mut tried: BTreeMap<usize, u64> = BTreeMap::new();
    // Of asks alike that failed, the next would fail as well: what is held only shrinks by victims.
    let mut hopeless: BTreeSet<(usize, usize, i32)> = BTreeSet::new();
    for ask in books.aside.clone() {
        let Some(leaf) = books.queue_of(ask) else {
            continue;
        };
        let it = &books.asks[ask];
        if it.gang_lacks() > 0 {
            let tries = tried.entry(leaf).or_default();
            if *tries < ATTEMPTS && gangs::may_try(books, (ask, leaf)) {
                let outcome = gangs::attempt(books, (&guarantees, &yard), (ask, leaf));
                *tries += u64::from(outcome != Outcome::PreconditionsFailed);
            }
            continue;
        }
        let alike = (leaf, it.shape, it.queued.priority);
        let anywhere = it.anywhere;
        if !may_try(books, ask) || (anywhere && hopeless.contains(&alike)) {
            continue;
        }
        let tries = tried.entry(leaf).or_default();
        while *tries < ATTEMPTS && unreserved(books, ask) > 0 {
            let outcome = attempt(books, (&guarantees, &yard), (ask, leaf));
            match outcome {
                Outcome::Done => *tries += 1,
                Outcome::PreconditionsFailed => break,
                Outcome::DoesNotHelp => {
                    *tries += 1;
                    let (work, now) = (books.asks[ask].work.clone(), books.snapshot.now);
                    books.kept.attempts.insert(work, now);
                    hopeless.extend(anywhere.then_some(alike));
                    break;
                }
            }
        }
    }
}

/// 10.2, as far as it does not depend on guarantees.
fn may_try(books: &Books, ask: usize) -> bool {
    let it = &books.asks[ask];
    let spot = books.queue_of(ask).map(|queue| &books.tree.spots[queue]);
    let delay = spot.map_or(u64::MAX, |spot| spot.manner.preemption_delay_ms);
    let waits_for_room = matches!(it.why, Some(Why::NoNode | Why::QueueQuota { .. }));
    waits_for_room
        && it.queued.preempts
        && it.queued.required_node.is_none()
        && !it.starts_whole()
        && !books.kept.attempts.contains_key(it.work)
        && !left_in_vain(books, it.work)
        && books.snapshot.now.ms_since(it.waits_since) >= delay
}

/// Others left for it not long ago, and it did not start.
fn left_in_vain(books: &Books, work: &WorkId) -> bool {
    let lapsed = books.kept.lapsed.get(work);
    lapsed.is_some_and(|until| *until > books.snapshot.now)
}

/// Processes it lacks for which no room is being made.
fn unreserved(books: &Books, ask: usize) -> u64 {
    let it = &books.asks[ask];
    let all = books.kept.reservations.values();
    let mine = all.filter(|reservation| reservation.cleared && &reservation.work == it.work);
    let reserved = mine.map(|reservation| reservation.processes).sum();
    it.missing().saturating_sub(reserved)
}

fn attempt(
    books: &mut Books,
    (guarantees, yard): (&Guarantees, &Yard),
    (ask, leaf): (usize, usize),
) -> Outcome {
    let vector = books.vector(ask).clone();
    let may = books.may_run(books.asks[ask].app).is_ok() && books.user_may_hold(ask, &vector);
    if !may || !guarantees.is_short(books, leaf, &vector) {
        return Outcome::PreconditionsFailed;
    }
    let (fence, short) = fence(books, guarantees, leaf, &vector);
    let wish = Wish {
        ask,
        leaf,
        fence,
        vector,
        short,
    };
    match victims::choose(books, (guarantees, yard), &wish) {
        None => Outcome::DoesNotHelp,
        Some(choice) => {
            commit(books, &wish, &choice);
            Outcome::Done
        }
    }
}

/// 10.3: the nearest queue with a fence, or at its maximum, or whose guarantee is used up; and what
/// maxima lack from there up. What others leave for counts as if it were held.
fn fence(books: &Books, guarantees: &Guarantees, leaf: usize, vector: &Vector) -> (usize, Vector) {
    let mut short = books.dims.zero();
    let mut fence = None;
    for at in books.tree.path(leaf) {
        let spot = &books.tree.spots[at];
        let cleared = books.cleared_at(at);
        let mut over = false;
        for (dim, max) in spot.max.iter().enumerate() {
            let Some(max) = max else { continue };
            let wanted = net(books, at, dim)
                .saturating_add(vector[dim])
                .saturating_add(cleared[dim]);
            if vector[dim] > 0 && wanted > *max {
                over = true;
                short[dim] = short[dim].max(wanted - max);
            }
        }
        let closed = spot.preemption == Preemption::Fence;
        if fence.is_none() && (over || closed || guarantees.is_used_up(books, (leaf, at), vector)) {
            fence = Some(at);
        }
    }
    (fence.unwrap_or(ROOT), short)
}

/// All of them or none (10.3).
fn commit(books: &mut Books, wish: &Wish, choice: &Choice) {
    let name = books.nodes.stations[choice.node].name.clone();
    let queue = &books.tree.spots[wish.leaf].path.clone();
    for victim in &choice.victims {
        // S12: it is read by the victim's user; the receipt has the names.
        let detail = if books.held[*victim].node == Some(choice.node) {
            format!("work of queue {queue} is due the room on node {name} by its guarantee")
        } else {
            format!(
                "work of queue {queue} is due a part of what queue {} may have at most, by its \
                 guarantee",
                books.tree.spots[wish.fence].path
            )
        };
        tell(books, *victim, (wish.ask, detail));
    }
    book_cleared(books, (wish.ask, choice.node));
}

/// One is told to leave for another, and the receipt is written.
pub(super) fn tell(books: &mut Books, victim: usize, (ask, detail): (usize, String)) {
    let held = &books.held[victim];
    let allocation = held.allocation;
    let began = allocation.running_since.or(allocation.started_at);
    let began = began.unwrap_or(allocation.granted_at);
    let ran = books.snapshot.now.ms_since(began);
    let in_flight = allocation.item_ms.filter(|item| *item > 0);
    let reckoned = in_flight.map_or(ran, |item| ran % item);
    let receipt = Receipt {
        allocation: held.id.clone(),
        work: allocation.work.clone(),
        user: allocation.user.clone(),
        node: allocation.node.clone(),
        order: allocation.order,
        lost_ms: allocation.investment_ms.unwrap_or(reckoned),
        beneficiary: Some(books.asks[ask].work.clone()),
        for_user: Some(books.asks[ask].demand.user.clone()),
    };
    books
        .kept
        .hit
        .insert(allocation.work.clone(), books.snapshot.now);
    books.receipts.push(receipt);
    books.vacate(victim, (VacateReason::Preempted, detail));
}
