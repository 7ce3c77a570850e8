//! Drops reports of an agent that are certainly old.
//!
//! An agent numbers its reports within one instance (one run of the agent); instances have no
//! order. The filter may be lost at any time, because [`crate::decide`] also handles old and
//! repeated reports. It only saves work and log lines.

use std::collections::VecDeque;

/// Ended instances remembered per node.
const MAX_FINISHED: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportFilter {
    instance: String,
    sequence: u64,
    /// The highest revision any report of the node answered.
    answers: Option<u64>,
    finished: VecDeque<String>,
}

impl ReportFilter {
    /// True if the report is new; then it is recorded.
    ///
    /// A live instance may be wrongly considered ended when a report of an older one arrives late.
    /// It is accepted again as soon as it answers a revision that no report has answered before.
    pub fn accepts(&mut self, instance: &str, sequence: u64, answers: Option<u64>) -> bool {
        if instance == self.instance {
            if sequence <= self.sequence {
                return false;
            }
        } else {
            let ahead = answers > self.answers;
            let behind = answers.is_some() && answers < self.answers;
            let finished = self.finished.iter().any(|other| other == instance);
            if behind || (finished && !ahead) {
                return false;
            }
            self.finished.retain(|other| other != instance);
            if !self.instance.is_empty() {
                self.finished.push_back(std::mem::take(&mut self.instance));
            }
            if self.finished.len() > MAX_FINISHED {
                self.finished.pop_front();
            }
            instance.clone_into(&mut self.instance);
        }
        self.sequence = sequence;
        self.answers = self.answers.max(answers);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_older_numbers_of_an_instance_are_old() {
        let mut filter = ReportFilter::default();
        assert!(filter.accepts("a", 1, None));
        assert!(!filter.accepts("a", 1, None));
        assert!(filter.accepts("a", 3, Some(7)));
        assert!(!filter.accepts("a", 2, Some(7)));
    }

    #[test]
    fn an_ended_instance_stays_ended() {
        let mut filter = ReportFilter::default();
        assert!(filter.accepts("a", 9, Some(4)));
        assert!(filter.accepts("b", 1, None));
        assert!(!filter.accepts("a", 10, Some(4)));
        assert!(
            !filter.accepts("z", 1, Some(3)),
            "it answers an older revision than was answered before"
        );
        assert!(filter.accepts("b", 2, Some(4)));
    }

    #[test]
    fn a_live_instance_considered_ended_is_accepted_again() {
        let mut filter = ReportFilter::default();
        assert!(filter.accepts("b", 1, Some(4)));
        assert!(
            filter.accepts("late", 5, Some(4)),
            "it is indistinguishable from a new one"
        );
        assert!(!filter.accepts("b", 2, Some(4)));
        assert!(filter.accepts("b", 3, Some(5)));
        assert!(!filter.accepts("late", 6, Some(4)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut filter = ReportFilter::default();
        for number in 0..100 {
            assert!(filter.accepts(&number.to_string(), 1, None));
        }
        assert_eq!(filter.finished.len(), MAX_FINISHED);
    }
}
