//! State of one key: at most one block or trial, and the number of removals. A key is a node or a
//! worker, and the job for which it is blocked.

use std::collections::BTreeSet;

use hayward_vocabulary::Timestamp;

use crate::Block;
use crate::block::join_texts;

/// Result of adding a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The key was free.
    Added,
    /// The action became stronger, and has its new effect at once.
    Upgraded,
    /// Another field changed.
    Merged,
    /// The block already had everything that was requested.
    Unchanged,
    /// The request is a copy from before the last removal and is ignored.
    Stale,
}

impl Outcome {
    /// Returns whether the state of the key changed.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Unchanged | Self::Stale)
    }
}

/// Trial of a node after a block by a strategy. The node must prove that it works (W6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canary {
    pub since: Timestamp,
    /// A trial without work ends at this instant.
    pub until: Timestamp,
    /// Causes and sources of the block before the trial.
    pub causes: BTreeSet<String>,
    pub sources: BTreeSet<String>,
}

impl Canary {
    pub fn cause(&self) -> String {
        join_texts(&self.causes)
    }
}

/// State of one key. Invariant: a key never has both a block and a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyState {
    /// Number of blocks of the key that were removed or have ended.
    pub removal_no: u64,
    pub block: Option<Block>,
    pub canary: Option<Canary>,
}

impl KeyState {
    /// Merges a block into the key. `copied_removal_no` is the `removal_no` of a re-announced copy,
    /// and `None` for a new block.
    pub fn add(&mut self, new: &Block, copied_removal_no: Option<u64>) -> Outcome {
        if copied_removal_no.is_some_and(|number| number < self.removal_no) {
            return Outcome::Stale;
        }
        let (outcome, block) = match &self.block {
            None => (Outcome::Added, new.clone()),
            Some(current) => {
                let merged = current.merge(new);
                let outcome = if merged.action > current.action {
                    Outcome::Upgraded
                } else if merged == *current {
                    Outcome::Unchanged
                } else {
                    Outcome::Merged
                };
                (outcome, merged)
            }
        };
        self.block = Some(block);
        self.canary = None;
        outcome
    }

    /// Removes the block, if there is one, and counts the removal.
    pub fn remove(&mut self) -> Option<Block> {
        let block = self.block.take()?;
        self.removal_no += 1;
        Some(block)
    }

    /// Removes the block if its end has passed. A block by a strategy is followed by a trial of
    /// `trial_ms`; 0 disables trials.
    pub fn expire(&mut self, now: Timestamp, trial_ms: u64) -> Option<Block> {
        self.block
            .as_ref()
            .filter(|block| !block.is_in_force(now))?;
        let block = self.remove()?;
        if block.is_from_strategy() && trial_ms > 0 {
            self.canary = Some(Canary {
                since: now,
                until: now.plus_ms(trial_ms),
                causes: block.causes.clone(),
                sources: block.sources.clone(),
            });
        }
        Some(block)
    }

    /// Ends the trial if its time has passed.
    pub fn expire_canary(&mut self, now: Timestamp) -> Option<Canary> {
        self.canary.take_if(|canary| canary.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Action;
    use crate::block::tests::any_block;

    fn new_mark(cause: &str, end: i64) -> Block {
        Block {
            action: Action::Mark,
            causes: [cause.to_owned()].into(),
            start: Timestamp::from_unix_ms(0),
            end: Some(Timestamp::from_unix_ms(end)),
            sources: BTreeSet::new(),
        }
    }

    #[test]
    fn adding_a_block_reports_what_changed() {
        let evacuate = Block {
            action: Action::IMMEDIATE,
            ..new_mark("disk", 10)
        };
        let mut state = KeyState::default();
        assert_eq!(state.add(&new_mark("disk", 10), None), Outcome::Added);
        assert_eq!(state.add(&new_mark("disk", 10), None), Outcome::Unchanged);
        assert_eq!(
            state.add(&new_mark("disk", 20), None),
            Outcome::Merged,
            "a later end is merged (scenario 4)"
        );
        assert_eq!(
            state.add(&new_mark("disk", 5), None),
            Outcome::Unchanged,
            "an earlier end changes nothing (scenario 5)"
        );
        assert_eq!(
            state.add(&evacuate, None),
            Outcome::Upgraded,
            "an evacuation is stronger than a mark (scenario 6)"
        );
        assert_eq!(
            state.add(&new_mark("disk", 20), None),
            Outcome::Unchanged,
            "a weaker action changes nothing (scenario 7)"
        );
        assert_eq!(
            state.add(&new_mark("net", 20), None),
            Outcome::Merged,
            "a new cause is merged (scenario 7)"
        );
        assert_eq!(state.block.as_ref().unwrap().action, Action::IMMEDIATE);
    }

    #[test]
    fn an_older_copy_does_not_revive_a_removed_key() {
        let mut state = KeyState::default();
        state.add(&new_mark("disk", 10), None);
        let copy = state.block.clone().unwrap();
        assert!(state.remove().is_some());
        assert!(state.remove().is_none(), "a block is removed once");
        assert_eq!(
            state.add(&copy, Some(0)),
            Outcome::Stale,
            "a copy from before the removal is ignored (scenario 19)"
        );
        assert_eq!(
            state.add(&copy, None),
            Outcome::Added,
            "a new block is added (scenario 20)"
        );
        assert_eq!(state.removal_no, 1);
        assert_eq!(state.expire(Timestamp::from_unix_ms(9), 50), None);
        assert!(state.expire(Timestamp::from_unix_ms(10), 50).is_some());
        assert_eq!(state.removal_no, 2);
        assert_eq!(
            state.canary, None,
            "only blocks by a strategy end in a trial"
        );
    }

    #[test]
    fn a_block_by_a_strategy_ends_in_a_trial_and_an_unused_trial_ends_by_itself() {
        let timestamp = Timestamp::from_unix_ms;
        let by_strategy = Block {
            sources: ["strategy:flapping".to_owned()].into(),
            ..new_mark("flaps", 10)
        };
        let mut state = KeyState::default();
        state.add(&by_strategy, None);
        assert!(state.expire(timestamp(10), 50).is_some());
        let trial = state.canary.clone().unwrap();
        assert_eq!(
            (trial.until, trial.cause().as_str()),
            (timestamp(60), "flaps")
        );
        assert_eq!(state.expire_canary(timestamp(59)), None);
        assert_eq!(state.expire_canary(timestamp(60)), Some(trial));

        state.add(&by_strategy, None);
        state.expire(timestamp(10), 0);
        assert_eq!(state.canary, None, "trials are disabled");
        state.add(&by_strategy, None);
        state.expire(timestamp(10), 50);
        assert_eq!(state.add(&new_mark("again", 20), None), Outcome::Added);
        assert_eq!(state.canary, None, "a block ends the trial");
        state.add(&by_strategy, None);
        state.expire(timestamp(60), 50);
        assert!(state.canary.is_some());
        let manual = Block {
            sources: ["manual:ann".to_owned()].into(),
            ..new_mark("fan", 70)
        };
        state.add(&by_strategy, None);
        state.add(&manual, None);
        state.expire(timestamp(70), 50);
        assert_eq!(
            state.canary, None,
            "a block by a person ends without a trial"
        );
    }

    proptest! {
        #[test]
        fn an_add_without_effect_is_reported_as_unchanged(
            first in any_block(), second in any_block()
        ) {
            let mut state = KeyState::default();
            state.add(&first, None);
            let before = state.clone();
            let outcome = state.add(&second, None);
            prop_assert_eq!(outcome.is_change(), state != before);
            prop_assert_eq!(state.add(&second, None), Outcome::Unchanged);
        }

        #[test]
        fn the_order_of_adds_does_not_change_the_state(
            blocks in proptest::collection::vec(any_block(), 1..6)
        ) {
            let (mut forward, mut backward) = (KeyState::default(), KeyState::default());
            for block in &blocks {
                forward.add(block, None);
            }
            for block in blocks.iter().rev() {
                backward.add(block, None);
            }
            prop_assert_eq!(forward, backward);
        }
    }
}
