//! FAIR_SHARE groups: holes are divided among classes, then users, then work.

mod count_pass;
mod count_runs;
mod user_count;
mod user_counts;
mod work_groups;

use std::{cell::LazyCell, cmp::Reverse, collections::BTreeMap};

use super::{HoleTables, apportion::Claims, deficit};
use crate::{
    ids::{ClassIx, PoolIx, UserIx, WorkIx},
    input::snapshot::Standing,
    state::{Amounts, RoundState, hole_table::HoleTable},
};

use count_pass::{CountPass, RECOUNTS};
use user_counts::{ClassUsers, Slot, Slots, UserCount};
pub(crate) use user_counts::{HoldingsChange, Quanta, UserCounts};

pub(super) fn count(
    state: &mut RoundState,
    user_counts: &mut UserCounts,
    tables: &mut HoleTables,
    classes: &[ClassIx],
) {
    let pass = CountPass {
        steady: state.settings.steady_counts,
        division: state.settings.division(),
    };
    let mut rivals = begin_count(state, user_counts, &pass, classes);
    for class_count in &mut rivals {
        class_count.sort_users(state);
    }
    let mut recounts = 0;
    while count_under(state, tables, &pass, &mut rivals) && recounts < RECOUNTS {
        recounts += 1;
    }
    for mut class_count in rivals {
        for (_, user_count) in class_count.users.each_mut() {
            user_count.end(&pass, state);
        }
        user_counts.put_back(class_count.class, class_count.users);
    }
    pure_shares(state, classes);
    for home in homes(state, classes) {
        subtract(state, tables, classes, home);
    }
}

/// User of a class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClassUser {
    class: ClassIx,
    user: UserIx,
}

/// One class of a group.
struct ClassCount {
    class: ClassIx,
    users: ClassUsers,
    /// Users in the order in which they are served: position by name, and account.
    sorted_users: Vec<(usize, Standing)>,
}

impl ClassCount {
    /// Sorts users by their total demand, then by name (C-9).
    fn sort_users(&mut self, state: &RoundState) {
        let standings = deficit::for_users(state, self.class);
        let totals = self.users.by_name().map(|user_count| user_count.total);
        let mut sorted: Vec<(u64, usize)> = totals.zip(0..).collect();
        sorted.sort_unstable();
        let line = sorted.into_iter().map(|(_, user)| (user, standings[user]));
        self.sorted_users = line.collect();
    }
}

/// Reads the demand of all users and begins a count.
fn begin_count(
    state: &RoundState,
    user_counts: &mut UserCounts,
    pass: &CountPass,
    classes: &[ClassIx],
) -> Vec<ClassCount> {
    let dirty = dirty_work(state, classes);
    let class_count = |class: &ClassIx| ClassCount {
        class: *class,
        users: user_counts.take(state, *class),
        sorted_users: Vec::new(),
    };
    let mut rivals: Vec<ClassCount> = classes.iter().map(class_count).collect();
    let mut begin: Vec<(&mut UserCount, &[(ClassUser, WorkIx)])> = Vec::new();
    for class_count in &mut rivals {
        let by_name = state.classes[class_count.class].users.values();
        let work = LazyCell::new(|| by_name.collect::<Vec<_>>());
        for ((user, position), user_count) in class_count.users.each_mut() {
            user_count.read_all(state, || work[position], &mut user_counts.slots);
            let class = class_count.class;
            let owner = ClassUser { class, user };
            let from = dirty.partition_point(|(other, _)| *other < owner);
            let own = dirty[from..].partition_point(|(other, _)| *other == owner);
            begin.push((user_count, &dirty[from..from + own]));
        }
    }
    for (work, slot) in begin_all(state, &user_counts.slots, pass, begin) {
        user_counts.slots[work] = slot;
    }
    #[cfg(test)]
    for class_count in &rivals {
        let work = state.classes[class_count.class].users.values();
        for (user_count, work) in class_count.users.by_name().zip(work) {
            user_count.assert_known(state, work, &user_counts.slots);
        }
    }
    rivals
}

/// Returns the dirty work of these classes, sorted by class and user.
fn dirty_work(state: &RoundState, classes: &[ClassIx]) -> Vec<(ClassUser, WorkIx)> {
    // After a rebuild all users are read again.
    let some = state.work.dirty().filter(|_| !state.index.rebuilt);
    let owner = |work: WorkIx| {
        let class = state.work[work]
            .class
            .filter(|class| classes.contains(class))?;
        let user = state.work_record(work).user;
        Some((ClassUser { class, user }, work))
    };
    let mut dirty: Vec<(ClassUser, WorkIx)> = some.filter_map(owner).collect();
    dirty.sort_unstable_by_key(|(owner, _)| *owner);
    dirty
}

/// Begins the count of each user. Returns the slots of dirty work.
fn begin_all(
    state: &RoundState,
    slots: &Slots,
    pass: &CountPass,
    user_counts: Vec<(&mut UserCount, &[(ClassUser, WorkIx)])>,
) -> Vec<(WorkIx, Slot)> {
    let mut moved = Vec::new();
    for (user_count, dirty) in user_counts {
        moved.extend(user_count.update(state, numbers(dirty), slots));
        user_count.begin(pass);
    }
    moved
}

fn numbers(dirty: &[(ClassUser, WorkIx)]) -> impl Iterator<Item = WorkIx> {
    dirty.iter().map(|(_, work)| *work)
}

/// Counts once. Returns true if a limit changed, so that another count is needed.
fn count_under(
    state: &mut RoundState,
    tables: &HoleTables,
    pass: &CountPass,
    rivals: &mut [ClassCount],
) -> bool {
    let wants: Vec<Amounts> = rivals.iter().map(all).collect();
    let given = class_level(state, tables, rivals, &wants);
    let whole = undivided(state, tables, rivals);
    let mut steps: Vec<(&mut UserCount, Option<Amounts>)> = Vec::new();
    let mut claims = Claims::default();
    for ((class_count, given), wants) in rivals.iter_mut().zip(given).zip(wants) {
        let holes = whole.clone().unwrap_or_else(|| given.as_holes());
        let users = &class_count.users;
        let mut of_users = if holes.equals_holes(wants.iter()) {
            // Each process of all users has a hole of its size.
            #[cfg(test)]
            {
                let given = user_level(&mut claims, pass, holes, class_count);
                assert!(
                    users
                        .by_name()
                        .map(UserCount::wants)
                        .eq(given.iter().flatten())
                );
            }
            vec![None; class_count.sorted_users.len()]
        } else {
            user_level(&mut claims, pass, holes, class_count)
        };
        let each = || {
            let each = users.by_name().zip(&of_users);
            each.map(|(user_count, given)| given.as_ref().unwrap_or_else(|| user_count.wants()))
        };
        let class = &mut state.classes[class_count.class];
        class.user_entitlements = each().map(Amounts::total_quanta).collect();
        class.entitlement = match &whole {
            Some(_) => sum(each()),
            None => given,
        };
        let each = class_count.users.each_mut();
        steps.extend(
            each.map(|((_, position), user_count)| (user_count, of_users[position].take())),
        );
    }
    take_steps(pass, steps)
}

/// Divides the grants of users among their work. Returns true if a limit changed.
fn take_steps(pass: &CountPass, steps: Vec<(&mut UserCount, Option<Amounts>)>) -> bool {
    steps.into_iter().fold(false, |moved, (user_count, given)| {
        user_count.step(pass, given) | moved
    })
}

/// Returns the classes whose home is this pool or one below, by descending weight, then name.
fn rival_classes(state: &RoundState, classes: &[ClassIx], home: PoolIx) -> Vec<ClassIx> {
    let within = |class: &ClassIx| {
        let pool = state.classes[*class].pool;
        pool.is_some_and(|pool| state.forest.is_within(pool, home))
    };
    let mut rivals: Vec<ClassIx> = classes.iter().copied().filter(within).collect();
    rivals.sort_by_key(|class| {
        let class_state = &state.classes[*class];
        (Reverse(class_state.class.weight), class_state.name)
    });
    rivals
}

/// Returns the home pools of this group, each after all pools below it.
fn homes(state: &RoundState, classes: &[ClassIx]) -> Vec<PoolIx> {
    let mut homes: Vec<PoolIx> = classes
        .iter()
        .filter_map(|class| state.classes[*class].pool)
        .collect();
    homes.sort_by_key(|pool| state.forest.rank(*pool));
    homes.dedup();
    homes
}

/// Divides holes among classes. At each home pool, its holes and those below go to the classes
/// whose home is there or below. A class keeps the grant of its own home pool.
fn class_level(
    state: &RoundState,
    tables: &HoleTables,
    pass: &[ClassCount],
    wants: &[Amounts],
) -> Vec<Amounts> {
    let classes: Vec<ClassIx> = pass.iter().map(|class_count| class_count.class).collect();
    let mut given: BTreeMap<ClassIx, Amounts> = BTreeMap::new();
    for home in homes(state, &classes) {
        let holes = holes_within(state, tables, home);
        let rivals = rival_classes(state, &classes, home);
        let mut claims = Claims::default();
        for class in &rivals {
            claims.add_entity(
                state.classes[*class].class.weight,
                deficit::for_class(state, *class),
            );
            let own = classes.iter().position(|it| it == class);
            if let Some(own) = own {
                claims.add_all_demand(&wants[own]);
            }
        }
        claims.apportion(holes, state.settings.division());
        for (class, amounts) in rivals.into_iter().zip(claims.given()) {
            if state.classes[class].pool == Some(home) {
                given.insert(class, amounts);
            }
        }
    }
    classes
        .iter()
        .map(|class| given.remove(class).unwrap_or_default())
        .collect()
}

/// Returns the demand of all users of a class.
fn all(class_count: &ClassCount) -> Amounts {
    sum(class_count.users.by_name().map(UserCount::wants))
}

fn sum<'a>(amounts: impl Iterator<Item = &'a Amounts>) -> Amounts {
    let mut all = Amounts::default();
    amounts.for_each(|amounts| all.merge(amounts));
    all
}

/// Returns all holes of the home pool, or `None` if the class has rivals. Dividing among classes
/// would give it holes of its largest processes first, which users with smaller processes cannot
/// use.
fn undivided(state: &RoundState, tables: &HoleTables, pass: &[ClassCount]) -> Option<HoleTable> {
    let [class_count] = pass else { return None };
    let home = state.classes[class_count.class].pool;
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

/// Computes the quanta of each class by weights alone. Pools above overwrite pools below.
fn pure_shares(state: &mut RoundState, classes: &[ClassIx]) {
    for home in homes(state, classes) {
        // Closed nodes have no quanta to share (C-12).
        let pools = state.forest.subtree(home).iter();
        let total: u64 = pools.map(|pool| state.index.open_quanta[*pool]).sum();
        let rivals = rival_classes(state, classes, home);
        let weights: u64 = rivals
            .iter()
            .map(|class| state.classes[*class].class.weight)
            .sum();
        for class in rivals {
            let product = u128::from(total) * u128::from(state.classes[class].class.weight);
            let pure = product / u128::from(weights.max(1));
            state.classes[class].weighted_share = u64::try_from(pure).unwrap_or(u64::MAX);
        }
    }
}

/// Divides the holes of a class among its users. Results are ordered by the names of the users
///
fn user_level(
    claims: &mut Claims,
    pass: &CountPass,
    holes: HoleTable,
    class_count: &ClassCount,
) -> Vec<Option<Amounts>> {
    claims.clear();
    for (user, standing) in &class_count.sorted_users {
        claims.add_entity(1, *standing);
        claims.add_all_demand(class_count.users.at(*user).wants());
    }
    claims.apportion(holes, pass.division);
    let mut of_users = vec![None; class_count.sorted_users.len()];
    for ((user, _), given) in class_count.sorted_users.iter().zip(claims.given()) {
        of_users[*user] = Some(given);
    }
    of_users
}

/// Takes the grants out of the tables for later groups, at every depth of the tree. Classes with
/// one home pool count as one. A small process then does not break the hole counted for a large
/// one. Pools below go first.
fn subtract(state: &RoundState, tables: &mut HoleTables, classes: &[ClassIx], home: PoolIx) {
    let mut granted = Amounts::default();
    let at_home = |class: &&ClassIx| state.classes[**class].pool == Some(home);
    for class in classes.iter().filter(at_home) {
        granted.merge(&state.classes[*class].entitlement);
    }
    for (quanta, mut left) in granted.iter().rev() {
        for pool in state.forest.subtree(home) {
            left = tables.get_mut(*pool).fill_smallest_first(left, quanta);
        }
    }
}
