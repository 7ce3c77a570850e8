//! Chooses the work that gives up processes, and the processes that leave.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use rustc_hash::FxHashSet;

use super::{DonorCandidates, SpaciousNodes};
use crate::{
    ids::{AllocIx, NodeIx, TypedVec, UserIx, WorkIx},
    index::node_space::NodeSpace,
    input::snapshot::Policy,
    state::{
        RoundState,
        budget::{BudgetStop, PreemptionBudget},
        preemption_order::preemption_key,
    },
};

/// Object that a donor could give up: an allocation, or a grant of this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Takeable {
    Allocation(AllocIx),
    Grant(usize),
}

/// The donors of one attempt, and what their users hold through them.
struct Donors {
    work: FxHashSet<WorkIx>,
    /// Quanta by user. `None` for users without donors.
    wealth: TypedVec<UserIx, Option<u64>>,
    /// True if donors keep `fragmentation_threshold` processes. Otherwise work of lower priority
    /// may lose all its processes (W-21).
    spare: bool,
    /// Free quanta that earlier processes of the needy work will use, by node (C-6).
    spent: BTreeMap<NodeIx, u64>,
}

/// Frees space for up to `need` processes of a piece of work. Returns the number of processes that
/// it freed space for.
pub(super) fn from_donors(
    state: &mut RoundState,
    spacious: &SpaciousNodes,
    candidates: &mut DonorCandidates,
    work: WorkIx,
    need: u64,
) -> u64 {
    let (rich, poor) = candidates.of(state, work);
    let mut donors = donors(state, rich, state.settings.spare_donors);
    let mut given = take(state, spacious, work, need, &mut donors);
    // The first attempt also spared donors of lower priority, so a second one may free more.
    let spared = state.settings.spare_donors && rich.iter().any(|it| !is_peer(state, work, *it));
    if given < need && (spared || !poor.is_empty()) {
        let all = [rich, poor].concat();
        let spent = donors.spent;
        donors = Donors {
            spent,
            ..self::donors(state, &all, false)
        };
        given += take(state, spacious, work, need - given, &mut donors);
    }
    given
}

pub(super) fn is_rich(state: &RoundState, donor: WorkIx) -> bool {
    let work = &state.work[donor];
    let threshold = state.snapshot.tunables.fragmentation_threshold;
    let runs = |allocation: AllocIx| state.allocations[allocation].running;
    // A grant of this round has not started, so giving it up costs nothing.
    let fresh = state.settings.spare_donors && work.placed > 0;
    work.process_count() > 0
        && work.process_count() >= threshold
        && !work.is_needy
        && (fresh || state.work_record(donor).allocations.iter().any(runs))
        && !gave_recently(state, donor)
}

/// Returns whether the needy work has no higher priority than the donor.
fn is_peer(state: &RoundState, needy: WorkIx, donor: WorkIx) -> bool {
    let priority = |work: WorkIx| {
        let class = state.work[work].class;
        class.map(|class| state.classes[class].class.priority)
    };
    priority(needy) >= priority(donor)
}

/// Returns whether the work gave up processes within the last `churn_rounds` rounds. Such work is
/// spared (W-32).
pub(super) fn gave_recently(state: &RoundState, donor: WorkIx) -> bool {
    let Some(rounds) = state.settings.churn_rounds else {
        return false;
    };
    let last = state.snapshot.carried.last_hit.get(state.id(donor));
    let was = last.is_some_and(|last| state.snapshot.round.saturating_sub(*last) <= rounds);
    if was {
        state.record_time_dependence();
    }
    was
}

fn donors(state: &RoundState, requests: &[WorkIx], spare: bool) -> Donors {
    let mut wealth = TypedVec::filled(None, state.index.user_count());
    for work in requests.iter().copied() {
        let work_state = &state.work[work];
        let user = wealth[state.work_record(work).user].get_or_insert(0);
        *user += work_state.process_count() * work_state.process_quanta;
    }
    Donors {
        work: requests.iter().copied().collect(),
        wealth,
        spare,
        spent: BTreeMap::new(),
    }
}

/// Frees space node by node, by descending wealth of the donors there. Wealth only falls, so a
/// popped node with an outdated rank is pushed back. A node that does not work once is dropped,
/// because later preemptions cannot make it work.
fn take(
    state: &mut RoundState,
    spacious: &SpaciousNodes,
    work: WorkIx,
    need: u64,
    donors: &mut Donors,
) -> u64 {
    let rank = |state: &RoundState, node: NodeIx, donors: &Donors| {
        let memory = state.node_record(node).node.capacity.memory_bytes;
        let wealth = wealth_on(state, node, donors);
        (wealth, memory, Reverse(node))
    };
    let nodes = eligible(state, spacious, work, donors);
    let nodes = nodes.into_iter().map(|node| rank(state, node, donors));
    let mut nodes: BinaryHeap<_> = nodes.collect();
    let (mut given, mut budget_stop) = (0, None);
    while given < need
        && let Some(top) = nodes.pop()
    {
        let Reverse(node) = top.2;
        let now = rank(state, node, donors);
        if now != top {
            nodes.push(now);
        } else if let Some(shares) = allowed(state, work, node, donors, &mut budget_stop) {
            given += clear(state, work, node, &shares, donors);
            nodes.push(rank(state, node, donors));
        }
    }
    if given < need {
        state.record_budget_stop(work, budget_stop);
    }
    given
}

/// Returns the nodes that could be cleared for the work.
fn eligible(
    state: &RoundState,
    spacious: &SpaciousNodes,
    work: WorkIx,
    donors: &Donors,
) -> Vec<NodeIx> {
    let quanta = state.work[work].process_quanta;
    let whole = state.policy(work) == Some(Policy::Reserve);
    let no_donors = donors.work.is_empty();
    let loads = &state.index.usage;
    let is_donors = |allocation: AllocIx| {
        let owner = loads[allocation].owner;
        owner.is_some_and(|user| donors.wealth[user].is_some())
    };
    let was_given = |grant: &usize| donors.work.contains(&state.granted[*grant].work);
    let gives = |node: NodeIx| {
        let allocation = &state.node_record(node).allocations;
        let grant = &state.nodes[node].granted;
        !no_donors && (allocation.iter().any(is_donors) || grant.iter().any(was_given))
    };
    // Without donors only future space helps.
    let mut nodes: Vec<NodeIx> = if no_donors {
        spacious.nodes(state)
    } else {
        state.nodes.indices().collect()
    };
    nodes.retain(|node| gives(*node) || state.future_quanta(*node) >= quanta);
    nodes
        .into_iter()
        .filter(|node| {
            let node_state = &state.nodes[*node];
            let fits = if whole {
                node_state.quanta == quanta && all_are_candidates(state, *node, donors)
            } else {
                node_state.quanta >= quanta
            };
            // Clearing a node that the work may not use would help no work (C-12).
            fits && state.admits(work, *node)
                && !state.violates_anti_affinity(work, *node)
                && node_state.is_schedulable()
                && node_state
                    .pool
                    .is_some_and(|pool| state.may_use(work, pool))
                && (node_state.whole_node_for.is_none_or(|other| other == work)
                    || !state.settings.clear_promised)
        })
        .collect()
}

fn all_are_candidates(state: &RoundState, node: NodeIx, donors: &Donors) -> bool {
    let node_state = &state.nodes[node];
    let allocation = state
        .node_record(node)
        .allocations
        .iter()
        .map(|allocation| state.allocations[allocation].work);
    let grant = node_state
        .granted
        .iter()
        .map(|at| Some(state.granted[*at].work));
    allocation
        .chain(grant)
        .all(|owner| owner.is_some_and(|owner| donors.work.contains(&owner)))
}

/// Returns the greatest wealth of any user with an allocation or grant on the node.
fn wealth_on(state: &RoundState, node: NodeIx, donors: &Donors) -> u64 {
    let allocation = state.node_record(node).allocations.iter();
    let allocation = allocation.map(|allocation| state.index.usage[allocation].user);
    let grant = state.nodes[node].granted.iter().map(|at| {
        let owner = state.granted[*at].work;
        state.work_record(owner).user
    });
    allocation
        .chain(grant)
        .filter_map(|user| donors.wealth[user])
        .max()
        .unwrap_or(0)
}

fn owner(state: &RoundState, share: Takeable) -> Option<WorkIx> {
    match share {
        Takeable::Allocation(allocation) => state.allocations[allocation].work,
        Takeable::Grant(grant) => Some(state.granted[grant].work),
    }
}

fn quanta_of(state: &RoundState, share: Takeable) -> u64 {
    match share {
        Takeable::Allocation(allocation) => state.allocations[allocation].quanta,
        Takeable::Grant(grant) => state.granted[grant].quanta,
    }
}

/// Lists what donors could give up on a node: the richest first, then grants, then the cheapest
/// allocation.
fn takeable(state: &RoundState, node: NodeIx, donors: &Donors) -> Vec<Takeable> {
    let node_state = &state.nodes[node];
    let allocation = state
        .node_record(node)
        .allocations
        .iter()
        .filter(|allocation| !state.leaving[*allocation] && !state.allocations[*allocation].fixed);
    let mut shares: Vec<Takeable> = allocation
        .map(Takeable::Allocation)
        .chain(
            node_state
                .granted
                .iter()
                .map(|grant| Takeable::Grant(*grant)),
        )
        .filter(|share| owner(state, *share).is_some_and(|owner| donors.work.contains(&owner)))
        .collect();
    let wealth = |share: Takeable| {
        let user = owner(state, share).map(|owner| state.work_record(owner).user);
        user.and_then(|user| donors.wealth[user])
    };
    shares.sort_by(|a, b| {
        let by_wealth = wealth(*b).cmp(&wealth(*a));
        by_wealth.then_with(|| match (a, b) {
            (Takeable::Allocation(a), Takeable::Allocation(b)) => {
                preemption_key(state, *a).cmp(&preemption_key(state, *b))
            }
            (Takeable::Grant(_), Takeable::Allocation(_)) => std::cmp::Ordering::Less,
            (Takeable::Allocation(_), Takeable::Grant(_)) => std::cmp::Ordering::Greater,
            (Takeable::Grant(a), Takeable::Grant(b)) => b.cmp(a),
        })
    });
    shares
}

/// Lists what must leave so that one process fits, within the budget.
fn allowed(
    state: &RoundState,
    work: WorkIx,
    node: NodeIx,
    donors: &Donors,
    budget_stop: &mut Option<BudgetStop>,
) -> Option<Vec<Takeable>> {
    let mut budget = state.preemption_budget(node);
    let found = chosen(state, work, node, donors, &mut budget);
    if found.is_none() && budget.declined && budget_stop.is_none() {
        let all = chosen(
            state,
            work,
            node,
            donors,
            &mut PreemptionBudget::unlimited(),
        )?;
        let allocation = all.iter().filter_map(|share| match share {
            Takeable::Allocation(allocation) => Some(*allocation),
            Takeable::Grant(_) => None,
        });
        *budget_stop = state.budget_stop(node, &allocation.collect::<Vec<_>>());
    }
    found
}

/// Returns whether one process of the work fits in this space.
fn fits(state: &RoundState, work: WorkIx, space: &NodeSpace) -> bool {
    let quanta = state.work[work].process_quanta;
    if state.settings.count_what_fits {
        space.count_fitting(quanta, state.size(work)) > 0
    } else {
        space.quanta >= quanta
    }
}

/// Returns as many of the items, in this order, as it takes until one process fits.
fn first_enough(
    state: &RoundState,
    work: WorkIx,
    mut space: NodeSpace,
    items: Vec<Takeable>,
) -> Vec<Takeable> {
    let mut enough = Vec::new();
    for item in items {
        if fits(state, work, &space) {
            break;
        }
        give_back(state, &mut space, item);
        enough.push(item);
    }
    enough
}

/// Lists what must leave so that one process fits. Returns `None` if the process would not fit even
/// then.
fn chosen(
    state: &RoundState,
    work: WorkIx,
    node: NodeIx,
    donors: &Donors,
    budget: &mut PreemptionBudget,
) -> Option<Vec<Takeable>> {
    let counts_leaving = state.settings.count_leaving_room;
    let mut space = if counts_leaving {
        state.future_free(node)
    } else {
        let mut free = state.nodes[node].free.clone();
        free.quanta = unspent(state, node, donors);
        free
    };
    let start = space.clone();
    let mut collected = Vec::new();
    let mut left: BTreeMap<WorkIx, u64> = BTreeMap::new();
    for share in takeable(state, node, donors) {
        if fits(state, work, &space) {
            break;
        }
        let giver = owner(state, share)?;
        let has = left
            .entry(giver)
            .or_insert_with(|| state.work[giver].process_count());
        // A peer that lost all its processes would take the space back, and the cycle would never
        // end.
        let spared = donors.spare || is_peer(state, work, giver) && state.settings.spare_donors;
        if spared && *has <= state.snapshot.tunables.fragmentation_threshold {
            continue;
        }
        if let Takeable::Allocation(allocation) = share
            && !budget.allows(&state.allocations[allocation])
        {
            continue;
        }
        *has -= 1;
        give_back(state, &mut space, share);
        collected.push(share);
    }
    // A node where nothing has to leave counts only with `count_leaving_room`, even if the process
    // fits.
    if !fits(state, work, &space) || collected.is_empty() && !counts_leaving {
        return None;
    }
    // Allocations of exactly the right size come first, because one of them may be enough.
    let quanta = state.work[work].process_quanta;
    collected.sort_by_key(|share| quanta_of(state, *share) != quanta);
    Some(first_enough(state, work, start, collected))
}

fn unspent(state: &RoundState, node: NodeIx, donors: &Donors) -> u64 {
    let free = state.nodes[node].free.quanta;
    let spent = donors.spent.get(&node).copied();
    free.saturating_sub(spent.unwrap_or(0))
}

fn give_back(state: &RoundState, space: &mut crate::index::node_space::NodeSpace, share: Takeable) {
    match share {
        Takeable::Allocation(allocation) => {
            let it = &state.allocations[allocation];
            space.give(it.quanta, &it.size, &it.gpus);
        }
        Takeable::Grant(grant) => {
            let it = &state.granted[grant];
            space.give(it.quanta, it.size, &it.gpus);
        }
    }
}

/// Returns whether the grant is a whole node that the work may have.
fn is_whole(state: &RoundState, grant: usize, work: WorkIx) -> bool {
    let share = &state.granted[grant];
    let node_state = &state.nodes[share.node];
    state.policy(work) == Some(Policy::Reserve)
        && node_state.quanta == share.quanta
        && state
            .requested_size(work)
            .fits(&state.node_record(share.node).node.capacity)
        && state.is_permitted(work, share.node)
}

/// Returns true if the grant has the same size and its node is permitted for the work.
fn is_alike(state: &RoundState, grant: usize, work: WorkIx) -> bool {
    let share = &state.granted[grant];
    state.policy(work) != Some(Policy::Reserve)
        && share.size == state.size(work)
        && state.is_permitted(work, share.node)
}

/// Clears space on a node. Returns the number of processes that fit in it.
fn clear(
    state: &mut RoundState,
    work: WorkIx,
    node: NodeIx,
    shares: &[Takeable],
    donors: &mut Donors,
) -> u64 {
    let quanta = state.work[work].process_quanta;
    let mut space = unspent(state, node, donors);
    let mut handed = false;
    let detail = format!("split room is mended for {}", state.id(work));
    for share in shares {
        let lost = quanta_of(state, *share);
        space += lost;
        if let Some(giver) = owner(state, *share) {
            let user = state.work_record(giver).user;
            if let Some(wealth) = &mut donors.wealth[user] {
                *wealth = wealth.saturating_sub(lost);
            }
        }
        match *share {
            Takeable::Allocation(allocation) => {
                state.preempt(allocation, Some(work), detail.clone());
            }
            Takeable::Grant(grant) if lost == quanta && is_whole(state, grant, work) => {
                // A whole node becomes free with all its capacity. The cancelled grant may have
                // used only a part.
                state.cancel(grant);
                let whole = &state.node_record(node).node.capacity;
                state.grant(work, node, quanta, whole);
                handed = true;
            }
            Takeable::Grant(grant) if lost == quanta && is_alike(state, grant, work) => {
                state.transfer(grant, work);
                handed = true;
            }
            Takeable::Grant(grant) => state.cancel(grant),
        }
    }
    if state.settings.count_leaving_room {
        if !handed {
            state.reserve(work, node);
        }
        return 1;
    }
    let processes = (space / quanta).max(1);
    if !handed {
        // Space of cancelled grants is free at once. Space of leaving allocations is not.
        let free = unspent(state, node, donors);
        *donors.spent.entry(node).or_default() += free.min(processes * quanta);
    }
    processes
}
