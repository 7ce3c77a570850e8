//! Deficits: quanta that a class or user lacks because of rounding are paid back over time (W-4).
//!
//! Entitlements are whole processes, but shares are not. Each class and user has an account of the
//! difference, in thousandths of a quantum times milliseconds. An account that reaches one quantum
//! for [`PAYBACK_MS`] changes the standing to behind or ahead. Until the account is even, an entity
//! that is behind gets remainders first, and one that is ahead is not rounded up. A steady fleet is
//! therefore stable from round to round and fair over hours.

use std::collections::BTreeMap;

use hayward_vocabulary::UserName;

use super::{
    class_groups,
    fair_share::{DemandAndHoldings, HoldingsChange, UserEntitlementCache},
};
use crate::{
    ids::ClassIx,
    index::Users,
    input::snapshot::{Account, Policy, Standing},
    state::RoundState,
};

/// Milliseconds after which one owed quantum is paid back. A shorter time is fairer and preempts
/// more.
const PAYBACK_MS: i64 = 600_000;
/// Thousandths of a quantum in one quantum.
const MILLI: i64 = 1_000;
/// Largest absolute value of an account.
const MAX_OWED: i64 = 100 * PAYBACK_MS * MILLI;

/// Returns whether a class is behind, even or ahead.
pub(crate) fn class_position(state: &RoundState, class: ClassIx) -> Standing {
    let account = state.deficits.classes.get(state.classes[class].name);
    account.map_or(Standing::Even, |account| account.standing)
}

/// Returns the standings of the users of a class, in the order of their names.
pub(crate) fn standings_of_users(state: &RoundState, class: ClassIx) -> Vec<Standing> {
    let users = state.classes[class].users;
    let accounts = state.deficits.users.get(state.classes[class].name);
    // Mostly all standings are even, and no account is looked up.
    let accounts = accounts.filter(|accounts| {
        let mut accounts = accounts.values();
        accounts.any(|account| account.standing != Standing::Even)
    });
    let standing = |user: &UserName| {
        let account = accounts.and_then(|accounts| accounts.get(user));
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
    let elapsed = now.ms_since(state.deficits.updated_at);
    let deficits = &mut state.deficits;
    deficits.updated_at = now;
    let users = deficits.users.values_mut().flat_map(BTreeMap::values_mut);
    for account in deficits.classes.values_mut().chain(users) {
        // A class without demand is owed nothing. All others get a new rate at the end of the
        // round.
        *account = Account {
            rate: 0,
            ..account.after_ms(elapsed)
        };
    }
}

impl Account {
    /// Returns the account after this many milliseconds. Two steps give the same result as one step
    /// over their sum.
    #[must_use]
    pub fn after_ms(self, elapsed_ms: u64) -> Self {
        let elapsed = i64::try_from(elapsed_ms).unwrap_or(i64::MAX);
        let grown = self.rate.saturating_mul(elapsed);
        let owed = self.owed.saturating_add(grown).clamp(-MAX_OWED, MAX_OWED);
        let standing = match self.standing {
            _ if owed >= PAYBACK_MS * MILLI => Standing::Behind,
            _ if owed <= -PAYBACK_MS * MILLI => Standing::Ahead,
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

/// A class or user with its weight, demand and holdings. Demand and holdings are in quanta.
struct Claim {
    weight: u64,
    demand: u64,
    holdings: u64,
}

/// Sets how fast each account grows from now on, from the holdings after the round.
pub(crate) fn record_rates(state: &mut RoundState, user_entitlements: &UserEntitlementCache) {
    if !state.settings.carry_remainders {
        return;
    }
    let change = HoldingsChange::new(state);
    for tree in state.forest.roots() {
        for (policy, classes) in class_groups(state, *tree) {
            if policy == Policy::FairShare {
                record_group_rates(state, &classes, |class| {
                    user_entitlements.totals_by_name(class, &change)
                });
            }
        }
    }
}

/// Sets the growth rates of the classes of one group, and of their users.
fn record_group_rates(
    state: &mut RoundState,
    classes: &[ClassIx],
    totals_of: impl Fn(ClassIx) -> Vec<DemandAndHoldings>,
) {
    let users: Vec<Vec<Claim>> = classes
        .iter()
        .map(|class| claims_of_users(totals_of(*class)))
        .collect();
    let claims: Vec<Claim> = classes
        .iter()
        .zip(&users)
        .map(|(class, users)| class_claim(state.classes[*class].class.weight.max(1), users))
        .collect();
    let class_rates = growth_rates(&claims);
    for ((class, claims), rate) in classes.iter().zip(users).zip(class_rates) {
        let name = state.classes[*class].name;
        let users = state.classes[*class].users;
        let deficits = &mut state.deficits;
        deficits.classes.entry(name.to_owned()).or_default().rate = rate;
        let accounts = deficits.users.entry(name.to_owned()).or_default();
        set_user_rates(accounts, users, growth_rates(&claims));
    }
}

/// Sets the growth rates of the users, in order of name. Drops accounts of users without work.
fn set_user_rates(
    accounts: &mut BTreeMap<UserName, Account>,
    users: &Users,
    growth_rates: Vec<i64>,
) {
    // Mostly the set of users with work is unchanged.
    if !accounts.keys().eq(users.keys()) {
        let account = |user| accounts.get(user).copied().unwrap_or_default();
        *accounts = users
            .keys()
            .map(|user| (user.clone(), account(user)))
            .collect();
    }
    for (account, rate) in accounts.values_mut().zip(growth_rates) {
        account.rate = rate;
    }
}

/// Returns the claims of the users of a class. All users have equal weight.
fn claims_of_users(users: Vec<DemandAndHoldings>) -> Vec<Claim> {
    let saturated = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
    let claim = |totals: DemandAndHoldings| Claim {
        weight: 1,
        demand: saturated(totals.demand),
        holdings: saturated(totals.holdings),
    };
    users.into_iter().map(claim).collect()
}

fn class_claim(weight: u64, users: &[Claim]) -> Claim {
    let sum = |field: fn(&Claim) -> u64| users.iter().map(field).fold(0, u64::saturating_add);
    Claim {
        weight,
        demand: sum(|claim| claim.demand),
        holdings: sum(|claim| claim.holdings),
    }
}

/// Returns the thousandths of a quantum that each claim lacks to its exact share of all holdings.
/// Shares follow the weights and are limited by demand. The rates add up to 0, apart from rounding.
fn growth_rates(claims: &[Claim]) -> Vec<i64> {
    let total: u128 = claims.iter().map(|claim| u128::from(claim.holdings)).sum();
    let mut remaining = total * 1_000;
    let mut exact_shares = vec![0_u128; claims.len()];
    let mut by_demand: Vec<usize> = (0..claims.len()).collect();
    // Claims with the least demand per weight are filled first, so that one pass suffices.
    by_demand.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        let (left, right) = (
            u128::from(a.demand) * u128::from(b.weight),
            u128::from(b.demand) * u128::from(a.weight),
        );
        left.cmp(&right)
    });
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    for index in by_demand {
        let claim = &claims[index];
        let share = remaining * u128::from(claim.weight) / weights.max(1);
        exact_shares[index] = share.min(u128::from(claim.demand) * 1_000);
        remaining -= exact_shares[index];
        weights -= u128::from(claim.weight);
    }
    exact_shares
        .iter()
        .zip(claims)
        .map(|(share, claim)| {
            let share = i64::try_from(*share).unwrap_or(i64::MAX);
            let holdings = i64::try_from(u128::from(claim.holdings) * 1_000).unwrap_or(i64::MAX);
            share.saturating_sub(holdings)
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
            owed in -2 * PAYBACK_MS * MILLI..2 * PAYBACK_MS * MILLI,
            rate in -5_000..5_000_i64,
            (one, two) in (0..5_000_000_u64, 0..5_000_000_u64),
        ) {
            let account = Account { owed, rate, standing: Standing::Even }.after_ms(0);
            prop_assert_eq!(account.after_ms(one).after_ms(two), account.after_ms(one + two));
        }
    }

    #[test]
    fn a_class_without_demand_is_owed_nothing() {
        let mut fixture = Fixture::eager().nodes(&[3]);
        fixture.class("rival", terms(Policy::FairShare, 10, 100), "default");
        fixture.job("one", "a", 1);
        fixture.job_in("rival", "two", "b", 1);
        fixture.step();
        // Two classes of equal weight share three quanta, so one holds 500 thousandths too much.
        let rate = |fixture: &Fixture| fixture.snapshot.carried.deficits.classes["rival"].rate;
        assert_eq!(rate(&fixture).abs(), 500);
        fixture.snapshot.demand.remove("two");
        fixture.step();
        assert_eq!(rate(&fixture), 0);
    }

    #[test]
    fn exact_shares_follow_weights_and_never_exceed_demand() {
        let claim = |weight, demand, holdings| Claim {
            weight,
            demand,
            holdings,
        };
        let light_and_heavy = [claim(1, 100, 0), claim(400, 100, 12)];
        assert_eq!(growth_rates(&light_and_heavy), [30, -30]);
        let capped = [claim(1, 2, 2), claim(1, 100, 5), claim(1, 100, 4)];
        assert_eq!(growth_rates(&capped), [0, -500, 500]);
    }
}
