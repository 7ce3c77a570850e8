//! Decides by one fact whether a node on trial works (W6).

use hayward_vocabulary::NodeName;

use crate::fact_log::{FactLog, Window};
use crate::node_fact::{Blame, Fact, FactKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The node works, and its trial ends.
    Passed,
    /// The node is blocked again, for longer.
    Failed,
    /// The fact decides nothing, and the trial continues.
    Undecided,
}

/// Returns the verdict of one fact. One failed launch fails the trial, even if no other fact
/// confirms that the node is to blame, because the node was blocked before. A failure of work that
/// also fails on another node does not count. A program that fails after its start does not count
/// either.
pub fn judge_fact(fact_log: &FactLog, node: &NodeName, fact: &Fact, window_ms: u64) -> Verdict {
    let window = Window {
        end: fact.at,
        ms: window_ms,
    };
    let fails_on_other_node = || fact_log.fails_on_other_node(node, fact, window);
    match (fact.kind, fact.blame()) {
        (FactKind::Success, _) => Verdict::Passed,
        (FactKind::LostContact, _) | (_, Blame::Node) => Verdict::Failed,
        (_, Blame::Shared) if !fails_on_other_node() => Verdict::Failed,
        (_, Blame::Ambiguous) if fact.failed_at_start() && !fails_on_other_node() => {
            Verdict::Failed
        }
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::ExitCause;

    use super::*;
    use crate::fact_log::tests::{
        failed_attempt, failure_with_class, new_fact_log, node, successful_attempt,
    };

    #[test]
    fn one_node_fault_fails_the_trial_and_a_user_fault_does_not() {
        let node_a = node("a");
        let failed_launch = failed_attempt("job_1", "ann", ExitCause::LaunchFailed, 5);
        let failed_after_start = {
            let mut fact = failed_attempt("job_1", "ann", ExitCause::UserError, 5);
            fact.attempt.as_mut().unwrap().has_run = true;
            fact
        };
        let judge = |facts: &[(&str, Fact)], fact: &Fact| {
            judge_fact(&new_fact_log(facts), &node_a, fact, 1_000)
        };
        assert_eq!(
            judge(&[], &successful_attempt("job_1", "ann", 5)),
            Verdict::Passed
        );
        assert_eq!(
            judge(&[], &failure_with_class("runtime_down", 5)),
            Verdict::Failed
        );
        assert_eq!(judge(&[], &failed_launch), Verdict::Failed);
        assert_eq!(
            judge(&[], &failed_after_start),
            Verdict::Undecided,
            "the program ran on the node and failed by itself"
        );
        let failure_on_b = failed_attempt("job_1", "ann", ExitCause::LaunchFailed, 4);
        assert_eq!(
            judge(&[("b", failure_on_b)], &failed_launch),
            Verdict::Undecided,
            "the work also fails on another node"
        );
        let intended = failed_attempt("job_1", "ann", ExitCause::Intended, 5);
        assert_eq!(
            judge(&[], &intended),
            Verdict::Undecided,
            "an ordered end is not a failure (scenario 23)"
        );
    }
}
