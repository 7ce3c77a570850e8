//! Invariant: every account of allocated quanta equals the sum of the live allocations (I10).

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::invariant_finding::{Evidence, Finding, Inquiry, Rule};
use hayward_vocabulary::{NodeName, UserName};

pub const BALANCE: Rule = Rule {
    id: "I10",
    title: "accounts balance: holdings are the sum of live allocations",
};

/// Quanta by user, class and node.
pub type Sums<'a> = BTreeMap<(&'a UserName, &'a str, &'a NodeName), u64>;

/// Allocated quanta as one part of the scheduler counts them.
#[derive(Debug, Default)]
pub struct Account<'a> {
    /// Name of the part of the scheduler, for evidence.
    pub name: &'static str,
    sums: Sums<'a>,
}

impl<'a> Account<'a> {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            sums: Sums::new(),
        }
    }

    pub fn add(&mut self, user: &'a UserName, class: &'a str, node: &'a NodeName, quanta: u64) {
        *self.sums.entry((user, class, node)).or_default() += quanta;
    }
}

/// Checks that the accounts equal the sums of the live allocations.
pub fn check_accounts(live: &Account<'_>, others: &[Account<'_>]) -> Finding {
    let mut inquiry = Inquiry::new(BALANCE);
    for account in others {
        let keys: BTreeSet<_> = live.sums.keys().chain(account.sums.keys()).collect();
        for key in keys {
            let amount = |account: &Account<'_>| account.sums.get(key).copied().unwrap_or(0);
            let (expected, found) = (amount(live), amount(account));
            let (user, class, node) = key;
            inquiry.examine((expected != found).then(|| {
                let detail = format!(
                    "in class {class:?} on {node}, {} has {found} quanta where {expected} are live",
                    account.name
                );
                Evidence::new(user, detail)
                    .with_number("live_quanta", expected)
                    .with_number("kept_quanta", found)
            }));
        }
    }
    inquiry.finish()
}
