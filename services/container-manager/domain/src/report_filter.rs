//! Which reports of a node's agent are worth reading.
//!
//! An agent numbers the reports of each of its instances, and instances follow each other without a
//! number. This memory drops what is certainly old. It may be lost at any time: decisions do not
//! rest on it (see [`crate::decide`]), so a report read twice or late changes nothing; it only
//! saves the work, and keeps a line out of the log.

use std::collections::VecDeque;

/// Instances remembered as over, per node. An agent that restarts more often than this within the
/// life of one request has other worries.
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
    /// Whether a report is new; notes it when it is.
    ///
    /// An instance that is over may have been taken for over wrongly, when a report of an even
    /// older one arrived late. It proves itself by answering a revision nobody answered before, as
    /// an agent that lives soon does.
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
    fn an_instance_that_is_over_stays_over() {
        let mut filter = ReportFilter::default();
        assert!(filter.accepts("a", 9, Some(4)));
        assert!(filter.accepts("b", 1, None));
        assert!(!filter.accepts("a", 10, Some(4)));
        assert!(
            !filter.accepts("z", 1, Some(3)),
            "answers less than was answered before"
        );
        assert!(filter.accepts("b", 2, Some(4)));
    }

    #[test]
    fn a_living_instance_taken_for_over_comes_back() {
        let mut filter = ReportFilter::default();
        assert!(filter.accepts("b", 1, Some(4)));
        assert!(
            filter.accepts("late", 5, Some(4)),
            "cannot be told from a new one"
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
