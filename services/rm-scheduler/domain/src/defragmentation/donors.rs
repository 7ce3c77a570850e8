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
enum DonorItem {
    Allocation(AllocIx),
    Grant(usize),
}

/// The donors of one attempt, and the wealth of their users: what they hold through donors
///
struct Donors {
    work: FxHashSet<WorkIx>,
    /// Quanta by user. `None` for users without donors.
    wealth: TypedVec<UserIx, Option<u64>>,
    /// True if donors keep `fragmentation_threshold` processes. Otherwise work of lower priority
    /// may lose all its processes (W-21).
    keeps_threshold: bool,
    /// Free quanta that earlier processes of the needy work will use, by node (C-6).
    used_quanta: BTreeMap<NodeIx, u64>,
}

/// Frees space for up to `processes` processes of a piece of work. Returns the number of processes
/// for which it freed space.
pub(super) fn free_space_from_donors(
    state: &mut RoundState,
    spacious: &SpaciousNodes,
    candidates: &mut DonorCandidates,
    work: WorkIx,
    processes: u64,
) -> u64 {
    let (preferred, last_resort) = candidates.donors_for(state, work);
    let mut donors = collect_donors(state, preferred, state.settings.spare_donors);
    let mut freed = free_on_nodes(state, spacious, work, processes, &mut donors);
    // The first attempt also spared donors of lower priority, so a second one may free more.
    let is_lower = |donor: &WorkIx| !is_not_above(state, work, *donor);
    let is_spared = state.settings.spare_donors && preferred.iter().any(is_lower);
    if freed < processes && (is_spared || !last_resort.is_empty()) {
        let all = [preferred, last_resort].concat();
        let used_quanta = donors.used_quanta;
        donors = Donors {
            used_quanta,
            ..collect_donors(state, &all, false)
        };
        freed += free_on_nodes(state, spacious, work, processes - freed, &mut donors);
    }
    freed
}

/// Returns whether the work has enough processes to give some up, and may do so now.
pub(super) fn is_preferred_donor(state: &RoundState, donor: WorkIx) -> bool {
    let work = &state.work[donor];
    let threshold = state.snapshot.tunables.fragmentation_threshold;
    let is_running = |allocation: AllocIx| state.allocations[allocation].running;
    // A grant of this round has not started, so giving it up costs nothing.
    let has_new_grant = state.settings.spare_donors && work.placed > 0;
    work.process_count() > 0
        && work.process_count() >= threshold
        && !work.is_needy
        && (has_new_grant || state.work_record(donor).allocations.iter().any(is_running))
        && !gave_recently(state, donor)
}

/// Returns whether the needy work has the priority of the donor or a lower one. Lower numbers are
/// served first.
fn is_not_above(state: &RoundState, needy: WorkIx, donor: WorkIx) -> bool {
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
    let last = state.snapshot.carried.last_loss.get(state.id(donor));
    let is_recent = last.is_some_and(|last| state.snapshot.round.saturating_sub(*last) <= rounds);
    if is_recent {
        state.record_time_dependence();
    }
    is_recent
}

fn collect_donors(state: &RoundState, donor_work: &[WorkIx], keeps_threshold: bool) -> Donors {
    let mut wealth = TypedVec::filled(None, state.index.user_count());
    for work in donor_work.iter().copied() {
        let work_state = &state.work[work];
        let user_wealth = wealth[state.work_record(work).user].get_or_insert(0);
        *user_wealth += work_state.process_count() * work_state.process_quanta;
    }
    Donors {
        work: donor_work.iter().copied().collect(),
        wealth,
        keeps_threshold,
        used_quanta: BTreeMap::new(),
    }
}

/// Frees space node by node, by descending wealth of the donors there. Wealth only falls, so a
/// popped node with an outdated rank is pushed back. A node without enough donors is dropped,
/// because later preemptions only leave fewer of them.
fn free_on_nodes(
    state: &mut RoundState,
    spacious: &SpaciousNodes,
    work: WorkIx,
    processes: u64,
    donors: &mut Donors,
) -> u64 {
    let rank = |state: &RoundState, node: NodeIx, donors: &Donors| {
        let memory = state.node_record(node).node.capacity.memory_bytes;
        let wealth = wealth_on(state, node, donors);
        (wealth, memory, Reverse(node))
    };
    let nodes = eligible_nodes(state, spacious, work, donors);
    let nodes = nodes.into_iter().map(|node| rank(state, node, donors));
    let mut nodes: BinaryHeap<_> = nodes.collect();
    let (mut freed, mut budget_stop) = (0, None);
    while freed < processes
        && let Some(best_rank) = nodes.pop()
    {
        let (.., Reverse(node)) = best_rank;
        let current_rank = rank(state, node, donors);
        if current_rank != best_rank {
            nodes.push(current_rank);
        } else if let Some(items) = items_within_budget(state, work, node, donors, &mut budget_stop)
        {
            freed += clear_node(state, work, node, &items, donors);
            nodes.push(rank(state, node, donors));
        }
    }
    if freed < processes {
        state.record_budget_stop(work, budget_stop);
    }
    freed
}

/// Returns the nodes that could be cleared for the work.
fn eligible_nodes(
    state: &RoundState,
    spacious: &SpaciousNodes,
    work: WorkIx,
    donors: &Donors,
) -> Vec<NodeIx> {
    let quanta = state.work[work].process_quanta;
    let needs_whole_node = state.policy(work) == Some(Policy::Reserve);
    let no_donors = donors.work.is_empty();
    let is_donor_allocation = |allocation: AllocIx| {
        let owner = state.allocations[allocation].work;
        let user = owner.map(|work| state.work_record(work).user);
        user.is_some_and(|user| donors.wealth[user].is_some())
    };
    let is_donor_grant = |grant: &usize| donors.work.contains(&state.granted[*grant].work);
    let has_donors = |node: NodeIx| {
        let allocations = &state.node_record(node).allocations;
        let grants = &state.nodes[node].granted;
        !no_donors
            && (allocations.iter().any(is_donor_allocation) || grants.iter().any(is_donor_grant))
    };
    // Without donors only future space helps.
    let mut nodes: Vec<NodeIx> = if no_donors {
        spacious.nodes(state)
    } else {
        state.nodes.indices().collect()
    };
    nodes.retain(|node| has_donors(*node) || state.future_quanta(*node) >= quanta);
    nodes
        .into_iter()
        .filter(|node| {
            let node_state = &state.nodes[*node];
            let fits = if needs_whole_node {
                node_state.quanta == quanta && is_held_by_donors_alone(state, *node, donors)
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

fn is_held_by_donors_alone(state: &RoundState, node: NodeIx, donors: &Donors) -> bool {
    let node_state = &state.nodes[node];
    let allocation_owners = state
        .node_record(node)
        .allocations
        .iter()
        .map(|allocation| state.allocations[allocation].work);
    let grant_owners = node_state
        .granted
        .iter()
        .map(|grant| Some(state.granted[*grant].work));
    allocation_owners
        .chain(grant_owners)
        .all(|owner| owner.is_some_and(|owner| donors.work.contains(&owner)))
}

/// Returns the greatest wealth of any user with an allocation or grant on the node.
fn wealth_on(state: &RoundState, node: NodeIx, donors: &Donors) -> u64 {
    let allocations = state.node_record(node).allocations.iter();
    let allocation_users = allocations.map(|allocation| state.allocations[allocation].user);
    let grant_users = state.nodes[node].granted.iter().map(|grant| {
        let owner = state.granted[*grant].work;
        state.work_record(owner).user
    });
    allocation_users
        .chain(grant_users)
        .filter_map(|user| donors.wealth[user])
        .max()
        .unwrap_or(0)
}

fn owner_of(state: &RoundState, item: DonorItem) -> Option<WorkIx> {
    match item {
        DonorItem::Allocation(allocation) => state.allocations[allocation].work,
        DonorItem::Grant(grant) => Some(state.granted[grant].work),
    }
}

fn quanta_of(state: &RoundState, item: DonorItem) -> u64 {
    match item {
        DonorItem::Allocation(allocation) => state.allocations[allocation].quanta,
        DonorItem::Grant(grant) => state.granted[grant].quanta,
    }
}

/// Lists what donors could give up on a node: what belongs to the wealthiest user
/// first, then grants, then the cheapest allocation.
fn donor_items(state: &RoundState, node: NodeIx, donors: &Donors) -> Vec<DonorItem> {
    let node_state = &state.nodes[node];
    let allocations = state
        .node_record(node)
        .allocations
        .iter()
        .filter(|allocation| !state.leaving[*allocation] && !state.allocations[*allocation].fixed);
    let mut items: Vec<DonorItem> = allocations
        .map(DonorItem::Allocation)
        .chain(
            node_state
                .granted
                .iter()
                .map(|grant| DonorItem::Grant(*grant)),
        )
        .filter(|item| owner_of(state, *item).is_some_and(|owner| donors.work.contains(&owner)))
        .collect();
    let wealth = |item: DonorItem| {
        let user = owner_of(state, item).map(|owner| state.work_record(owner).user);
        user.and_then(|user| donors.wealth[user])
    };
    items.sort_by(|a, b| {
        let by_wealth = wealth(*b).cmp(&wealth(*a));
        by_wealth.then_with(|| match (a, b) {
            (DonorItem::Allocation(a), DonorItem::Allocation(b)) => {
                preemption_key(state, *a).cmp(&preemption_key(state, *b))
            }
            (DonorItem::Grant(_), DonorItem::Allocation(_)) => std::cmp::Ordering::Less,
            (DonorItem::Allocation(_), DonorItem::Grant(_)) => std::cmp::Ordering::Greater,
            (DonorItem::Grant(a), DonorItem::Grant(b)) => b.cmp(a),
        })
    });
    items
}

/// Lists what must leave so that one process fits, within the preemption budget. If only the budget
/// forbids it, records that in `budget_stop`.
fn items_within_budget(
    state: &RoundState,
    work: WorkIx,
    node: NodeIx,
    donors: &Donors,
    budget_stop: &mut Option<BudgetStop>,
) -> Option<Vec<DonorItem>> {
    let mut budget = state.preemption_budget(node);
    let found = choose_items(state, work, node, donors, &mut budget);
    if found.is_none() && budget.declined && budget_stop.is_none() {
        let all = choose_items(
            state,
            work,
            node,
            donors,
            &mut PreemptionBudget::unlimited(),
        )?;
        let allocations = all.iter().filter_map(|item| match item {
            DonorItem::Allocation(allocation) => Some(*allocation),
            DonorItem::Grant(_) => None,
        });
        *budget_stop = state.budget_stop(node, &allocations.collect::<Vec<_>>());
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

/// Returns the first of these items, as many as are needed until one process fits.
fn shortest_sufficient(
    state: &RoundState,
    work: WorkIx,
    mut space: NodeSpace,
    items: Vec<DonorItem>,
) -> Vec<DonorItem> {
    let mut sufficient = Vec::new();
    for item in items {
        if fits(state, work, &space) {
            break;
        }
        add_to_space(state, &mut space, item);
        sufficient.push(item);
    }
    sufficient
}

/// Lists what must leave so that one process fits. Returns `None` if the process would not fit even
/// then.
fn choose_items(
    state: &RoundState,
    work: WorkIx,
    node: NodeIx,
    donors: &Donors,
    budget: &mut PreemptionBudget,
) -> Option<Vec<DonorItem>> {
    let counts_leaving = state.settings.count_leaving_room;
    let mut space = if counts_leaving {
        state.future_free(node)
    } else {
        let mut free = state.nodes[node].free.clone();
        free.quanta = unused_quanta(state, node, donors);
        free
    };
    let initial_space = space.clone();
    let mut chosen = Vec::new();
    let mut remaining: BTreeMap<WorkIx, u64> = BTreeMap::new();
    for item in donor_items(state, node, donors) {
        if fits(state, work, &space) {
            break;
        }
        let donor = owner_of(state, item)?;
        let process_count = remaining
            .entry(donor)
            .or_insert_with(|| state.work[donor].process_count());
        // A peer that lost all its processes would take the space back, and the cycle would never
        // end.
        let is_spared = donors.keeps_threshold
            || is_not_above(state, work, donor) && state.settings.spare_donors;
        if is_spared && *process_count <= state.snapshot.tunables.fragmentation_threshold {
            continue;
        }
        if let DonorItem::Allocation(allocation) = item
            && !budget.allows(&state.allocations[allocation])
        {
            continue;
        }
        *process_count -= 1;
        add_to_space(state, &mut space, item);
        chosen.push(item);
    }
    // If the process fits although nothing leaves, the node is accepted only with
    // `count_leaving_room`.
    if !fits(state, work, &space) || chosen.is_empty() && !counts_leaving {
        return None;
    }
    // Allocations of exactly the right size come first, because one of them may be enough.
    let quanta = state.work[work].process_quanta;
    chosen.sort_by_key(|item| quanta_of(state, *item) != quanta);
    Some(shortest_sufficient(state, work, initial_space, chosen))
}

fn unused_quanta(state: &RoundState, node: NodeIx, donors: &Donors) -> u64 {
    let free = state.nodes[node].free.quanta;
    let used_quanta = donors.used_quanta.get(&node).copied();
    free.saturating_sub(used_quanta.unwrap_or(0))
}

fn add_to_space(state: &RoundState, space: &mut NodeSpace, item: DonorItem) {
    match item {
        DonorItem::Allocation(allocation) => {
            let record = &state.allocations[allocation];
            space.give(record.quanta, &record.size, &record.gpus);
        }
        DonorItem::Grant(grant) => {
            let record = &state.granted[grant];
            space.give(record.quanta, record.size, &record.gpus);
        }
    }
}

/// Returns whether the grant is a whole node that the work may have.
fn is_usable_whole_node(state: &RoundState, grant: usize, work: WorkIx) -> bool {
    let record = &state.granted[grant];
    let node_state = &state.nodes[record.node];
    state.policy(work) == Some(Policy::Reserve)
        && node_state.quanta == record.quanta
        && state
            .requested_size(work)
            .fits(&state.node_record(record.node).node.capacity)
        && state.is_permitted(work, record.node)
}

/// Returns true if the grant has the same size and its node is permitted for the work.
fn is_transferable(state: &RoundState, grant: usize, work: WorkIx) -> bool {
    let record = &state.granted[grant];
    state.policy(work) != Some(Policy::Reserve)
        && record.size == state.size(work)
        && state.is_permitted(work, record.node)
}

/// Clears space on a node. Returns the number of processes that fit in it.
fn clear_node(
    state: &mut RoundState,
    work: WorkIx,
    node: NodeIx,
    items: &[DonorItem],
    donors: &mut Donors,
) -> u64 {
    let quanta = state.work[work].process_quanta;
    let mut space = unused_quanta(state, node, donors);
    let mut transferred = false;
    let detail = format!("split room is mended for {}", state.id(work));
    for item in items {
        let freed_quanta = quanta_of(state, *item);
        space += freed_quanta;
        if let Some(donor) = owner_of(state, *item) {
            let user = state.work_record(donor).user;
            if let Some(wealth) = &mut donors.wealth[user] {
                *wealth = wealth.saturating_sub(freed_quanta);
            }
        }
        match *item {
            DonorItem::Allocation(allocation) => {
                state.preempt(allocation, Some(work), detail.clone());
            }
            DonorItem::Grant(grant)
                if freed_quanta == quanta && is_usable_whole_node(state, grant, work) =>
            {
                // A whole node becomes free with all its capacity. The cancelled grant may have
                // used only a part.
                state.cancel(grant);
                let capacity = &state.node_record(node).node.capacity;
                state.grant(work, node, quanta, capacity);
                transferred = true;
            }
            DonorItem::Grant(grant)
                if freed_quanta == quanta && is_transferable(state, grant, work) =>
            {
                state.transfer(grant, work);
                transferred = true;
            }
            DonorItem::Grant(grant) => state.cancel(grant),
        }
    }
    if state.settings.count_leaving_room {
        if !transferred {
            state.reserve(work, node);
        }
        return 1;
    }
    let processes = (space / quanta).max(1);
    if !transferred {
        // Space of cancelled grants is free at once. Space of leaving allocations is not.
        let free = unused_quanta(state, node, donors);
        *donors.used_quanta.entry(node).or_default() += free.min(processes * quanta);
    }
    processes
}
