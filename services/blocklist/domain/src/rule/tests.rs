use hayward_vocabulary::ExitCause;

use super::*;
use crate::fact_log::tests::{about_the_node, coded, fact_log, failed, node};

fn propose(rule: &Rule, facts: &[(&str, Fact)]) -> Vec<Proposal> {
    let fact_log = fact_log(facts);
    let scores = rule.scores(&fact_log, &node("a"), Timestamp::from_unix_ms(1_000));
    scores
        .into_iter()
        .filter_map(|score| score.proposal)
        .collect()
}

fn count(jobs: u64) -> Rule {
    Rule::FailureCount {
        failures: 3,
        window_ms: 600,
        jobs,
        duration_ms: 60_000,
    }
}

/// A failure that counts against the node.
fn bad(work: &str, at: i64) -> (&'static str, Fact) {
    let mut fact = failed(work, "ann", ExitCause::LaunchFailed, at);
    fact.key = format!("{work}-{at}");
    fact.attempt.as_mut().unwrap().code = Some("runtime_down".to_owned());
    ("a", fact)
}

#[test]
fn failure_count_needs_enough_failures_jobs_and_a_recent_window() {
    let two = [bad("job_1", 900), bad("job_1", 950)];
    assert_eq!(propose(&count(1), &two), []);
    let three = [two.to_vec(), vec![bad("job_2", 990)]].concat();
    let found = propose(&count(1), &three);
    assert_eq!(found[0].cause, "3 failures in 600 ms");
    assert_eq!(
        (
            found[0].action,
            found[0].duration_ms,
            found[0].source.as_str()
        ),
        (Action::Mark, 60_000, "strategy:failure-count")
    );
    assert_eq!(propose(&count(2), &three).len(), 1);
    assert_eq!(propose(&count(3), &three), [], "two distinct works");
    let old = [two.to_vec(), vec![bad("job_2", 400)]].concat();
    assert_eq!(propose(&count(1), &old), [], "one is out of the window");
    assert_eq!(propose(&Rule::None, &three), []);
}

#[test]
fn an_intended_exit_proposes_no_block() {
    let mut all: Vec<_> = (0..20).map(|at| bad("job_1", 900 + at)).collect();
    for (_, fact) in &mut all {
        fact.attempt.as_mut().unwrap().cause = ExitCause::Intended;
    }
    let chain = Rule::Chain(vec![
        count(1),
        Rule::StartFailures {
            failures: 1,
            window_ms: 600,
            duration_ms: 1,
        },
        Rule::CauseClass {
            classes: [("runtime_down".to_owned(), class(5))].into(),
        },
    ]);
    assert_eq!(propose(&chain, &all), []);
}

fn class(duration_ms: u64) -> Class {
    Class {
        action: Action::Mark,
        duration_ms,
    }
}

#[test]
fn start_failures_count_only_attempts_that_never_ran() {
    let rule = Rule::StartFailures {
        failures: 2,
        window_ms: 300,
        duration_ms: 5,
    };
    let mut facts = [bad("job_1", 900), bad("job_2", 950)];
    assert_eq!(propose(&rule, &facts).len(), 1);
    facts[0].1.attempt.as_mut().unwrap().ran = true;
    assert_eq!(propose(&rule, &facts), []);
}

#[test]
fn a_listed_class_blocks_at_once_and_an_unlisted_one_never() {
    let rule = Rule::CauseClass {
        classes: [
            ("disk_full".to_owned(), class(5)),
            (
                "read_only_fs".to_owned(),
                Class {
                    action: Action::IMMEDIATE,
                    duration_ms: 3,
                },
            ),
        ]
        .into(),
    };
    let found = propose(&rule, &[("a", coded("disk_full", 900))]);
    assert_eq!(
        (found[0].action, found[0].cause.as_str()),
        (Action::Mark, "disk_full")
    );
    assert_eq!(propose(&rule, &[("a", coded("gremlins", 900))]), []);
    let both = [
        ("a", coded("disk_full", 900)),
        ("a", coded("read_only_fs", 901)),
    ];
    let found = propose(&rule, &both);
    assert_eq!(
        (found[0].action, found[0].duration_ms),
        (Action::IMMEDIATE, 5)
    );
}

#[test]
fn flapping_counts_losses_followed_by_a_return() {
    let rule = Rule::Flapping {
        flaps: 2,
        window_ms: 900,
        duration_ms: 5,
    };
    let lost = |at| ("a", about_the_node(NodeFact::LostContact, at));
    let back = |at| ("a", about_the_node(NodeFact::Contact, at));
    assert_eq!(propose(&rule, &[lost(900), back(910), lost(920)]), []);
    let turned = [lost(900), back(910), lost(920), back(930)];
    assert_eq!(
        propose(&rule, &turned)[0].cause,
        "2 losses of the heartbeat in 900 ms"
    );
}

#[test]
fn a_slow_task_blocks_its_node_unless_the_duration_is_0() {
    let mut slow = failed("job_7", "ann", ExitCause::Unknown, 900);
    slow.kind = NodeFact::Slow;
    let on = propose(&Rule::SlowTask { duration_ms: 60 }, &[("a", slow.clone())]);
    assert_eq!(
        (on[0].source.as_str(), on[0].duration_ms),
        ("slow-task:job_7", 60)
    );
    assert_eq!(
        propose(&Rule::SlowTask { duration_ms: 0 }, &[("a", slow.clone())]),
        []
    );
    assert_eq!(propose(&count(1), &[("a", slow)]), [], "slow is not failed");
}

#[test]
fn a_chain_is_the_union_of_its_rules() {
    let chain = Rule::Chain(vec![count(1), Rule::SlowTask { duration_ms: 60 }]);
    let mut facts: Vec<_> = (0..3).map(|at| bad("job_1", 900 + at)).collect();
    let mut slow = failed("job_7", "ann", ExitCause::Unknown, 900);
    slow.kind = NodeFact::Slow;
    facts.push(("a", slow));
    assert_eq!(propose(&chain, &facts).len(), 2);
    assert_eq!(chain.longest_window_ms(), SINGLE_FACT_WINDOW_MS);
}

#[test]
fn durations_are_printed_in_the_largest_whole_unit() {
    assert_eq!(
        [span(600_000), span(90_000), span(20)],
        ["10 min", "90 s", "20 ms"]
    );
}
