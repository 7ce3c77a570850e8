//! Detects two agents that report as one node, such as after cloning a disk. Each start of an agent
//! has a new instance name, so an instance that reports again after a later one proves a duplicate
//! (F28). Until the conflict ends, the instances are called rivals.

use std::collections::VecDeque;

/// Maximum number of stored earlier instances, because an agent may restart often.
const MAX_FORMER: usize = 8;

/// Instances that report as one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentInstances {
    current: String,
    /// Earlier instances with the times of their last reports, in order of these times.
    former: VecDeque<(String, u64)>,
    /// Time of the last report of a former instance. `None` without a conflict.
    conflict_seen_ms: Option<u64>,
}

impl AgentInstances {
    /// Restores the stored state: the current instance and the other instances of a conflict.
    pub fn new(instance: impl Into<String>, rivals: Vec<String>) -> Self {
        Self {
            current: instance.into(),
            former: rivals.into_iter().map(|name| (name, 0)).collect(),
            conflict_seen_ms: None,
        }
    }

    /// Restarts the watch. An unresolved conflict counts as seen now, because an outage of this
    /// service does not resolve it.
    pub fn restart_watch(&mut self, now_ms: u64) {
        self.conflict_seen_ms = (!self.former.is_empty()).then_some(now_ms);
        for (_, at_ms) in &mut self.former {
            *at_ms = now_ms;
        }
    }

    /// Records a report, and returns whether a new instance replaces the current one.
    pub fn record_report(&mut self, instance: &str, now_ms: u64) -> bool {
        if instance == self.current {
            return false;
        }
        let position = self.former.iter().position(|(name, _)| name == instance);
        if let Some(position) = position {
            self.former.remove(position);
            self.conflict_seen_ms = Some(now_ms);
        }
        let current = std::mem::replace(&mut self.current, instance.to_owned());
        self.former.push_back((current, now_ms));
        if self.former.len() > MAX_FORMER {
            self.former.pop_front();
        }
        position.is_none()
    }

    /// Returns the instance that reported last.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// Returns the end of the conflict: `quiet_ms` after the last report of a former instance.
    pub fn conflict_until_ms(&self, quiet_ms: u64) -> Option<u64> {
        self.conflict_seen_ms
            .map(|seen| seen.saturating_add(quiet_ms))
    }

    /// Returns the other instances that reported within `quiet_ms`. Empty without a conflict.
    pub fn rivals(&self, quiet_ms: u64, now_ms: u64) -> Vec<String> {
        if self
            .conflict_until_ms(quiet_ms)
            .is_none_or(|until| now_ms >= until)
        {
            return Vec::new();
        }
        self.former
            .iter()
            .filter(|(_, at_ms)| now_ms < at_ms.saturating_add(quiet_ms))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Ends the conflict in favour of one instance.
    pub fn resolve(&mut self, instance: &str) {
        *self = Self::new(instance, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_no_duplicate_and_a_return_is() {
        let mut agents = AgentInstances::new("a", Vec::new());
        assert!(!agents.record_report("a", 1));
        assert!(agents.record_report("b", 2));
        assert!(agents.record_report("c", 3));
        assert_eq!(agents.conflict_until_ms(60), None);
        assert!(agents.rivals(60, 3).is_empty());
        assert!(!agents.record_report("b", 4));
        assert_eq!(agents.conflict_until_ms(60), Some(64));
        assert!(!agents.record_report("c", 10));
        assert_eq!(agents.conflict_until_ms(60), Some(70));
        assert_eq!(agents.rivals(60, 61), ["a", "b"]);
        assert_eq!(agents.rivals(60, 69), ["b"]);
        assert!(agents.rivals(60, 70).is_empty(), "one instance is silent");
    }

    #[test]
    fn three_alternating_instances_are_detected() {
        let mut agents = AgentInstances::new("a", Vec::new());
        for (at, name) in ["b", "c"].into_iter().enumerate() {
            assert!(agents.record_report(name, at as u64));
        }
        for (at, name) in ["a", "b", "c", "a"].into_iter().enumerate() {
            assert!(
                !agents.record_report(name, 10 + at as u64),
                "{name} returns"
            );
        }
        assert!(agents.conflict_until_ms(60).is_some());
    }

    #[test]
    fn only_an_operator_ends_a_conflict_early() {
        let mut agents = AgentInstances::new("a", vec!["b".to_owned()]);
        agents.restart_watch(100);
        assert_eq!(agents.conflict_until_ms(60), Some(160));
        assert!(!agents.record_report("b", 101), "known as a duplicate");
        agents.resolve("a");
        assert_eq!(agents.conflict_until_ms(60), None);
        assert!(!agents.record_report("a", 102));
    }

    #[test]
    fn the_number_of_former_instances_is_bounded() {
        let mut agents = AgentInstances::new("0", Vec::new());
        for number in 1..100 {
            assert!(agents.record_report(&number.to_string(), number));
        }
        assert_eq!(agents.former.len(), MAX_FORMER);
    }
}
