//! Sort keys of queues and applications. Shares are fractions of integers and compared exactly, by
//! cross products.

use std::cmp::{Ordering, Reverse};

use hayward_rm_scheduler_domain::snapshot::queues::Sort;
use hayward_vocabulary::Timestamp;

use crate::queue_tree::QueueSettings;

/// A non-negative fraction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fraction {
    numerator: u64,
    /// Denominator, never 0.
    denominator: u64,
}

impl Fraction {
    pub const ZERO: Self = Self {
        numerator: 0,
        denominator: 1,
    };
    pub const ONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    pub fn new(numerator: u64, denominator: u64) -> Self {
        let denominator = denominator.max(1);
        Self {
            numerator,
            denominator,
        }
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        let product = u128::from(self.numerator) * u128::from(other.denominator);
        product.cmp(&(u128::from(other.numerator) * u128::from(self.denominator)))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

/// Returns the share of a queue among its siblings: the largest used fraction over all resource
/// types. A denominator is the guarantee of a type, or the maximum if there is no guarantee.
pub(crate) fn queue_share(used: &[u64], denominators: &[Option<u64>]) -> Fraction {
    let shares = used.iter().zip(denominators).skip(1);
    let shares = shares.filter_map(|(used, denominator)| match (*used, (*denominator)?) {
        (0, _) => None,
        (_, 0) => Some(Fraction::ONE),
        (used, denominator) => Some(Fraction::new(used, denominator)),
    });
    shares.max().unwrap_or(Fraction::ZERO)
}

/// Returns the shares of an application in a fair leaf, the largest first. A type without a
/// guarantee counts with its absolute amount, so it dominates.
pub(crate) fn dominant_shares(used: &[u64], guaranteed: &[Option<u64>]) -> Vec<Fraction> {
    let shares = used.iter().zip(guaranteed).skip(1);
    let in_use = shares.filter(|(used, _)| **used > 0);
    let mut shares: Vec<Fraction> = in_use
        .map(|(used, denominator)| Fraction::new(*used, denominator.unwrap_or(1)))
        .collect();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    shares
}

/// Sort key of a queue among its siblings. The queue with the least key is served first. Among
/// equals the larger waiting amount goes first, compared type by type in a fixed order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    /// Priority or share, whichever the queue above compares first.
    first: KeyPart,
    second: KeyPart,
    pending: Reverse<Vec<u64>>,
    pub queue: usize,
}

impl QueueKey {
    pub fn new(
        priority: i32,
        share: Fraction,
        pending: &[u64],
        by_priority: bool,
        queue: usize,
    ) -> Self {
        let (first, second) = order_keys(by_priority, priority, KeyPart::Share(vec![share]));
        let pending = Reverse(pending[1..].to_vec());
        Self {
            first,
            second,
            pending,
            queue,
        }
    }
}

/// Sort key of an application in its leaf.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AppKey {
    /// Priority or sort value, whichever the queue compares first.
    first: KeyPart,
    second: KeyPart,
    submitted: Timestamp,
    pub app: usize,
}

impl AppKey {
    pub fn new(
        app: usize,
        priority: i32,
        submitted: Timestamp,
        settings: QueueSettings,
        shares: impl FnOnce() -> Vec<Fraction>,
    ) -> Self {
        let sort_value = match settings.sort {
            Sort::Fifo => KeyPart::Time(submitted),
            Sort::Fair => KeyPart::Share(shares()),
        };
        let (first, second) = order_keys(settings.by_priority, priority, sort_value);
        Self {
            first,
            second,
            submitted,
            app,
        }
    }
}

/// Returns the two parts of a key in the order in which they are compared.
fn order_keys(by_priority: bool, priority: i32, other: KeyPart) -> (KeyPart, KeyPart) {
    let priority = KeyPart::Priority(Reverse(priority));
    if by_priority {
        (priority, other)
    } else {
        (other, priority)
    }
}

/// Part of a sort key. All keys of one queue use the same kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Priority(Reverse<i32>),
    Time(Timestamp),
    Share(Vec<Fraction>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_compared_exactly() {
        let near = u64::MAX / 3;
        assert!(Fraction::new(near, u64::MAX) == Fraction::new(1, 3));
        assert!(Fraction::new(near + 1, u64::MAX) > Fraction::new(1, 3));
        assert!(Fraction::new(near - 1, u64::MAX) < Fraction::new(1, 3));
    }

    #[test]
    fn a_share_is_a_fraction_of_the_guarantee_or_the_maximum() {
        let denominators = [None, Some(10), Some(0), None];
        assert!(queue_share(&[9, 5, 0, 7], &denominators) == Fraction::new(1, 2));
        assert!(queue_share(&[9, 5, 1, 7], &denominators) == Fraction::ONE);
        assert!(queue_share(&[9, 0, 0, 7], &denominators) == Fraction::ZERO);
    }

    #[test]
    fn types_without_a_guarantee_dominate() {
        let guaranteed = [None, Some(100), None];
        let with_other_type = dominant_shares(&[0, 90, 1], &guaranteed);
        assert!(with_other_type > dominant_shares(&[0, 99, 0], &guaranteed));
        assert!(dominant_shares(&[0, 50, 1], &guaranteed) < with_other_type);
        assert!(dominant_shares(&[0, 0, 0], &guaranteed).is_empty());
    }
}
