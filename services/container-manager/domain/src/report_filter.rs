//! Drops reports of an agent that are certainly old.
//!
//! An agent numbers its reports within one instance, which is one run of the agent. Instances have
//! no order. The filter may be lost at any time, because [`crate::decide`] also handles old and
//! repeated reports. It only saves work and log lines.

use std::collections::VecDeque;

/// Maximum number of ended instances remembered per node.
const MAX_FINISHED_INSTANCES: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportFilter {
    current_instance: String,
    last_sequence: u64,
    /// Highest revision of the desired set that a report of the node had seen.
    observed_revision: Option<u64>,
    finished_instances: VecDeque<String>,
}

impl ReportFilter {
    /// Returns whether the report is new, and records it in that case.
    ///
    /// A live instance may be considered ended by mistake when a report of an older one arrives
    /// late. It is accepted again as soon as it has seen a revision that no earlier report had
    /// seen.
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
            let is_finished = self
                .finished_instances
                .iter()
                .any(|other| other == instance);
            if is_behind || (is_finished && !is_ahead) {
                return false;
            }
            self.finished_instances.retain(|other| other != instance);
            if !self.current_instance.is_empty() {
                self.finished_instances
                    .push_back(std::mem::take(&mut self.current_instance));
            }
            if self.finished_instances.len() > MAX_FINISHED_INSTANCES {
                self.finished_instances.pop_front();
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
        assert_eq!(filter.finished_instances.len(), MAX_FINISHED_INSTANCES);
    }
}
