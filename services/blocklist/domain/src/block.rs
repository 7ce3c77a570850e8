//! One block, and the merge of two blocks of the same key.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hayward_vocabulary::Timestamp;

/// Maximum number of distinct causes, and of distinct sources, of a block. A merge retains the
/// first ones in alphabetical order, so it does not depend on the order of arrival.
pub const MAX_SET_ENTRIES: usize = 32;

/// Prefix of a source that names a person.
pub const MANUAL_PREFIX: &str = "manual:";
/// Prefix of a source that names a strategy.
pub const STRATEGY_PREFIX: &str = "strategy:";

/// Effect of a block. Actions are ordered by strength: an evacuation is stronger than a mark, and a
/// shorter grace period is stronger than a longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// No new work starts on the target. Running work stays.
    Mark,
    /// Running work is evacuated. The number is the grace period in milliseconds; 0 means at once.
    Evacuate(Reverse<u64>),
}

impl Action {
    pub const IMMEDIATE: Self = Self::Evacuate(Reverse(0));

    pub fn evacuate(grace_ms: u64) -> Self {
        Self::Evacuate(Reverse(grace_ms))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub action: Action,
    pub causes: BTreeSet<String>,
    pub start: Timestamp,
    /// `None` if the block is permanent, which is later than every end.
    pub end: Option<Timestamp>,
    pub sources: BTreeSet<String>,
}

impl Block {
    /// Returns the union of two blocks: the stronger action, the later end, all causes and sources.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let end = match (self.end, other.end) {
            (Some(end), Some(other_end)) => Some(end.max(other_end)),
            _ => None,
        };
        Self {
            action: self.action.max(other.action),
            causes: union(&self.causes, &other.causes),
            start: self.start.min(other.start),
            end,
            sources: union(&self.sources, &other.sources),
        }
    }

    /// Returns whether the block has not ended. It ends at the instant `end`.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| now < end)
    }

    /// Returns whether no source is a person. Only such blocks are limited by the brakes
    /// ([`crate::brakes`]).
    pub fn is_automatic(&self) -> bool {
        !self
            .sources
            .iter()
            .any(|source| source.starts_with(MANUAL_PREFIX))
    }

    /// Returns whether the block is automatic and a strategy added it. Such a block is followed by
    /// a trial of the node (W6).
    pub fn is_from_strategy(&self) -> bool {
        let is_strategy = |source: &String| source.starts_with(STRATEGY_PREFIX);
        self.is_automatic() && self.sources.iter().any(is_strategy)
    }

    /// Returns the distinct causes, sorted and joined.
    pub fn cause(&self) -> String {
        join_texts(&self.causes)
    }
}

/// Joins texts with commas.
pub(crate) fn join_texts(texts: &BTreeSet<String>) -> String {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.join(", ")
}

fn union(first: &BTreeSet<String>, second: &BTreeSet<String>) -> BTreeSet<String> {
    first.union(second).take(MAX_SET_ENTRIES).cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::btree_set;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_block() -> impl Strategy<Value = Block> {
        // There are more possible texts than `MAX_SET_ENTRIES`, so that the limit is tested too.
        let any_texts = || btree_set("[a-d][0-9]", 1..=MAX_SET_ENTRIES);
        (
            option::of(0..3_u64),
            any_texts(),
            0..5_i64,
            option::of(0..5_i64),
            any_texts(),
        )
            .prop_map(|(grace_ms, causes, start, end, sources)| Block {
                action: grace_ms.map_or(Action::Mark, Action::evacuate),
                causes,
                start: Timestamp::from_unix_ms(start),
                end: end.map(Timestamp::from_unix_ms),
                sources,
            })
    }

    proptest! {
        #[test]
        fn merge_is_commutative_associative_and_idempotent(
            a in any_block(), b in any_block(), c in any_block()
        ) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
            prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
            prop_assert_eq!(a.merge(&a), a.clone());
            prop_assert_eq!(a.merge(&b).merge(&b), a.merge(&b));
        }

        #[test]
        fn a_merge_is_in_force_while_one_of_its_parts_is(
            a in any_block(), b in any_block(), now in 0..6_i64
        ) {
            let now = Timestamp::from_unix_ms(now);
            prop_assert_eq!(a.merge(&b).is_in_force(now), a.is_in_force(now) || b.is_in_force(now));
        }
    }

    #[test]
    fn a_block_ends_exactly_at_its_end() {
        let end = Timestamp::from_unix_ms(10);
        let block = Block {
            action: Action::Mark,
            causes: ["io wait".to_owned(), "disk slow".to_owned()].into(),
            start: Timestamp::from_unix_ms(0),
            end: Some(end),
            sources: BTreeSet::new(),
        };
        assert!(block.is_in_force(Timestamp::from_unix_ms(9)));
        assert!(!block.is_in_force(end));
        assert!(
            Block {
                end: None,
                ..block.clone()
            }
            .is_in_force(Timestamp::from_unix_ms(i64::MAX))
        );
        assert_eq!(block.cause(), "disk slow, io wait");
    }

    #[test]
    fn the_stronger_action_evacuates_sooner() {
        assert!(Action::Mark < Action::evacuate(60_000));
        assert!(Action::evacuate(60_000) < Action::IMMEDIATE);
    }

    #[test]
    fn a_block_with_a_person_among_its_sources_is_manual() {
        let block_from = |sources: &[&str]| Block {
            action: Action::Mark,
            causes: BTreeSet::new(),
            start: Timestamp::from_unix_ms(0),
            end: None,
            sources: sources.iter().map(ToString::to_string).collect(),
        };
        let by_strategy = block_from(&["strategy:flapping"]);
        let by_slow_task = block_from(&["slow-task:job_1"]);
        assert!(by_strategy.is_automatic() && by_strategy.is_from_strategy());
        assert!(by_slow_task.is_automatic() && !by_slow_task.is_from_strategy());
        let merged = by_strategy.merge(&block_from(&["manual:ann"]));
        assert!(!merged.is_automatic() && !merged.is_from_strategy());
    }
}
