//! The shares of a round: how the capacity of the fleet adds up, from pools over classes and users
//! to each piece of work.
//!
//! Shares are computed from the state after all decisions. The sums that must hold are checked in
//! `output/share_sums.rs`.

mod idle_space_reasons;
mod pools;
mod user_totals;
mod user_work;

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{UserName, WorkId};

use crate::{
    ids::{AllocIx, PoolIx, WorkIx},
    input::snapshot::Policy,
    output::plan::{ClassShare, GroupQuanta, PriorityShare, Shares, Tally, UserShare, WorkShare},
    state::{ClassState, RoundState},
};

pub(crate) use pools::Pools;
use user_totals::ClassTotals;
pub(crate) use user_totals::UserTotals;
pub(crate) use user_work::UserWork;

/// Returns the work that left its class: the name of the class, the user and the work.
pub(crate) fn departed_work(state: &RoundState) -> Vec<(Arc<str>, UserName, WorkId)> {
    let departed = state.index.departed.iter().map(|departed| {
        let class = Arc::clone(&state.index.classes[departed.class].name);
        (class, departed.user.clone(), departed.work_id.clone())
    });
    departed.collect()
}

/// Returns the sums of the fleet, but with these classes, which [`update_sums`] returned.
pub(crate) fn changed_sums(sums: &Shares, classes: BTreeMap<String, ClassShare>) -> Shares {
    Shares {
        classes,
        pools: sums.pools.clone(),
        priorities: sums.priorities.clone(),
        ..*sums
    }
}

/// Computes the sums of the fleet, its classes and its users, without previous sums.
pub(crate) fn compute_sums(
    state: &RoundState,
    pools: &mut Pools,
    user_totals: &mut UserTotals,
) -> Shares {
    let mut sums = Shares::default();
    update_sums(state, pools, user_totals, &mut sums);
    sums
}

/// Updates all sums. Returns all classes, each with only the users that changed.
pub(crate) fn update_sums(
    state: &RoundState,
    pools: &mut Pools,
    user_totals: &mut UserTotals,
    sums: &mut Shares,
) -> BTreeMap<String, ClassShare> {
    pools.update_shares(state, sums);
    let mut rebuilt = BTreeMap::new();
    for (class_index, class_state) in state.classes.enumerate() {
        if !sums.classes.contains_key(class_state.name) {
            let class = empty_class_share(state, class_state);
            sums.classes.insert(class_state.name.to_owned(), class);
        }
        let Some(class) = sums.classes.get_mut(class_state.name) else {
            continue;
        };
        let users = update_users(class_state, user_totals.class_mut(class_index), class);
        rebuilt.insert(class_state.name.to_owned(), class.with_users(users));
    }
    sums.unclassed = unclassed_tally(state);
    sums.priorities = priority_shares(state, sums);
    let held = sums.classes.values().map(|class| class.tally.held);
    sums.held = held.sum::<u64>() + sums.unclassed.held;
    rebuilt
}

/// Returns the share of a class without users. The amounts are zero.
fn empty_class_share(state: &RoundState, class_state: &ClassState) -> ClassShare {
    ClassShare {
        tree: tree_name(state, class_state.pool),
        policy: class_state.class.policy,
        priority: class_state.class.priority,
        weight: class_state.class.weight,
        assigned: 0,
        unused: 0,
        tally: Tally::default(),
        users: BTreeMap::new(),
    }
}

/// Updates the users of a class. Returns the users with changed sums or with reported work.
fn update_users(
    class_state: &ClassState,
    class_totals: &mut ClassTotals,
    class: &mut ClassShare,
) -> BTreeMap<UserName, UserShare> {
    if std::mem::take(&mut class_totals.users_changed) {
        class_totals.by_name = class_state.users.indices().collect();
        class
            .users
            .retain(|name, _| class_state.users.contains_key(name));
        for name in class_state.users.keys() {
            class.users.entry(name.clone()).or_default();
        }
    }
    let is_fair_share = class_state.class.policy == Policy::FairShare;
    let mut rebuilt = Vec::with_capacity(class.users.len());
    let mut assigned_to_users = 0;
    class.tally = Tally::default();
    for (position, (name, user)) in class.users.iter_mut().enumerate() {
        let sum = &mut class_totals.users[class_totals.by_name[position]];
        let entitled_quanta = class_state
            .user_entitlements
            .get(position)
            .copied()
            .unwrap_or(0);
        let assigned = if is_fair_share {
            entitled_quanta
        } else {
            sum.tally.divided
        };
        let unused = assigned.saturating_sub(sum.tally.divided);
        class.tally.add(&sum.tally);
        assigned_to_users += assigned;
        let new_sums = (assigned, unused, sum.tally);
        if sum.reported_position.take().is_some() || user.sums() != new_sums {
            (user.assigned, user.unused, user.tally) = new_sums;
            rebuilt.push((name.clone(), user.clone()));
        }
    }
    class.assigned = if is_fair_share {
        class_state.entitlement.total_quanta()
    } else {
        assigned_to_users
    };
    class.unused = class.assigned.saturating_sub(assigned_to_users);
    rebuilt.into_iter().collect()
}

fn tree_name(state: &RoundState, pool: Option<PoolIx>) -> Option<String> {
    let root = state.forest.root(pool?);
    Some(state.forest.name(root).to_owned())
}

/// Returns the share of one piece of work. The amount `due` is what users see: the entitlement
/// reported for this round. It contains processes on closed nodes (`resting`) and lent quanta. The
/// rest is `divided`: the result of the division among work.
pub(crate) fn work_share(state: &RoundState, work: WorkIx) -> WorkShare {
    let work_state = &state.work[work];
    let policy = state.policy(work);
    // The quanta of a reservation are those of its node, so they are known only once it has a node.
    let node_quanta = || {
        let chosen_node = state.whole_nodes_for(work).first();
        let chosen_quanta = chosen_node.map(|node| state.nodes[*node].quanta);
        chosen_quanta.or_else(|| {
            Some(state.allocations[state.work_record(work).allocations.first()?].quanta)
        })
    };
    let is_whole_node = policy == Some(Policy::Reserve);
    let quanta = is_whole_node
        .then(node_quanta)
        .flatten()
        .unwrap_or(work_state.process_quanta);
    let counted = state.reported_entitlement(work);
    let mut tally = held_tally(state, work);
    tally.granted = work_state.granted_quanta;
    tally.held += work_state.granted_quanta;
    tally.due = counted * quanta;
    if policy == Some(Policy::FairShare) {
        let resting = if state.settings.rest_on_closed {
            work_state.resting
        } else {
            0
        };
        tally.resting = resting.min(work_state.cap.now) * quanta;
        tally.lent = (counted - work_state.entitlement) * quanta;
    }
    tally.divided = tally.due - tally.resting - tally.lent;
    WorkShare {
        kind: state.work_record(work).kind,
        quanta,
        wanted: work_state.cap.now,
        cap: state.cap_parts(work),
        counted,
        current: work_state.process_count(),
        leaving: work_state.leaving,
        tally,
    }
}

/// Returns the quanta that the work holds, without grants of this round.
fn held_tally(state: &RoundState, work: WorkIx) -> Tally {
    let (work, work_record) = (&state.work[work], state.work_record(work));
    if work.leaving != work_record.usage.leaving {
        // This round vacated a process, so the index is out of date.
        return sum_allocations(state, work_record.allocations.iter());
    }
    Tally {
        held: work_record.usage.quanta,
        staying: work_record.usage.quanta - work_record.usage.leaving_quanta,
        vacating: work_record.usage.leaving_quanta,
        closed: work_record.usage.closed_quanta,
        ..Tally::default()
    }
}

fn sum_allocations(state: &RoundState, allocations: impl Iterator<Item = AllocIx>) -> Tally {
    let mut tally = Tally::default();
    for allocation in allocations {
        let record = &state.allocations[allocation];
        tally.held += record.quanta;
        if state.leaving[allocation] {
            tally.vacating += record.quanta;
        } else {
            tally.staying += record.quanta;
        }
        let node = record.node.map(|node| &state.nodes[node]);
        if node.is_none_or(|node| !node.is_schedulable()) {
            tally.closed += record.quanta;
        }
    }
    tally
}

/// Sums the allocations of work without a class.
fn unclassed_tally(state: &RoundState) -> Tally {
    sum_allocations(state, state.index.unclassed.iter().copied())
}

/// Returns one group for each tree, priority and policy, in the order in which they are served.
fn priority_shares(state: &RoundState, shares: &Shares) -> Vec<PriorityShare> {
    let mut groups: BTreeMap<_, Vec<&String>> = BTreeMap::new();
    for (name, class) in &shares.classes {
        let key = (&class.tree, class.priority, class.policy);
        groups.entry(key).or_default().push(name);
    }
    let quanta_by_class: BTreeMap<&str, GroupQuanta> = state
        .class_group_quanta
        .iter()
        .map(|(class, quanta)| (state.classes[*class].name, *quanta))
        .collect();
    let group = |((tree, priority, policy), classes): ((&Option<String>, _, _), Vec<&String>)| {
        let tallies = classes.iter().map(|name| &shares.classes[*name].tally);
        PriorityShare {
            tree: tree.clone(),
            priority,
            policy,
            group_quanta: classes
                .iter()
                .find_map(|name| quanta_by_class.get(name.as_str()).copied()),
            tally: Tally::sum(tallies),
            classes: classes.into_iter().cloned().collect(),
        }
    };
    groups.into_iter().map(group).collect()
}

#[cfg(test)]
mod tests;
