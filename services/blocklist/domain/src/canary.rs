//! What one fact means for a machine on trial (W6).

use hayward_vocabulary::NodeName;

use crate::fact::{Blame, Fact, What};
use crate::record::{Record, Window};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It works: it is trusted again.
    Passed,
    /// It is blocked again, for longer.
    Failed,
    /// The fact says nothing about the machine.
    Open,
}

/// A machine on trial has a record already, so one launch that fails is enough, borne out or not;
/// but not one of a work that fails elsewhere too, and not the end of a program that ran.
pub fn verdict(record: &Record, node: &NodeName, fact: &Fact, window_ms: u64) -> Verdict {
    let window = Window {
        end: fact.at,
        ms: window_ms,
    };
    let elsewhere = || record.fails_elsewhere(node, fact, window);
    match (fact.what, fact.blame()) {
        (What::Worked, _) => Verdict::Passed,
        (What::Silenced, _) | (_, Blame::Machine) => Verdict::Failed,
        (_, Blame::Shared) if !elsewhere() => Verdict::Failed,
        (_, Blame::Doubtful) if fact.at_start() && !elsewhere() => Verdict::Failed,
        _ => Verdict::Open,
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::ExitCause;

    use super::*;
    use crate::record::tests::{coded, failed, node, record, worked};

    #[test]
    fn one_fact_decides_and_a_users_fault_does_not() {
        let a = node("a");
        let launch = failed("job_1", "ann", ExitCause::LaunchFailed, 5);
        let ran = {
            let mut fact = failed("job_1", "ann", ExitCause::UserError, 5);
            fact.attempt.as_mut().unwrap().ran = true;
            fact
        };
        let on = |facts: &[(&str, Fact)], fact: &Fact| verdict(&record(facts), &a, fact, 1_000);
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
