//! One key over time: at most one live item, and how often one was removed (8.4).

use hayward_vocabulary::Timestamp;

use crate::Item;

/// What became of an add (5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The key was free.
    Added,
    /// The action became stronger: its effect is due now.
    Upgraded,
    /// Something else changed.
    Merged,
    Unchanged,
    /// A copy from before the last removal, which stays removed.
    Stale,
}

impl Outcome {
    pub fn changed(self) -> bool {
        !matches!(self, Self::Unchanged | Self::Stale)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    pub removal_no: u64,
    pub item: Option<Item>,
}

impl Slot {
    /// Adds a statement. `based_on` is the number a re-announced copy carries; new facts have none.
    pub fn add(&mut self, new: &Item, based_on: Option<u64>) -> Outcome {
        if based_on.is_some_and(|number| number < self.removal_no) {
            return Outcome::Stale;
        }
        let (outcome, item) = match &self.item {
            None => (Outcome::Added, new.clone()),
            Some(old) => {
                let merged = old.merge(new);
                let outcome = if merged.action > old.action {
                    Outcome::Upgraded
                } else if merged == *old {
                    Outcome::Unchanged
                } else {
                    Outcome::Merged
                };
                (outcome, merged)
            }
        };
        self.item = Some(item);
        outcome
    }

    /// Takes the item away, if there is one, and counts the removal.
    pub fn remove(&mut self) -> Option<Item> {
        let item = self.item.take()?;
        self.removal_no += 1;
        Some(item)
    }

    /// Takes the item away if it is over.
    pub fn expire(&mut self, now: Timestamp) -> Option<Item> {
        let over = self.item.as_ref().is_some_and(|item| !item.in_force(now));
        if over { self.remove() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Action;
    use crate::item::tests::items;

    fn mark(cause: &str, end: i64) -> Item {
        Item {
            action: Action::Mark,
            causes: [cause.to_owned()].into(),
            start: Timestamp::from_unix_ms(0),
            end: Some(Timestamp::from_unix_ms(end)),
            sources: BTreeSet::new(),
        }
    }

    #[test]
    fn outcomes_of_the_scenario_table() {
        let evacuate = Item {
            action: Action::Evacuate,
            ..mark("disk", 10)
        };
        let mut slot = Slot::default();
        assert_eq!(slot.add(&mark("disk", 10), None), Outcome::Added);
        assert_eq!(slot.add(&mark("disk", 10), None), Outcome::Unchanged);
        assert_eq!(
            slot.add(&mark("disk", 20), None),
            Outcome::Merged,
            "4: later end"
        );
        assert_eq!(
            slot.add(&mark("disk", 5), None),
            Outcome::Unchanged,
            "5: earlier end"
        );
        assert_eq!(slot.add(&evacuate, None), Outcome::Upgraded, "6");
        assert_eq!(slot.add(&mark("disk", 20), None), Outcome::Unchanged, "7");
        assert_eq!(slot.add(&mark("net", 20), None), Outcome::Merged, "7");
        assert_eq!(slot.item.as_ref().unwrap().action, Action::Evacuate);
    }

    #[test]
    fn b6_a_removed_key_is_not_revived_by_an_older_copy() {
        let mut slot = Slot::default();
        slot.add(&mark("disk", 10), None);
        let copy = slot.item.clone().unwrap();
        assert!(slot.remove().is_some());
        assert!(slot.remove().is_none(), "nothing is removed twice");
        assert_eq!(slot.add(&copy, Some(0)), Outcome::Stale, "19");
        assert_eq!(slot.add(&copy, None), Outcome::Added, "20");
        assert_eq!(slot.removal_no, 1);
        assert_eq!(slot.expire(Timestamp::from_unix_ms(9)), None);
        assert!(slot.expire(Timestamp::from_unix_ms(10)).is_some());
        assert_eq!(slot.removal_no, 2);
    }

    proptest! {
        #[test]
        fn b2_an_add_that_changes_nothing_says_so(first in items(), second in items()) {
            let mut slot = Slot::default();
            slot.add(&first, None);
            let before = slot.clone();
            let outcome = slot.add(&second, None);
            prop_assert_eq!(outcome.changed(), slot != before);
            prop_assert_eq!(slot.add(&second, None), Outcome::Unchanged);
        }

        #[test]
        fn the_order_of_adds_does_not_matter(
            all in proptest::collection::vec(items(), 1..6)
        ) {
            let (mut forth, mut back) = (Slot::default(), Slot::default());
            for item in &all {
                forth.add(item, None);
            }
            for item in all.iter().rev() {
                back.add(item, None);
            }
            prop_assert_eq!(forth, back);
        }
    }
}
