//! Drops reports of an agent that are certainly old.
//!
//! An agent numbers its reports within one instance, which is one run of the agent. Two instances
//! cannot be ordered by their names. The filter may be lost at any time, because
//! [`decide`](crate::decide()) also handles old and repeated reports. The filter only saves work
//! and log lines.

use std::collections::VecDeque;

/// Maximum number of ended instances stored per node.
const MAX_ENDED_INSTANCES: usize = 8;

/// The reports of one node that were accepted so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportFilter {
    /// Empty until the first report.
    current_instance: String,
    last_sequence: u64,
    /// Highest revision of the desired set that a report of the node had seen.
    observed_revision: Option<u64>,
    ended_instances: VecDeque<String>,
}

impl ReportFilter {
    /// Returns whether the report is new, and records it in that case.
    ///
    /// A late report of an older instance may make the live instance look ended. The live instance
    /// is accepted again as soon as it has seen a revision that no earlier report had seen.
    pub fn accept(
        &mut self,
        instance: &str,
        sequence: u64,
        observed_revision: Option<u64>,
    ) -> bool {
        if instance == self.current_instance {
            if sequence <= self.last_sequence {
                return false;
            }
        } else {
            let is_ahead = observed_revision > self.observed_revision;
            let is_behind =
                observed_revision.is_some() && observed_revision < self.observed_revision;
            let is_ended = self.ended_instances.iter().any(|other| other == instance);
            if is_behind || (is_ended && !is_ahead) {
                return false;
            }
            self.ended_instances.retain(|other| other != instance);
            if !self.current_instance.is_empty() {
                self.ended_instances
                    .push_back(std::mem::take(&mut self.current_instance));
            }
            if self.ended_instances.len() > MAX_ENDED_INSTANCES {
                self.ended_instances.pop_front();
            }
            instance.clone_into(&mut self.current_instance);
        }
        self.last_sequence = sequence;
        self.observed_revision = self.observed_revision.max(observed_revision);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_older_numbers_of_an_instance_are_old() {
        let mut filter = ReportFilter::default();
        assert!(filter.accept("a", 1, None));
        assert!(!filter.accept("a", 1, None));
        assert!(filter.accept("a", 3, Some(7)));
        assert!(!filter.accept("a", 2, Some(7)));
    }

    #[test]
    fn an_ended_instance_stays_ended() {
        let mut filter = ReportFilter::default();
        assert!(filter.accept("a", 9, Some(4)));
        assert!(filter.accept("b", 1, None));
        assert!(!filter.accept("a", 10, Some(4)));
        assert!(
            !filter.accept("z", 1, Some(3)),
            "its observed revision is older than that of an earlier report"
        );
        assert!(filter.accept("b", 2, Some(4)));
    }

    #[test]
    fn a_live_instance_considered_ended_is_accepted_again() {
        let mut filter = ReportFilter::default();
        assert!(filter.accept("b", 1, Some(4)));
        assert!(
            filter.accept("late", 5, Some(4)),
            "a late report cannot be distinguished from a new one"
        );
        assert!(!filter.accept("b", 2, Some(4)));
        assert!(filter.accept("b", 3, Some(5)));
        assert!(!filter.accept("late", 6, Some(4)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut filter = ReportFilter::default();
        for number in 0..100 {
            assert!(filter.accept(&number.to_string(), 1, None));
        }
        assert_eq!(filter.ended_instances.len(), MAX_ENDED_INSTANCES);
    }
}
