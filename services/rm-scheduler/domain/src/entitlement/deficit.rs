//! Deficits: the quanta that rounding keeps from a class or user are paid back over time (W-4).
//!
//! Entitlements are whole processes and shares are not. The difference is stored as an account in
//! quantum-milliseconds. An account of one quantum for [`PATIENCE_MS`] is paid. Entities behind
//! then get remainders first, and entities ahead are not rounded up, until the account is even. A
//! steady fleet is therefore stable from round to round and fair over hours.

use std::collections::BTreeMap;

use hayward_vocabulary::UserName;

use super::{
    fair_share::{HoldingsChange, Quanta, UserCounts},
    groups,
};
use crate::{
    ids::ClassIx,
    index::Users,
    input::snapshot::{Account, Policy, Standing},
    state::RoundState,
};

/// Milliseconds after which an owed quantum is paid. A shorter time is fairer and preempts more.
const PATIENCE_MS: i64 = 600_000;
const MILLI: i64 = 1_000;
const LIMIT: i64 = 100 * PATIENCE_MS * MILLI;

pub(crate) fn for_class(state: &RoundState, class: ClassIx) -> Standing {
    let account = state.deficits.classes.get(state.classes[class].name);
    account.map_or(Standing::Even, |account| account.standing)
}

/// Returns the standings of the users of a class, in the order of their names.
pub(crate) fn for_users(state: &RoundState, class: ClassIx) -> Vec<Standing> {
    let users = state.classes[class].users;
    let known = state.deficits.users.get(state.classes[class].name);
    // Mostly no user is owed anything, and no account is looked up.
    let known = known.filter(|known| {
        let mut accounts = known.values();
        accounts.any(|account| account.standing != Standing::Even)
    });
    let standing = |user: &UserName| {
        let account = known.and_then(|known| known.get(user));
        account.map_or(Standing::Even, |account| account.standing)
    };
    users.keys().map(standing).collect()
}

/// Updates all accounts to the time of this round.
pub(crate) fn settle(state: &mut RoundState) {
    if !state.settings.carry_remainders {
        return;
    }
    let now = state.snapshot.now;
    let elapsed = now.ms_since(state.deficits.at);
    let deficits = &mut state.deficits;
    deficits.at = now;
    let users = deficits.users.values_mut().flat_map(BTreeMap::values_mut);
    for account in deficits.classes.values_mut().chain(users) {
        // A class without demand is owed nothing. The others get a new rate below.
        *account = Account {
            rate: 0,
            ..account.after(elapsed)
        };
    }
}

impl Account {
    /// Returns the account after this many milliseconds. Two steps give the same as one step over
    /// their sum.
    #[must_use]
    pub fn after(self, elapsed_ms: u64) -> Self {
        let elapsed = i64::try_from(elapsed_ms).unwrap_or(i64::MAX);
        let grown = self.rate.saturating_mul(elapsed);
        let owed = self.owed.saturating_add(grown).clamp(-LIMIT, LIMIT);
        let standing = match self.standing {
            _ if owed >= PATIENCE_MS * MILLI => Standing::Behind,
            _ if owed <= -PATIENCE_MS * MILLI => Standing::Ahead,
            Standing::Behind if owed > 0 => Standing::Behind,
            Standing::Ahead if owed < 0 => Standing::Ahead,
            _ => Standing::Even,
        };
        Self {
            owed,
            standing,
            ..self
        }
    }
}

/// Participant with its weight, demand and holdings. Demand and holdings are in quanta.
struct Claim {
    weight: u64,
    wants: u64,
    has: u64,
}

/// Sets how fast each account grows from now on, from the holdings after the round.
pub(crate) fn record(state: &mut RoundState, user_counts: &UserCounts) {
    if !state.settings.carry_remainders {
        return;
    }
    let moved = HoldingsChange::new(state);
    for tree in state.forest.roots() {
        for (policy, classes) in groups(state, *tree) {
            if policy == Policy::FairShare {
                note_group(state, &classes, |class| user_counts.quanta(class, &moved));
            }
        }
    }
}

fn note_group(
    state: &mut RoundState,
    classes: &[ClassIx],
    quanta_of: impl Fn(ClassIx) -> Vec<Quanta>,
) {
    let users: Vec<Vec<Claim>> = classes
        .iter()
        .map(|class| claims_of(quanta_of(*class)))
        .collect();
    let claims: Vec<Claim> = classes
        .iter()
        .zip(&users)
        .map(|(class, users)| class_claim(state.classes[*class].class.weight.max(1), users))
        .collect();
    let rates_of_classes = rates(&claims);
    for ((class, claims), rate) in classes.iter().zip(users).zip(rates_of_classes) {
        let name = state.classes[*class].name;
        let users = state.classes[*class].users;
        let deficits = &mut state.deficits;
        deficits.classes.entry(name.to_owned()).or_default().rate = rate;
        let known = deficits.users.entry(name.to_owned()).or_default();
        record_users(known, users, rates(&claims));
    }
}

/// Drops accounts of users without work.
fn record_users(known: &mut BTreeMap<UserName, Account>, users: &Users, rates: Vec<i64>) {
    // Mostly the set of users with work is unchanged.
    if !known.keys().eq(users.keys()) {
        let account = |user| known.get(user).copied().unwrap_or_default();
        *known = users
            .keys()
            .map(|user| (user.clone(), account(user)))
            .collect();
    }
    for (account, rate) in known.values_mut().zip(rates) {
        account.rate = rate;
    }
}

fn claims_of(users: Vec<Quanta>) -> Vec<Claim> {
    let least = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
    let claim = |quanta: Quanta| Claim {
        weight: 1,
        wants: least(quanta.wants),
        has: least(quanta.has),
    };
    users.into_iter().map(claim).collect()
}

fn class_claim(weight: u64, users: &[Claim]) -> Claim {
    let sum = |field: fn(&Claim) -> u64| users.iter().map(field).fold(0, u64::saturating_add);
    Claim {
        weight,
        wants: sum(|claim| claim.wants),
        has: sum(|claim| claim.has),
    }
}

/// Returns the thousandths of a quantum that each claim lacks to its exact share of all holdings.
/// Shares follow the weights and are limited by demand. The rates add up to 0, apart from rounding.
fn rates(claims: &[Claim]) -> Vec<i64> {
    let total: u128 = claims.iter().map(|claim| u128::from(claim.has)).sum();
    let mut left = total * 1_000;
    let mut due = vec![0_u128; claims.len()];
    let mut open: Vec<usize> = (0..claims.len()).collect();
    // Users with the least demand per weight are filled first, so that one pass suffices.
    open.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        let (x, y) = (
            u128::from(a.wants) * u128::from(b.weight),
            u128::from(b.wants) * u128::from(a.weight),
        );
        x.cmp(&y)
    });
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    for at in open {
        let claim = &claims[at];
        let part = left * u128::from(claim.weight) / weights.max(1);
        due[at] = part.min(u128::from(claim.wants) * 1_000);
        left -= due[at];
        weights -= u128::from(claim.weight);
    }
    due.iter()
        .zip(claims)
        .map(|(due, claim)| {
            let due = i64::try_from(*due).unwrap_or(i64::MAX);
            let has = i64::try_from(u128::from(claim.has) * 1_000).unwrap_or(i64::MAX);
            due.saturating_sub(has)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::fixture::{Fixture, terms};

    proptest! {
        #[test]
        fn an_account_grows_the_same_in_one_step_and_in_two(
            owed in -2 * PATIENCE_MS * MILLI..2 * PATIENCE_MS * MILLI,
            rate in -5_000..5_000_i64,
            (one, two) in (0..5_000_000_u64, 0..5_000_000_u64),
        ) {
            let account = Account { owed, rate, standing: Standing::Even }.after(0);
            prop_assert_eq!(account.after(one).after(two), account.after(one + two));
        }
    }

    #[test]
    fn a_class_without_demand_is_owed_nothing() {
        let mut fixture = Fixture::eager().nodes(&[3]);
        fixture.class("rival", terms(Policy::FairShare, 10, 100), "default");
        fixture.job("one", "a", 1);
        fixture.job_in("rival", "two", "b", 1);
        fixture.step();
        let rate = |fixture: &Fixture| fixture.snapshot.carried.deficits.classes["rival"].rate;
        assert_eq!(rate(&fixture).abs(), 500);
        fixture.snapshot.demand.remove("two");
        fixture.step();
        assert_eq!(rate(&fixture), 0);
    }

    #[test]
    fn exact_shares_follow_weights_and_never_exceed_demand() {
        let claim = |weight, wants, has| Claim { weight, wants, has };
        let light_and_heavy = [claim(1, 100, 0), claim(400, 100, 12)];
        assert_eq!(rates(&light_and_heavy), [30, -30]);
        let capped = [claim(1, 2, 2), claim(1, 100, 5), claim(1, 100, 4)];
        assert_eq!(rates(&capped), [0, -500, 500]);
    }
}
