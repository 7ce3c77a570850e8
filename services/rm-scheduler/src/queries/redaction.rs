//! Removes names from responses. A caller sees the users that it may know by name, and all other
//! users as sums. Totals stay the same (S12).

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::queues::{LimitEntry, Queues};
use hayward_rm_scheduler_api::shares::{
    Budgets, ClassShare, LedgerLine, OthersBudget, OthersLedger, OthersShare, Shares, Tally,
    UserShare,
};
use hayward_vocabulary::UserName;

/// Stands for all users, or for all groups, in a limit.
const ANY_NAME: &str = "*";

/// Replaces users that the caller may not see by sums.
pub fn redact_shares(mut shares: Shares, may_see_user: impl Fn(&UserName) -> bool) -> Shares {
    shares.classes = shares
        .classes
        .into_iter()
        .map(|share| redact_class(share, &may_see_user))
        .collect();
    shares.budgets = redact_budgets(shares.budgets, &may_see_user);
    let (known, others) = shares
        .ledger
        .into_iter()
        .partition(|it| may_see_user(&it.user));
    shares.ledger = known;
    shares.ledger_of_others = sum_ledger(others);
    shares
}

fn redact_class(mut class: ClassShare, may_see_user: impl Fn(&UserName) -> bool) -> ClassShare {
    let (known, others): (_, Vec<UserShare>) = class
        .users
        .into_iter()
        .partition(|it| may_see_user(&it.user));
    class.users = known;
    class.others = (!others.is_empty()).then(|| OthersShare {
        users: others.len() as u64,
        given: others.iter().map(|it| it.given).sum(),
        left: others.iter().map(|it| it.left).sum(),
        tally: sum_tallies(others.iter().map(|it| &it.tally)),
    });
    class
}

fn sum_tallies<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Tally {
    tallies.fold(Tally::default(), |sum, it| Tally {
        due: sum.due + it.due,
        divided: sum.divided + it.divided,
        resting: sum.resting + it.resting,
        lent: sum.lent + it.lent,
        held: sum.held + it.held,
        staying: sum.staying + it.staying,
        granted: sum.granted + it.granted,
        vacating: sum.vacating + it.vacating,
        closed: sum.closed + it.closed,
    })
}

fn redact_budgets(mut budgets: Budgets, may_see_user: impl Fn(&UserName) -> bool) -> Budgets {
    let (known, others): (_, Vec<_>) = budgets
        .users
        .into_iter()
        .partition(|it| may_see_user(&it.user));
    budgets.users = known;
    let mut trees = BTreeMap::<String, OthersBudget>::new();
    for other in others {
        let tree = other.tree.clone();
        let sum = trees.entry(other.tree).or_insert(OthersBudget {
            tree,
            users: 0,
            spent: 0,
        });
        sum.users += 1;
        sum.spent += other.spent;
    }
    budgets.others = trees.into_values().collect();
    budgets
}

fn sum_ledger(others: Vec<LedgerLine>) -> Vec<OthersLedger> {
    let mut classes = BTreeMap::<String, OthersLedger>::new();
    for other in others {
        let class = other.class.clone();
        let sum = classes.entry(other.class).or_insert(OthersLedger {
            class,
            users: 0,
            due_quantum_ms: 0,
            received_quantum_ms: 0,
        });
        sum.users += 1;
        sum.due_quantum_ms += other.due_quantum_ms;
        sum.received_quantum_ms += other.received_quantum_ms;
    }
    classes.into_values().collect()
}

/// Removes the names that the caller may not see from the limits of queues. The amounts, and the
/// groups of the caller, stay.
pub fn redact_queues(
    mut queues: Queues,
    may_see_user: impl Fn(&str) -> bool,
    groups: &[String],
) -> Queues {
    let entries = queues.pools.iter_mut().flat_map(|pool| &mut pool.queues);
    for LimitEntry {
        users,
        groups: limit_groups,
        ..
    } in entries.flat_map(|queue| &mut queue.limits)
    {
        users.retain(|user| user == ANY_NAME || may_see_user(user));
        limit_groups.retain(|group| group == ANY_NAME || groups.contains(group));
    }
    queues
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn user_share(name: &str, amount: u64) -> Value {
        json!({"user": name, "given": amount, "left": 1, "due": amount, "held": 2 * amount,
               "vacating": 3, "work": []})
    }

    /// Returns the shares of three users in one class.
    fn unredacted_shares() -> Shares {
        let class = json!({"class": "normal", "policy": "FAIR_SHARE", "priority": 10,
            "weight": 100, "given": 111, "left": 0, "due": 111, "held": 222, "vacating": 9,
            "users": [user_share("ann", 1), user_share("ben", 10),
                user_share("cy", 100)]});
        let line = |user: &str, ms: u64| {
            json!({"user": user, "class": "normal",
                   "due_quantum_ms": ms, "received_quantum_ms": ms + 1})
        };
        let spent = |user: &str, spent: u64| json!({"tree": "t", "user": user, "spent": spent});
        let shares = json!({"round": 1, "at": "2026-01-01T00:00:00.000Z", "capacity": 300,
            "held": 222, "free": 78, "classes": [class],
            "ledger": [line("ann", 5), line("ben", 6), line("cy", 7)],
            "budgets": {"pools": [], "users": [spent("ann", 1), spent("ben", 2), spent("cy", 4)]}});
        serde_json::from_value(shares).unwrap()
    }

    /// A response names a user only to callers that may see the user (S12).
    #[test]
    fn other_users_are_sums_and_totals_still_add_up() {
        let redacted = redact_shares(unredacted_shares(), |user| user.as_str() == "ann");
        let class = &redacted.classes[0];
        let names: Vec<_> = class.users.iter().map(|it| it.user.as_str()).collect();
        assert_eq!(names, ["ann"]);
        let others = class.others.as_ref().unwrap();
        assert_eq!((others.users, others.given, others.left), (2, 110, 2));
        let known = class.users.iter().map(|it| &it.tally);
        assert_eq!(sum_tallies(known.chain([&others.tally])), class.tally);
        let ledger = &redacted.ledger_of_others[0];
        assert_eq!((redacted.ledger.len(), ledger.users), (1, 2));
        assert_eq!(
            (ledger.due_quantum_ms, ledger.received_quantum_ms),
            (13, 15)
        );
        let budget = &redacted.budgets.others[0];
        assert_eq!(
            (redacted.budgets.users.len(), budget.users, budget.spent),
            (1, 2, 6)
        );
        let text = serde_json::to_string(&redacted).unwrap();
        assert!(!text.contains("ben") && !text.contains("\"cy\""), "{text}");
    }

    #[test]
    fn a_caller_that_may_see_all_users_gets_unchanged_shares() {
        let shares = unredacted_shares();
        assert_eq!(redact_shares(shares.clone(), |_| true), shares);
    }

    /// A response names a user only to callers that may see the user (S12).
    #[test]
    fn limits_of_queues_name_only_known_users_and_own_groups() {
        let limit = json!({"users": ["*", "ann", "ben"], "groups": ["dev", "ops"],
                           "max": {"vcore": 4}});
        let empty = json!({});
        let queue = json!({"queue": "root", "state": "active", "leaf": true, "guaranteed": empty,
            "max": empty, "used": empty, "leaving": empty, "pending": empty, "headroom": empty,
            "running_applications": 0, "waiting_applications": 0, "limits": [limit]});
        let all = json!({"round": 1, "at": "2026-01-01T00:00:00.000Z",
            "pools": [{"pool": "p", "nodes": 1, "open": 1, "kept": 0, "queues": [queue]}]});
        let all: Queues = serde_json::from_value(all).unwrap();
        let redacted = redact_queues(all, |user| user == "ann", &["dev".to_owned()]);
        let limit = &redacted.pools[0].queues[0].limits[0];
        assert_eq!(
            (&limit.users[..], &limit.groups[..]),
            (
                &["*".to_owned(), "ann".to_owned()][..],
                &["dev".to_owned()][..],
            )
        );
        assert_eq!(limit.max["vcore"], 4);
    }
}
