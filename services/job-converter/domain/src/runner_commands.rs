//! Numbered commands to the runners of a job. A runner asks for those after the last one that it
//! has carried out, so a command of a lost answer is sent again (TC-6).
//!
//! The commands are not stored. The numbers of a service that has restarted are larger than all
//! before, so a runner ignores no command after a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_vocabulary::AllocationId;

/// Maximum number of commands that wait for one runner. The oldest are dropped first.
const MAX_PENDING: usize = 4_096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedCommand<C> {
    pub number: u64,
    pub command: C,
}

/// Commands to the runners of one job, by allocation.
#[derive(Debug)]
pub struct RunnerCommands<C> {
    by_holder: BTreeMap<AllocationId, Pending<C>>,
    /// Runners that have requested commands. Those of an older version never do.
    followers: BTreeSet<AllocationId>,
}

#[derive(Debug)]
struct Pending<C> {
    last_number: u64,
    commands: VecDeque<NumberedCommand<C>>,
}

impl<C> Default for RunnerCommands<C> {
    fn default() -> Self {
        Self {
            by_holder: BTreeMap::new(),
            followers: BTreeSet::new(),
        }
    }
}

impl<C: Clone> RunnerCommands<C> {
    /// Adds a command. Its number is at least `base`, and larger than that of the one before.
    pub fn push(&mut self, holder: &AllocationId, command: C, base: u64) {
        let pending = self.by_holder.entry(holder.clone());
        let pending = pending.or_insert_with(|| Pending {
            last_number: 0,
            commands: VecDeque::new(),
        });
        let number = base.max(pending.last_number + 1);
        pending.last_number = number;
        let numbered = NumberedCommand { number, command };
        pending.commands.push_back(numbered);
        if pending.commands.len() > MAX_PENDING {
            pending.commands.pop_front();
        }
    }

    /// Returns whether the runner has requested commands.
    pub fn is_followed_by(&self, holder: &AllocationId) -> bool {
        self.followers.contains(holder)
    }

    /// Returns the commands after a number, and forgets the others.
    pub fn take_after(&mut self, holder: &AllocationId, number: u64) -> Vec<NumberedCommand<C>> {
        if !self.followers.contains(holder) {
            self.followers.insert(holder.clone());
        }
        let Some(pending) = self.by_holder.get_mut(holder) else {
            return Vec::new();
        };
        let is_done = |command: &NumberedCommand<C>| command.number <= number;
        while pending.commands.front().is_some_and(is_done) {
            pending.commands.pop_front();
        }
        pending.commands.iter().cloned().collect()
    }

    /// Forgets an allocation that has ended.
    pub fn remove(&mut self, holder: &AllocationId) {
        self.by_holder.remove(holder);
        self.followers.remove(holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> AllocationId {
        AllocationId::new("alc_1").unwrap()
    }

    fn numbers(commands: &[NumberedCommand<&'static str>]) -> Vec<u64> {
        commands.iter().map(|command| command.number).collect()
    }

    #[test]
    fn a_command_is_sent_again_until_a_later_request_names_it() {
        let mut commands = RunnerCommands::default();
        assert!(!commands.is_followed_by(&holder()));
        commands.push(&holder(), "a", 100);
        commands.push(&holder(), "b", 100);
        assert_eq!(numbers(&commands.take_after(&holder(), 0)), [100, 101]);
        assert_eq!(numbers(&commands.take_after(&holder(), 0)), [100, 101]);
        assert_eq!(numbers(&commands.take_after(&holder(), 100)), [101]);
        assert!(commands.take_after(&holder(), 101).is_empty());
        assert!(commands.is_followed_by(&holder()));
    }

    #[test]
    fn a_command_after_a_restart_has_a_larger_number() {
        let mut before = RunnerCommands::default();
        before.push(&holder(), "a", 100);
        let last = before.take_after(&holder(), 0)[0].number;
        let mut after = RunnerCommands::default();
        after.push(&holder(), "b", 200);
        assert_eq!(numbers(&after.take_after(&holder(), last)), [200]);
    }

    #[test]
    fn the_oldest_commands_of_a_runner_that_never_asks_are_dropped() {
        let mut commands = RunnerCommands::default();
        for _ in 0..=MAX_PENDING {
            commands.push(&holder(), "a", 1);
        }
        let pending = commands.take_after(&holder(), 0);
        assert_eq!((pending.len(), pending[0].number), (MAX_PENDING, 2));
        commands.remove(&holder());
        assert!(commands.take_after(&holder(), 0).is_empty());
    }
}
