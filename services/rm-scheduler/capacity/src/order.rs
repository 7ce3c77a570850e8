//! Sort keys of queues and applications. Shares are fractions of integers and compared exactly, by
//! cross products.

use std::cmp::{Ordering, Reverse};

use hayward_rm_scheduler_domain::snapshot::queues::Sort;
use hayward_vocabulary::Timestamp;

use crate::tree::QueueSettings;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fraction {
    part: u64,
    /// Denominator, never 0.
    whole: u64,
}

impl Fraction {
    pub const ZERO: Self = Self { part: 0, whole: 1 };
    pub const ONE: Self = Self { part: 1, whole: 1 };

    pub fn new(part: u64, whole: u64) -> Self {
        let whole = whole.max(1);
        Self { part, whole }
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        let mine = u128::from(self.part) * u128::from(other.whole);
        mine.cmp(&(u128::from(other.part) * u128::from(self.whole)))
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
/// types. `whole` is the guarantee, or the maximum if there is none.
pub(crate) fn queue_share(used: &[u64], whole: &[Option<u64>]) -> Fraction {
    let shares = used.iter().zip(whole).skip(1);
    let shares = shares.filter_map(|(used, whole)| match (*used, (*whole)?) {
        (0, _) => None,
        (_, 0) => Some(Fraction::ONE),
        (used, whole) => Some(Fraction::new(used, whole)),
    });
    shares.max().unwrap_or(Fraction::ZERO)
}

/// Returns the shares of an application in a fair leaf, the largest first. A type without a
/// guarantee counts with its absolute amount, so it dominates.
pub(crate) fn dominant_shares(used: &[u64], guaranteed: &[Option<u64>]) -> Vec<Fraction> {
    let shares = used.iter().zip(guaranteed).skip(1);
    let some = shares.filter(|(used, _)| **used > 0);
    let mut shares: Vec<Fraction> = some
        .map(|(used, whole)| Fraction::new(*used, whole.unwrap_or(1)))
        .collect();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    shares
}

/// Sort key of a queue among its siblings. The queue with the least key is served first. Waiting
/// amounts are compared type by type in a fixed order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    first: Key,
    second: Key,
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
        let (first, second) = pair(by_priority, priority, Key::Share(vec![share]));
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
    first: Key,
    second: Key,
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
        let by = match settings.sort {
            Sort::Fifo => Key::Time(submitted),
            Sort::Fair => Key::Share(shares()),
        };
        let (first, second) = pair(settings.by_priority, priority, by);
        Self {
            first,
            second,
            submitted,
            app,
        }
    }
}

fn pair(by_priority: bool, priority: i32, other: Key) -> (Key, Key) {
    let priority = Key::Priority(Reverse(priority));
    if by_priority {
        (priority, other)
    } else {
        (other, priority)
    }
}

/// Part of a sort key. All keys of one queue use the same kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
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
        let whole = [None, Some(10), Some(0), None];
        assert!(queue_share(&[9, 5, 0, 7], &whole) == Fraction::new(1, 2));
        assert!(queue_share(&[9, 5, 1, 7], &whole) == Fraction::ONE);
        assert!(queue_share(&[9, 0, 0, 7], &whole) == Fraction::ZERO);
    }

    #[test]
    fn types_without_a_guarantee_dominate() {
        let guaranteed = [None, Some(100), None];
        let with = dominant_shares(&[0, 90, 1], &guaranteed);
        assert!(with > dominant_shares(&[0, 99, 0], &guaranteed));
        assert!(dominant_shares(&[0, 50, 1], &guaranteed) < with);
        assert!(dominant_shares(&[0, 0, 0], &guaranteed).is_empty());
    }
}
