//! Effect of one fact on a node on trial (W6).

use hayward_vocabulary::NodeName;

use crate::fact::{Blame, Fact, NodeFact};
use crate::fact_log::{FactLog, Window};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The node works and is unblocked.
    Passed,
    /// The node is blocked again, for longer.
    Failed,
    /// The fact does not decide.
    Open,
}

/// A node on trial was blocked before, so one failed launch is enough, confirmed or not. A failure
/// of work that also fails elsewhere does not count, nor does the end of a program that ran.
pub fn verdict(fact_log: &FactLog, node: &NodeName, fact: &Fact, window_ms: u64) -> Verdict {
    let window = Window {
        end: fact.at,
        ms: window_ms,
    };
    let elsewhere = || fact_log.fails_elsewhere(node, fact, window);
    match (fact.kind, fact.blame()) {
        (NodeFact::Success, _) => Verdict::Passed,
        (NodeFact::LostContact, _) | (_, Blame::Node) => Verdict::Failed,
        (_, Blame::Shared) if !elsewhere() => Verdict::Failed,
        (_, Blame::Ambiguous) if fact.at_start() && !elsewhere() => Verdict::Failed,
        _ => Verdict::Open,
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::ExitCause;

    use super::*;
    use crate::fact_log::tests::{coded, fact_log, failed, node, worked};

    #[test]
    fn one_node_fault_decides_and_a_user_fault_does_not() {
        let a = node("a");
        let launch = failed("job_1", "ann", ExitCause::LaunchFailed, 5);
        let ran = {
            let mut fact = failed("job_1", "ann", ExitCause::UserError, 5);
            fact.attempt.as_mut().unwrap().ran = true;
            fact
        };
        let on = |facts: &[(&str, Fact)], fact: &Fact| verdict(&fact_log(facts), &a, fact, 1_000);
        assert_eq!(on(&[], &worked("job_1", "ann", 5)), Verdict::Passed);
        assert_eq!(on(&[], &coded("runtime_down", 5)), Verdict::Failed);
        assert_eq!(on(&[], &launch), Verdict::Failed);
        assert_eq!(
            on(&[], &ran),
            Verdict::Open,
            "a program ran there, and failed by itself"
        );
        let too = failed("job_1", "ann", ExitCause::LaunchFailed, 4);
        assert_eq!(
            on(&[("b", too)], &launch),
            Verdict::Open,
            "it fails elsewhere as well"
        );
        let intended = failed("job_1", "ann", ExitCause::Intended, 5);
        assert_eq!(on(&[], &intended), Verdict::Open, "23");
    }
}
