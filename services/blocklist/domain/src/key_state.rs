//! One key over time: at most one live item, and how often one was removed (8.4).

use std::collections::BTreeSet;

use hayward_vocabulary::Timestamp;

use crate::Item;
use crate::block::joined;

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

/// W6: a judged block is over, and the machine has to show that it works before it is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub since: Timestamp,
    /// A trial that nobody uses ends by itself.
    pub until: Timestamp,
    /// Why it had been blocked, and by whom.
    pub causes: BTreeSet<String>,
    pub sources: BTreeSet<String>,
}

impl Trial {
    pub fn cause(&self) -> String {
        joined(&self.causes)
    }
}

/// Invariant: never both an item and a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    pub removal_no: u64,
    pub item: Option<Item>,
    pub trial: Option<Trial>,
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
        self.trial = None;
        outcome
    }

    /// Takes the item away, if there is one, and counts the removal.
    pub fn remove(&mut self) -> Option<Item> {
        let item = self.item.take()?;
        self.removal_no += 1;
        Some(item)
    }

    /// Takes the item away if it is over. A judged one is followed by a trial of so many
    /// milliseconds, where there are any.
    pub fn expire(&mut self, now: Timestamp, trial_ms: u64) -> Option<Item> {
        self.item.as_ref().filter(|item| !item.in_force(now))?;
        let item = self.remove()?;
        if item.judged() && trial_ms > 0 {
            self.trial = Some(Trial {
                since: now,
                until: now.plus_ms(trial_ms),
                causes: item.causes.clone(),
                sources: item.sources.clone(),
            });
        }
        Some(item)
    }

    /// Ends the trial if its time is over.
    pub fn give_up_trial(&mut self, now: Timestamp) -> Option<Trial> {
        self.trial.take_if(|trial| trial.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Action;
    use crate::block::tests::items;

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
            action: Action::IMMEDIATE,
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
        assert_eq!(slot.item.as_ref().unwrap().action, Action::IMMEDIATE);
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
        assert_eq!(slot.expire(Timestamp::from_unix_ms(9), 50), None);
        assert!(slot.expire(Timestamp::from_unix_ms(10), 50).is_some());
        assert_eq!(slot.removal_no, 2);
        assert_eq!(slot.trial, None, "nobody judged it");
    }

    #[test]
    fn w6_a_judged_block_ends_in_a_trial_and_an_unused_trial_by_itself() {
        let at = Timestamp::from_unix_ms;
        let judged = Item {
            sources: ["strategy:flapping".to_owned()].into(),
            ..mark("flaps", 10)
        };
        let mut slot = Slot::default();
        slot.add(&judged, None);
        assert!(slot.expire(at(10), 50).is_some());
        let trial = slot.trial.clone().unwrap();
        assert_eq!((trial.until, trial.cause().as_str()), (at(60), "flaps"));
        assert_eq!(slot.give_up_trial(at(59)), None);
        assert_eq!(slot.give_up_trial(at(60)), Some(trial));

        slot.add(&judged, None);
        slot.expire(at(10), 0);
        assert_eq!(slot.trial, None, "trials are switched off");
        slot.add(&judged, None);
        slot.expire(at(10), 50);
        assert_eq!(slot.add(&mark("again", 20), None), Outcome::Added);
        assert_eq!(slot.trial, None, "a block ends the trial");
        slot.add(&judged, None);
        slot.expire(at(60), 50);
        assert!(slot.trial.is_some());
        let manual = Item {
            sources: ["manual:ann".to_owned()].into(),
            ..mark("fan", 70)
        };
        slot.add(&judged, None);
        slot.add(&manual, None);
        slot.expire(at(70), 50);
        assert_eq!(slot.trial, None, "a person's block ends without one");
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
