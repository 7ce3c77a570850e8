//! One item, and the merge of two (5.2).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hayward_vocabulary::Timestamp;

/// Distinct causes and sources an item can hold. Of more, the first in order are kept: taking the
/// smallest of a union is still independent of the order of arrival.
pub const KEPT_TEXTS: usize = 32;

/// How the source of an item begins that a person asked for.
pub const MANUAL: &str = "manual:";
/// How the source of an item begins that was judged from evidence.
pub const STRATEGY: &str = "strategy:";

/// The stronger one is the greater one: taking off beats marking, and a shorter grace a longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Mark,
    /// What runs there is taken off after so many milliseconds of grace; 0 is at once.
    Evacuate(Reverse<u64>),
}

impl Action {
    pub const IMMEDIATE: Self = Self::Evacuate(Reverse(0));

    pub fn evacuate(grace_ms: u64) -> Self {
        Self::Evacuate(Reverse(grace_ms))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub action: Action,
    pub causes: BTreeSet<String>,
    pub start: Timestamp,
    /// None is permanent, and later than every end.
    pub end: Option<Timestamp>,
    pub sources: BTreeSet<String>,
}

impl Item {
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

    /// Section 4, rule 1: over when `now` has reached the end.
    pub fn in_force(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| now < end)
    }

    /// No person asked for it (section 7: such items keep to the fraction).
    pub fn automatic(&self) -> bool {
        !self.sources.iter().any(|source| source.starts_with(MANUAL))
    }

    /// Judged from evidence and asked for by nobody: its end has to be proven by a trial (W6).
    pub fn judged(&self) -> bool {
        let by_strategy = |source: &String| source.starts_with(STRATEGY);
        self.automatic() && self.sources.iter().any(by_strategy)
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
    one.union(other).take(KEPT_TEXTS).cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::btree_set;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn items() -> impl Strategy<Value = Item> {
        // More possible texts than are kept, so that the limit is met too.
        let texts = || btree_set("[a-d][0-9]", 1..=KEPT_TEXTS);
        (
            option::of(0..3_u64),
            texts(),
            0..5_i64,
            option::of(0..5_i64),
            texts(),
        )
            .prop_map(|(grace_ms, causes, start, end, sources)| Item {
                action: grace_ms.map_or(Action::Mark, Action::evacuate),
                causes,
                start: Timestamp::from_unix_ms(start),
                end: end.map(Timestamp::from_unix_ms),
                sources,
            })
    }

    proptest! {
        #[test]
        fn b1_merge_is_commutative_associative_and_idempotent(
            a in items(), b in items(), c in items()
        ) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
            prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
            prop_assert_eq!(a.merge(&a), a.clone());
            prop_assert_eq!(a.merge(&b).merge(&b), a.merge(&b));
        }

        #[test]
        fn a_merge_is_in_force_while_one_of_its_parts_is(
            a in items(), b in items(), now in 0..6_i64
        ) {
            let now = Timestamp::from_unix_ms(now);
            prop_assert_eq!(a.merge(&b).in_force(now), a.in_force(now) || b.in_force(now));
        }
    }

    #[test]
    fn an_item_is_over_exactly_at_its_end() {
        let end = Timestamp::from_unix_ms(10);
        let item = Item {
            action: Action::Mark,
            causes: ["io wait".to_owned(), "disk slow".to_owned()].into(),
            start: Timestamp::from_unix_ms(0),
            end: Some(end),
            sources: BTreeSet::new(),
        };
        assert!(item.in_force(Timestamp::from_unix_ms(9)));
        assert!(!item.in_force(end));
        assert!(
            Item {
                end: None,
                ..item.clone()
            }
            .in_force(Timestamp::from_unix_ms(i64::MAX))
        );
        assert_eq!(item.cause(), "disk slow, io wait");
    }

    #[test]
    fn the_stronger_action_is_the_sooner_one() {
        assert!(Action::Mark < Action::evacuate(60_000));
        assert!(Action::evacuate(60_000) < Action::IMMEDIATE);
    }

    #[test]
    fn a_person_among_the_sources_makes_it_manual() {
        let of = |sources: &[&str]| Item {
            action: Action::Mark,
            causes: BTreeSet::new(),
            start: Timestamp::from_unix_ms(0),
            end: None,
            sources: sources.iter().map(ToString::to_string).collect(),
        };
        let (judged, slow) = (of(&["strategy:flapping"]), of(&["slow-task:job_1"]));
        assert!(judged.automatic() && judged.judged());
        assert!(slow.automatic() && !slow.judged());
        let both = judged.merge(&of(&["manual:ann"]));
        assert!(!both.automatic() && !both.judged());
    }
}
