//! Tests of the rules. The facts are about the node `a`, and the newest one is at most at 1,000 ms.

use hayward_vocabulary::ExitCause;

use super::*;
use crate::fact_log::tests::{failed_attempt, failure_with_class, new_fact_log, node, node_fact};

/// Returns the blocks that a rule proposes for the node `a`.
fn proposals(rule: &Rule, facts: &[(&str, Fact)]) -> Vec<Proposal> {
    let fact_log = new_fact_log(facts);
    let scores = rule.scores(&fact_log, &node("a"), Timestamp::from_unix_ms(1_000));
    scores
        .into_iter()
        .filter_map(|score| score.proposal)
        .collect()
}

fn failure_count_rule(jobs: u64) -> Rule {
    Rule::FailureCount {
        failures: 3,
        window_ms: 600,
        jobs,
        duration_ms: 60_000,
    }
}

/// Creates a failure that counts against the node `a`.
fn node_failure(work: &str, at: i64) -> (&'static str, Fact) {
    let mut fact = failed_attempt(work, "ann", ExitCause::LaunchFailed, at);
    fact.key = format!("{work}-{at}");
    fact.attempt.as_mut().unwrap().cause_class = Some("runtime_down".to_owned());
    ("a", fact)
}

#[test]
fn failure_count_needs_enough_recent_failures_from_enough_jobs() {
    let two_failures = [node_failure("job_1", 900), node_failure("job_1", 950)];
    assert_eq!(proposals(&failure_count_rule(1), &two_failures), []);
    let three_failures = [two_failures.to_vec(), vec![node_failure("job_2", 990)]].concat();
    let expected = Proposal {
        action: Action::Mark,
        duration_ms: 60_000,
        cause: "3 failures in 600 ms".to_owned(),
        source: "strategy:failure-count".to_owned(),
    };
    assert_eq!(
        proposals(&failure_count_rule(1), &three_failures),
        [expected]
    );
    assert_eq!(proposals(&failure_count_rule(2), &three_failures).len(), 1);
    assert_eq!(
        proposals(&failure_count_rule(3), &three_failures),
        [],
        "the failures are of two jobs, and the rule requires three"
    );
    let with_old_failure = [two_failures.to_vec(), vec![node_failure("job_2", 400)]].concat();
    assert_eq!(
        proposals(&failure_count_rule(1), &with_old_failure),
        [],
        "one of the three failures is outside the window"
    );
    assert_eq!(proposals(&Rule::None, &three_failures), []);
}

#[test]
fn an_intended_exit_proposes_no_block() {
    let mut facts: Vec<_> = (0..20)
        .map(|index| node_failure("job_1", 900 + index))
        .collect();
    for (_, fact) in &mut facts {
        fact.attempt.as_mut().unwrap().cause = ExitCause::Intended;
    }
    let chain = Rule::Chain(vec![
        failure_count_rule(1),
        Rule::StartFailures {
            failures: 1,
            window_ms: 600,
            duration_ms: 1,
        },
        Rule::CauseClass {
            classes: [("runtime_down".to_owned(), mark_policy(5))].into(),
        },
    ]);
    assert_eq!(proposals(&chain, &facts), []);
}

fn mark_policy(duration_ms: u64) -> ClassPolicy {
    ClassPolicy {
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
    let (first, second) = (node_failure("job_1", 900), node_failure("job_2", 950));
    assert_eq!(proposals(&rule, &[first.clone(), second.clone()]).len(), 1);
    let (node, mut failed_after_start) = first;
    failed_after_start.attempt.as_mut().unwrap().has_run = true;
    assert_eq!(proposals(&rule, &[(node, failed_after_start), second]), []);
}

#[test]
fn a_listed_class_blocks_at_once_and_an_unlisted_class_never_blocks() {
    let rule = Rule::CauseClass {
        classes: [
            ("disk_full".to_owned(), mark_policy(5)),
            (
                "read_only_fs".to_owned(),
                ClassPolicy {
                    action: Action::IMMEDIATE,
                    duration_ms: 3,
                },
            ),
        ]
        .into(),
    };
    let proposed = proposals(&rule, &[("a", failure_with_class("disk_full", 900))]);
    assert_eq!(
        (proposed[0].action, proposed[0].cause.as_str()),
        (Action::Mark, "disk_full")
    );
    assert_eq!(
        proposals(&rule, &[("a", failure_with_class("gremlins", 900))]),
        []
    );
    let two_classes = [
        ("a", failure_with_class("disk_full", 900)),
        ("a", failure_with_class("read_only_fs", 901)),
    ];
    let proposed = proposals(&rule, &two_classes);
    assert_eq!(
        (proposed[0].action, proposed[0].duration_ms),
        (Action::IMMEDIATE, 5)
    );
}

#[test]
fn flapping_counts_losses_of_contact_that_end() {
    let rule = Rule::Flapping {
        flaps: 2,
        window_ms: 900,
        duration_ms: 5,
    };
    let loss = |at| ("a", node_fact(FactKind::LostContact, at));
    let contact = |at| ("a", node_fact(FactKind::Contact, at));
    assert_eq!(proposals(&rule, &[loss(900), contact(910), loss(920)]), []);
    let regained = [loss(900), contact(910), loss(920), contact(930)];
    assert_eq!(
        proposals(&rule, &regained)[0].cause,
        "2 losses of the heartbeat in 900 ms"
    );
}

#[test]
fn a_slow_task_blocks_its_node_unless_the_duration_is_0() {
    let mut slow = failed_attempt("job_7", "ann", ExitCause::Unknown, 900);
    slow.kind = FactKind::Slow;
    let proposed = proposals(&Rule::SlowTask { duration_ms: 60 }, &[("a", slow.clone())]);
    assert_eq!(
        (proposed[0].source.as_str(), proposed[0].duration_ms),
        ("slow-task:job_7", 60)
    );
    assert_eq!(
        proposals(&Rule::SlowTask { duration_ms: 0 }, &[("a", slow.clone())]),
        []
    );
    assert_eq!(
        proposals(&failure_count_rule(1), &[("a", slow)]),
        [],
        "a slow task is not a failure"
    );
}

#[test]
fn a_chain_is_the_union_of_its_rules() {
    let chain = Rule::Chain(vec![
        failure_count_rule(1),
        Rule::SlowTask { duration_ms: 60 },
    ]);
    let mut facts: Vec<_> = (0..3)
        .map(|index| node_failure("job_1", 900 + index))
        .collect();
    let mut slow = failed_attempt("job_7", "ann", ExitCause::Unknown, 900);
    slow.kind = FactKind::Slow;
    facts.push(("a", slow));
    assert_eq!(proposals(&chain, &facts).len(), 2);
    assert_eq!(chain.longest_window_ms(), SINGLE_FACT_WINDOW_MS);
}

#[test]
fn durations_are_printed_in_the_largest_whole_unit() {
    assert_eq!(
        [
            format_duration(600_000),
            format_duration(90_000),
            format_duration(20)
        ],
        ["10 min", "90 s", "20 ms"]
    );
}
