//! Entitlements of FAIR_SHARE groups: holes are divided among classes, then users, then work
//!

mod entitlement_runs;
mod holdings_change;
mod settings;
mod user_entitlement;
mod user_entitlement_cache;
mod work_groups;

use std::{cell::LazyCell, cmp::Reverse, collections::BTreeMap};

use super::{HoleTables, apportion::Claims, deficit};
use crate::{
    ids::{ClassIx, PoolIx, UserIx, WorkIx},
    input::snapshot::Standing,
    state::{ProcessCounts, RoundState, hole_table::HoleTable},
};

pub(crate) use holdings_change::HoldingsChange;
use settings::{FairShareSettings, MAX_REPETITIONS};
use user_entitlement_cache::{ClassUsers, Slot, Slots, UserEntitlement};
pub(crate) use user_entitlement_cache::{DemandAndHoldings, UserEntitlementCache};

/// Computes the entitlements of a group of classes. The computation is repeated until no
/// entitlement exceeds a cap (see [`FairShareSettings`]). At the end, the granted holes are removed
/// from the tables.
pub(super) fn compute(
    state: &mut RoundState,
    user_entitlements: &mut UserEntitlementCache,
    tables: &mut HoleTables,
    classes: &[ClassIx],
) {
    let settings = FairShareSettings {
        steady: state.settings.steady_counts,
        division: state.settings.division(),
    };
    let mut group = begin_all_classes(state, user_entitlements, &settings, classes);
    for class_entitlements in &mut group {
        class_entitlements.sort_users(state);
    }
    let mut repetitions = 0;
    // Each repetition has lower limits of work than the one before.
    while compute_once(state, tables, &settings, &mut group) && repetitions < MAX_REPETITIONS {
        repetitions += 1;
    }
    for mut class_entitlements in group {
        for (_, user_entitlement) in class_entitlements.users.users_mut() {
            user_entitlement.finish(&settings, state);
        }
        user_entitlements.put_back(class_entitlements.class, class_entitlements.users);
    }
    set_weighted_shares(state, classes);
    for home in home_pools(state, classes) {
        subtract_grants(state, tables, classes, home);
    }
}

/// One user in one class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClassUser {
    class: ClassIx,
    user: UserIx,
}

/// One class of a group, during the computation.
struct ClassEntitlements {
    class: ClassIx,
    users: ClassUsers,
    /// Users in the order in which they are served.
    sorted_users: Vec<SortedUser>,
}

struct SortedUser {
    /// Position of the user among all users of the class, sorted by name.
    name_position: usize,
    standing: Standing,
}

impl ClassEntitlements {
    /// Sorts users by their total demand, then by name (C-9).
    fn sort_users(&mut self, state: &RoundState) {
        let standings = deficit::standings_of_users(state, self.class);
        let totals = self
            .users
            .by_name()
            .map(|user_entitlement| user_entitlement.total);
        let mut sorted: Vec<(u64, usize)> = totals.zip(0..).collect();
        sorted.sort_unstable();
        let sorted_users = sorted.into_iter().map(|(_, name_position)| SortedUser {
            name_position,
            standing: standings[name_position],
        });
        self.sorted_users = sorted_users.collect();
    }
}

/// Reads the demand of all users and begins the computation.
fn begin_all_classes(
    state: &RoundState,
    user_entitlements: &mut UserEntitlementCache,
    settings: &FairShareSettings,
    classes: &[ClassIx],
) -> Vec<ClassEntitlements> {
    let dirty = dirty_work(state, classes);
    let class_entitlements = |class: &ClassIx| ClassEntitlements {
        class: *class,
        users: user_entitlements.take(state, *class),
        sorted_users: Vec::new(),
    };
    let mut group: Vec<ClassEntitlements> = classes.iter().map(class_entitlements).collect();
    let mut users_and_dirty: Vec<(&mut UserEntitlement, &[(ClassUser, WorkIx)])> = Vec::new();
    for class_entitlements in &mut group {
        let by_name = state.classes[class_entitlements.class].users.values();
        let work = LazyCell::new(|| by_name.collect::<Vec<_>>());
        for ((user, position), user_entitlement) in class_entitlements.users.users_mut() {
            user_entitlement.read_all(state, || work[position], &mut user_entitlements.slots);
            let class = class_entitlements.class;
            let owner = ClassUser { class, user };
            let first = dirty.partition_point(|(other, _)| *other < owner);
            let count = dirty[first..].partition_point(|(other, _)| *other == owner);
            users_and_dirty.push((user_entitlement, &dirty[first..first + count]));
        }
    }
    for (work, slot) in begin_all_users(state, &user_entitlements.slots, settings, users_and_dirty)
    {
        user_entitlements.slots[work] = slot;
    }
    #[cfg(test)]
    for class_entitlements in &group {
        let work = state.classes[class_entitlements.class].users.values();
        for (user_entitlement, work) in class_entitlements.users.by_name().zip(work) {
            user_entitlement.assert_groups_are_current(state, work, &user_entitlements.slots);
        }
    }
    group
}

/// Returns the dirty work of these classes, sorted by class and user. Dirty work is work that
/// changed since the last round.
fn dirty_work(state: &RoundState, classes: &[ClassIx]) -> Vec<(ClassUser, WorkIx)> {
    // After a rebuild all users are read again.
    let dirty = state.work.dirty().filter(|_| !state.index.rebuilt);
    let owner = |work: WorkIx| {
        let class = state.work[work]
            .class
            .filter(|class| classes.contains(class))?;
        let user = state.work_record(work).user;
        Some((ClassUser { class, user }, work))
    };
    let mut dirty: Vec<(ClassUser, WorkIx)> = dirty.filter_map(owner).collect();
    dirty.sort_unstable_by_key(|(owner, _)| *owner);
    dirty
}

/// Begins the computation for each user. Returns the slots of dirty work.
fn begin_all_users(
    state: &RoundState,
    slots: &Slots,
    settings: &FairShareSettings,
    users_and_dirty: Vec<(&mut UserEntitlement, &[(ClassUser, WorkIx)])>,
) -> Vec<(WorkIx, Slot)> {
    let mut updated = Vec::new();
    for (user_entitlement, dirty) in users_and_dirty {
        updated.extend(user_entitlement.update(state, work_ids(dirty), slots));
        user_entitlement.begin(settings);
    }
    updated
}

/// Returns the work without its owners.
fn work_ids(dirty: &[(ClassUser, WorkIx)]) -> impl Iterator<Item = WorkIx> {
    dirty.iter().map(|(_, work)| *work)
}

/// Computes all entitlements once. Returns true if a limit changed, so that a repetition is needed.
fn compute_once(
    state: &mut RoundState,
    tables: &HoleTables,
    settings: &FairShareSettings,
    group: &mut [ClassEntitlements],
) -> bool {
    let demands: Vec<ProcessCounts> = group.iter().map(class_demand).collect();
    let class_grants = divide_among_classes(state, tables, group, &demands);
    let single_class_holes = holes_of_single_class(state, tables, group);
    // `None` grants the whole demand of a user.
    let mut grants_of_users: Vec<(&mut UserEntitlement, Option<ProcessCounts>)> = Vec::new();
    let mut claims = Claims::default();
    for ((class_entitlements, class_grant), demand) in
        group.iter_mut().zip(class_grants).zip(demands)
    {
        let holes = single_class_holes
            .clone()
            .unwrap_or_else(|| class_grant.as_holes());
        let users = &class_entitlements.users;
        let mut user_grants = if holes.equals_holes(demand.iter()) {
            // Each process of all users has a hole of its size.
            #[cfg(test)]
            {
                let grants = divide_among_users(&mut claims, settings, holes, class_entitlements);
                assert!(
                    users
                        .by_name()
                        .map(UserEntitlement::demand)
                        .eq(grants.iter().flatten())
                );
            }
            vec![None; class_entitlements.sorted_users.len()]
        } else {
            divide_among_users(&mut claims, settings, holes, class_entitlements)
        };
        let granted_amounts = || {
            let users_and_grants = users.by_name().zip(&user_grants);
            users_and_grants.map(|(user_entitlement, grant)| {
                grant.as_ref().unwrap_or_else(|| user_entitlement.demand())
            })
        };
        let class = &mut state.classes[class_entitlements.class];
        class.user_entitlements = granted_amounts().map(ProcessCounts::total_quanta).collect();
        class.entitlement = match &single_class_holes {
            Some(_) => sum_amounts(granted_amounts()),
            None => class_grant,
        };
        let users = class_entitlements.users.users_mut();
        grants_of_users.extend(users.map(|((_, position), user_entitlement)| {
            (user_entitlement, user_grants[position].take())
        }));
    }
    divide_among_work(settings, grants_of_users)
}

/// Divides the grants of users among their work. Returns true if a limit changed.
fn divide_among_work(
    settings: &FairShareSettings,
    grants_of_users: Vec<(&mut UserEntitlement, Option<ProcessCounts>)>,
) -> bool {
    let mut limit_changed = false;
    for (user_entitlement, grant) in grants_of_users {
        limit_changed |= user_entitlement.run_step(settings, grant);
    }
    limit_changed
}

/// Returns the classes whose home is this pool or one below, by descending weight, then name. They
/// compete for the space of these pools.
fn competing_classes(state: &RoundState, classes: &[ClassIx], home: PoolIx) -> Vec<ClassIx> {
    let within = |class: &ClassIx| {
        let pool = state.classes[*class].pool;
        pool.is_some_and(|pool| state.forest.is_within(pool, home))
    };
    let mut competing: Vec<ClassIx> = classes.iter().copied().filter(within).collect();
    competing.sort_by_key(|class| {
        let class_state = &state.classes[*class];
        (Reverse(class_state.class.weight), class_state.name)
    });
    competing
}

/// Returns the home pools of this group, each after all pools below it.
fn home_pools(state: &RoundState, classes: &[ClassIx]) -> Vec<PoolIx> {
    let mut home_pools: Vec<PoolIx> = classes
        .iter()
        .filter_map(|class| state.classes[*class].pool)
        .collect();
    home_pools.sort_by_key(|pool| state.forest.rank(*pool));
    home_pools.dedup();
    home_pools
}

/// Divides holes among classes, once for each home pool. A division covers the holes of the pool
/// and of all pools below, and the classes whose home is one of these pools. A class keeps only the
/// grant of the division for its own home pool.
fn divide_among_classes(
    state: &RoundState,
    tables: &HoleTables,
    group: &[ClassEntitlements],
    demands: &[ProcessCounts],
) -> Vec<ProcessCounts> {
    let classes: Vec<ClassIx> = group
        .iter()
        .map(|class_entitlements| class_entitlements.class)
        .collect();
    let mut grants: BTreeMap<ClassIx, ProcessCounts> = BTreeMap::new();
    for home in home_pools(state, &classes) {
        let holes = holes_within(state, tables, home);
        let competing = competing_classes(state, &classes, home);
        let mut claims = Claims::default();
        for class in &competing {
            claims.add_entity(
                state.classes[*class].class.weight,
                deficit::class_position(state, *class),
            );
            let position = classes.iter().position(|other| other == class);
            if let Some(position) = position {
                claims.add_all_demand(&demands[position]);
            }
        }
        claims.apportion(holes, state.settings.division());
        for (class, amounts) in competing.into_iter().zip(claims.grants()) {
            if state.classes[class].pool == Some(home) {
                grants.insert(class, amounts);
            }
        }
    }
    classes
        .iter()
        .map(|class| grants.remove(class).unwrap_or_default())
        .collect()
}

/// Returns the demand of all users of a class.
fn class_demand(class_entitlements: &ClassEntitlements) -> ProcessCounts {
    sum_amounts(
        class_entitlements
            .users
            .by_name()
            .map(UserEntitlement::demand),
    )
}

fn sum_amounts<'a>(amounts: impl Iterator<Item = &'a ProcessCounts>) -> ProcessCounts {
    let mut sum = ProcessCounts::default();
    amounts.for_each(|amounts| sum.merge(amounts));
    sum
}

/// Returns all holes of the home pool if the group has only one class, otherwise `None`. A division
/// among classes would prefer the holes of the largest processes. Users with smaller processes
/// could then not use them.
fn holes_of_single_class(
    state: &RoundState,
    tables: &HoleTables,
    group: &[ClassEntitlements],
) -> Option<HoleTable> {
    let [class_entitlements] = group else {
        return None;
    };
    let home = state.classes[class_entitlements.class].pool;
    let home = home.filter(|_| state.settings.holes_among_rivals)?;
    Some(holes_within(state, tables, home))
}

fn holes_within(state: &RoundState, tables: &HoleTables, home: PoolIx) -> HoleTable {
    let mut holes = HoleTable::default();
    for pool in state.forest.subtree(home) {
        holes.merge(tables.get(*pool));
    }
    holes
}

/// Computes the quanta of each class by weights alone. Pools are in ascending order, so the share
/// that the highest pool gives to a class is the one that remains.
fn set_weighted_shares(state: &mut RoundState, classes: &[ClassIx]) {
    for home in home_pools(state, classes) {
        // Nodes that take no new work have no quanta to share (C-12).
        let pools = state.forest.subtree(home).iter();
        let total: u64 = pools.map(|pool| state.index.open_quanta[*pool]).sum();
        let competing = competing_classes(state, classes, home);
        let weights: u64 = competing
            .iter()
            .map(|class| state.classes[*class].class.weight)
            .sum();
        for class in competing {
            let product = u128::from(total) * u128::from(state.classes[class].class.weight);
            let share = product / u128::from(weights.max(1));
            state.classes[class].weighted_share = u64::try_from(share).unwrap_or(u64::MAX);
        }
    }
}

/// Divides the holes of a class among its users. Results are ordered by the names of the users
///
fn divide_among_users(
    claims: &mut Claims,
    settings: &FairShareSettings,
    holes: HoleTable,
    class_entitlements: &ClassEntitlements,
) -> Vec<Option<ProcessCounts>> {
    claims.clear();
    let users = &class_entitlements.users;
    for sorted_user in &class_entitlements.sorted_users {
        claims.add_entity(1, sorted_user.standing);
        claims.add_all_demand(users.at_name_position(sorted_user.name_position).demand());
    }
    claims.apportion(holes, settings.division);
    let mut user_grants = vec![None; class_entitlements.sorted_users.len()];
    for (sorted_user, grant) in class_entitlements.sorted_users.iter().zip(claims.grants()) {
        user_grants[sorted_user.name_position] = Some(grant);
    }
    user_grants
}

/// Removes the grants of one home pool from the tables, so that later groups do not use them. The
/// grants of all classes are removed together, largest processes first. A small process then does
/// not break the hole that a large one is entitled to. Lower pools are used first.
fn subtract_grants(state: &RoundState, tables: &mut HoleTables, classes: &[ClassIx], home: PoolIx) {
    let mut granted = ProcessCounts::default();
    let at_home = |class: &&ClassIx| state.classes[**class].pool == Some(home);
    for class in classes.iter().filter(at_home) {
        granted.merge(&state.classes[*class].entitlement);
    }
    for (quanta, mut remaining) in granted.iter().rev() {
        for pool in state.forest.subtree(home) {
            remaining = tables.get_mut(*pool).fill_smallest_first(remaining, quanta);
        }
    }
}
