//! F28: a cloned disk makes two agents report as one node. Each start of an agent has an instance
//! name that never comes back, so an instance that reports after a later one did proves a twin.

/// What is known of the instances that report as one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Twins {
    current: String,
    former: Option<String>,
    seen_ms: Option<u64>,
}

impl Twins {
    /// Starts with the instance that was current when it was last written down.
    pub fn of(instance: impl Into<String>) -> Self {
        Self {
            current: instance.into(),
            former: None,
            seen_ms: None,
        }
    }

    /// An instance reports. True when it is a new one that takes the place of the current one.
    pub fn heard(&mut self, instance: &str, now_ms: u64) -> bool {
        if instance == self.current {
            return false;
        }
        let returns = self.former.as_deref() == Some(instance);
        if returns {
            self.seen_ms = Some(now_ms);
        }
        let current = std::mem::replace(&mut self.current, instance.to_owned());
        self.former = Some(current);
        !returns
    }

    /// Until when the node is not to be trusted: `quiet_ms` after the two last took turns.
    pub fn until_ms(&self, quiet_ms: u64) -> Option<u64> {
        self.seen_ms.map(|seen| seen.saturating_add(quiet_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_no_twin_and_a_return_is() {
        let mut twins = Twins::of("a");
        assert!(!twins.heard("a", 1));
        assert!(twins.heard("b", 2));
        assert!(twins.heard("c", 3));
        assert_eq!(twins.until_ms(60), None);
        assert!(!twins.heard("b", 4));
        assert_eq!(twins.until_ms(60), Some(64));
        assert!(!twins.heard("c", 10));
        assert_eq!(twins.until_ms(60), Some(70));
    }
}
