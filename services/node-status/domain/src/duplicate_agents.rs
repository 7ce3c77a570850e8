//! F28: a cloned disk makes two agents report as one node. Each start of an agent has an instance
//! name that never comes back, so an instance that reports after a later one did proves a twin.

use std::collections::VecDeque;

/// Earlier instances that are remembered: an agent that starts again and again leaves many.
const REMEMBERED: usize = 8;

/// What is known of the instances that report as one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Twins {
    current: String,
    /// With when each was last heard, the latest last.
    former: VecDeque<(String, u64)>,
    seen_ms: Option<u64>,
}

impl Twins {
    /// Starts with what was written down: the instance that was current, and those it was torn
    /// between.
    pub fn of(instance: impl Into<String>, rivals: Vec<String>) -> Self {
        Self {
            current: instance.into(),
            former: rivals.into_iter().map(|name| (name, 0)).collect(),
            seen_ms: None,
        }
    }

    /// A watch begins: those that were undecided count as seen now, because an outage of ours
    /// settles nothing.
    pub fn seen_at(&mut self, now_ms: u64) {
        self.seen_ms = (!self.former.is_empty()).then_some(now_ms);
        for (_, heard) in &mut self.former {
            *heard = now_ms;
        }
    }

    /// An instance reports. True when it is a new one that takes the place of the current one.
    pub fn heard(&mut self, instance: &str, now_ms: u64) -> bool {
        if instance == self.current {
            return false;
        }
        let place = self.former.iter().position(|(name, _)| name == instance);
        if let Some(place) = place {
            self.former.remove(place);
            self.seen_ms = Some(now_ms);
        }
        let current = std::mem::replace(&mut self.current, instance.to_owned());
        self.former.push_back((current, now_ms));
        if self.former.len() > REMEMBERED {
            self.former.pop_front();
        }
        place.is_none()
    }

    /// Who reported last.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// Until when the node is not to be trusted: `quiet_ms` after two last took turns.
    pub fn until_ms(&self, quiet_ms: u64) -> Option<u64> {
        self.seen_ms.map(|seen| seen.saturating_add(quiet_ms))
    }

    /// Everyone but the current one that was heard within `quiet_ms`, while it is undecided.
    pub fn rivals(&self, quiet_ms: u64, now_ms: u64) -> Vec<String> {
        if self.until_ms(quiet_ms).is_none_or(|until| now_ms >= until) {
            return Vec::new();
        }
        self.former
            .iter()
            .filter(|(_, heard)| now_ms < heard.saturating_add(quiet_ms))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Somebody said which one stays: the others are forgotten here.
    pub fn settle(&mut self, instance: &str) {
        *self = Self::of(instance, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_no_twin_and_a_return_is() {
        let mut twins = Twins::of("a", Vec::new());
        assert!(!twins.heard("a", 1));
        assert!(twins.heard("b", 2));
        assert!(twins.heard("c", 3));
        assert_eq!(twins.until_ms(60), None);
        assert!(twins.rivals(60, 3).is_empty());
        assert!(!twins.heard("b", 4));
        assert_eq!(twins.until_ms(60), Some(64));
        assert!(!twins.heard("c", 10));
        assert_eq!(twins.until_ms(60), Some(70));
        assert_eq!(twins.rivals(60, 61), ["a", "b"]);
        assert_eq!(twins.rivals(60, 69), ["b"]);
        assert!(twins.rivals(60, 70).is_empty(), "one has been silent");
    }

    #[test]
    fn three_that_take_turns_are_seen_too() {
        let mut twins = Twins::of("a", Vec::new());
        for (at, name) in ["b", "c"].into_iter().enumerate() {
            assert!(twins.heard(name, at as u64));
        }
        for (at, name) in ["a", "b", "c", "a"].into_iter().enumerate() {
            assert!(!twins.heard(name, 10 + at as u64), "{name} returns");
        }
        assert!(twins.until_ms(60).is_some());
    }

    #[test]
    fn an_outage_of_ours_settles_nothing_and_an_operator_does() {
        let mut twins = Twins::of("a", vec!["b".to_owned()]);
        twins.seen_at(100);
        assert_eq!(twins.until_ms(60), Some(160));
        assert!(!twins.heard("b", 101), "known to be a twin");
        twins.settle("a");
        assert_eq!(twins.until_ms(60), None);
        assert!(!twins.heard("a", 102));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut twins = Twins::of("0", Vec::new());
        for number in 1..100 {
            assert!(twins.heard(&number.to_string(), number));
        }
        assert_eq!(twins.former.len(), REMEMBERED);
    }
}
