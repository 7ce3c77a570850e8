//! One block, and the merge of two blocks of the same key.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hayward_vocabulary::Timestamp;

/// Most distinct causes and sources of a block. Only the smallest ones remain, so a merge does not
/// depend on the order of arrival.
pub const MAX_TEXTS: usize = 32;

/// Prefix of a source that names a person.
pub const MANUAL: &str = "manual:";
/// Prefix of a source that names a strategy.
pub const STRATEGY: &str = "strategy:";

/// Effect of a block. The greater one is the stronger one: evacuation beats marking, and a shorter
/// grace beats a longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// No new work starts there; running work stays.
    Mark,
    /// Running work is evacuated after a grace in milliseconds; 0 is at once.
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
    /// None means permanent; it is later than every end.
    pub end: Option<Timestamp>,
    pub sources: BTreeSet<String>,
}

impl Block {
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let end = match (self.end, other.end) {
            (Some(one), Some(other)) => Some(one.max(other)),
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

    /// False from the instant `end` on.
    pub fn in_force(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| now < end)
    }

    /// True when no source is a person. Automatic blocks obey the brakes.
    pub fn is_automatic(&self) -> bool {
        !self.sources.iter().any(|source| source.starts_with(MANUAL))
    }

    /// True for an automatic block that a strategy added. It ends in a trial of the node (W6).
    pub fn is_by_strategy(&self) -> bool {
        let by_strategy = |source: &String| source.starts_with(STRATEGY);
        self.is_automatic() && self.sources.iter().any(by_strategy)
    }

    /// Distinct causes, sorted and joined.
    pub fn cause(&self) -> String {
        joined(&self.causes)
    }
}

pub(crate) fn joined(texts: &BTreeSet<String>) -> String {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.join(", ")
}

fn union(one: &BTreeSet<String>, other: &BTreeSet<String>) -> BTreeSet<String> {
    one.union(other).take(MAX_TEXTS).cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::btree_set;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn blocks() -> impl Strategy<Value = Block> {
        // More possible texts than `MAX_TEXTS`, so that the limit is tested too.
        let texts = || btree_set("[a-d][0-9]", 1..=MAX_TEXTS);
        (
            option::of(0..3_u64),
            texts(),
            0..5_i64,
            option::of(0..5_i64),
            texts(),
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
            a in blocks(), b in blocks(), c in blocks()
        ) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
            prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
            prop_assert_eq!(a.merge(&a), a.clone());
            prop_assert_eq!(a.merge(&b).merge(&b), a.merge(&b));
        }

        #[test]
        fn a_merge_is_in_force_while_one_of_its_parts_is(
            a in blocks(), b in blocks(), now in 0..6_i64
        ) {
            let now = Timestamp::from_unix_ms(now);
            prop_assert_eq!(a.merge(&b).in_force(now), a.in_force(now) || b.in_force(now));
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
        assert!(block.in_force(Timestamp::from_unix_ms(9)));
        assert!(!block.in_force(end));
        assert!(
            Block {
                end: None,
                ..block.clone()
            }
            .in_force(Timestamp::from_unix_ms(i64::MAX))
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
        let from = |sources: &[&str]| Block {
            action: Action::Mark,
            causes: BTreeSet::new(),
            start: Timestamp::from_unix_ms(0),
            end: None,
            sources: sources.iter().map(ToString::to_string).collect(),
        };
        let (judged, slow) = (from(&["strategy:flapping"]), from(&["slow-task:job_1"]));
        assert!(judged.is_automatic() && judged.is_by_strategy());
        assert!(slow.is_automatic() && !slow.is_by_strategy());
        let both = judged.merge(&from(&["manual:ann"]));
        assert!(!both.is_automatic() && !both.is_by_strategy());
    }
}
