//! Tests of the fact log. Most tests count the failures that are held against the node `a`.

use hayward_vocabulary::UserName;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::node_fact::Attempt;

pub(crate) fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn new_fact(kind: FactKind, key: &str, at: i64, attempt: Option<Attempt>) -> Fact {
    Fact {
        key: key.to_owned(),
        kind,
        at: Timestamp::from_unix_ms(at),
        attempt,
        spent: false,
    }
}

fn new_attempt(work: &str, user: &str, cause: ExitCause, cause_class: Option<&str>) -> Attempt {
    Attempt {
        work: WorkId::new(work).unwrap(),
        user: UserName::new(user).unwrap(),
        cause,
        cause_class: cause_class.map(str::to_owned),
        has_run: false,
        occupied_ms: 0,
    }
}

pub(crate) fn failed_attempt(work: &str, user: &str, cause: ExitCause, at: i64) -> Fact {
    new_fact(
        FactKind::Failure,
        work,
        at,
        Some(new_attempt(work, user, cause, None)),
    )
}

pub(crate) fn failure_with_class(cause_class: &str, at: i64) -> Fact {
    let attempt = new_attempt("job_9", "cy", ExitCause::LaunchFailed, Some(cause_class));
    new_fact(FactKind::Failure, cause_class, at, Some(attempt))
}

pub(crate) fn successful_attempt(work: &str, user: &str, at: i64) -> Fact {
    let attempt = new_attempt(work, user, ExitCause::Success, None);
    new_fact(FactKind::Success, work, at, Some(attempt))
}

pub(crate) fn node_fact(kind: FactKind, at: i64) -> Fact {
    new_fact(kind, "node", at, None)
}

pub(crate) fn new_fact_log(facts: &[(&str, Fact)]) -> FactLog {
    let mut fact_log = FactLog::default();
    for (name, fact) in facts {
        fact_log.add(&node(name), fact.clone());
    }
    fact_log
}

fn count_failures_against_a(facts: &[(&str, Fact)]) -> usize {
    let window = Window {
        end: Timestamp::from_unix_ms(100),
        ms: 100,
    };
    new_fact_log(facts)
        .failures_against(&node("a"), window, |_| true)
        .len()
}

fn failed_launch(work: &str, user: &str, at: i64) -> Fact {
    failed_attempt(work, user, ExitCause::LaunchFailed, at)
}

#[test]
fn failures_of_one_user_count_against_no_node() {
    let failures_of_ann: Vec<(&str, Fact)> = ["job_1", "job_2", "job_3", "job_4"]
        .iter()
        .map(|work| ("a", failed_launch(work, "ann", 50)))
        .collect();
    assert_eq!(
        count_failures_against_a(&failures_of_ann),
        0,
        "four jobs of one user"
    );
    let repeated: Vec<(&str, Fact)> = (0..9)
        .map(|index| ("a", failed_launch("job_1", "ann", 50 + index)))
        .collect();
    assert_eq!(count_failures_against_a(&repeated), 0, "one job nine times");
    let mut failures_of_two_users = failures_of_ann[..2].to_vec();
    failures_of_two_users.push(("a", failed_launch("job_9", "bob", 51)));
    assert_eq!(
        count_failures_against_a(&failures_of_two_users),
        3,
        "three jobs of two users"
    );
    failures_of_two_users.push(("b", failed_launch("job_9", "bob", 52)));
    assert_eq!(
        count_failures_against_a(&failures_of_two_users),
        0,
        "job_9 also fails on node b, so only two jobs of one user remain"
    );
}

#[test]
fn a_launch_that_succeeds_on_another_node_counts_against_the_node() {
    let failure = ("a", failed_launch("job_1", "ann", 50));
    let success = ("b", successful_attempt("job_1", "ann", 40));
    assert_eq!(
        count_failures_against_a(&[failure.clone(), success.clone()]),
        1
    );
    let failure_on_c = ("c", failed_launch("job_1", "ann", 60));
    assert_eq!(
        count_failures_against_a(&[failure.clone(), success.clone(), failure_on_c]),
        0
    );
    let (node, mut failure_after_start) = failure;
    failure_after_start.attempt.as_mut().unwrap().has_run = true;
    assert_eq!(
        count_failures_against_a(&[(node, failure_after_start), success]),
        0,
        "a program that ran may fail because of its input"
    );
}

#[test]
fn a_success_clears_earlier_ambiguous_failures() {
    let mut facts = vec![
        ("a", failed_launch("job_1", "ann", 50)),
        ("a", failed_launch("job_2", "bob", 51)),
        ("a", failed_launch("job_3", "cy", 52)),
    ];
    assert_eq!(count_failures_against_a(&facts), 3);
    facts.push(("a", successful_attempt("job_4", "dan", 53)));
    assert_eq!(count_failures_against_a(&facts), 0);
    facts.push(("a", failure_with_class("disk_full", 49)));
    assert_eq!(
        count_failures_against_a(&facts),
        1,
        "a failure with a cause class still counts"
    );
}

#[test]
fn cause_classes_count_at_once_unless_the_image_fails_on_another_node() {
    assert_eq!(
        count_failures_against_a(&[("a", failure_with_class("disk_full", 50))]),
        1
    );
    assert_eq!(
        count_failures_against_a(&[("a", failure_with_class("image_pull", 50))]),
        1
    );
    let failures_on_two_nodes = [
        ("a", failure_with_class("image_pull", 50)),
        ("b", failure_with_class("image_pull", 51)),
    ];
    assert_eq!(
        count_failures_against_a(&failures_on_two_nodes),
        0,
        "the same image fails on another node"
    );
}

#[test]
fn failures_of_one_node_loss_count_as_one_event() {
    let loss = |work: &str, at| ("a", failed_attempt(work, "ann", ExitCause::Node, at));
    let facts: Vec<_> = (1..=9)
        .map(|number| loss(&format!("job_{number}"), 50))
        .collect();
    let window = Window {
        end: Timestamp::from_unix_ms(60_000),
        ms: 60_000,
    };
    let count = |facts: &[(&str, Fact)]| {
        new_fact_log(facts)
            .failures_against(&node("a"), window, |_| true)
            .len()
    };
    assert_eq!(count(&facts), 1);
    assert_eq!(count(&[facts, vec![loss("job_1", 40_000)]].concat()), 2);
}

#[test]
fn spent_and_old_facts_no_longer_count() {
    let mut fact_log = new_fact_log(&[
        ("a", failure_with_class("disk_full", 1)),
        ("a", failure_with_class("disk_full", 50)),
    ]);
    let window = |end| Window {
        end: Timestamp::from_unix_ms(end),
        ms: 50,
    };
    assert_eq!(
        fact_log
            .failures_against(&node("a"), window(50), |_| true)
            .len(),
        2
    );
    assert_eq!(
        fact_log
            .failures_against(&node("a"), window(51), |_| true)
            .len(),
        1
    );
    let removed = fact_log.retain(|fact| fact.at > Timestamp::from_unix_ms(1));
    assert_eq!(removed.len(), 1);
    assert_eq!(fact_log.facts(&node("a")).len(), 1);
    fact_log.mark_spent(&node("a"));
    assert_eq!(
        fact_log
            .failures_against(&node("a"), window(50), |_| true)
            .len(),
        0
    );
}

/// Generates the outcome of an attempt on one of three nodes.
fn any_fact() -> impl Strategy<Value = (&'static str, Fact)> {
    let causes = vec![
        ExitCause::LaunchFailed,
        ExitCause::UserError,
        ExitCause::Node,
        ExitCause::Intended,
        ExitCause::Success,
        ExitCause::Unknown,
    ];
    let works = vec!["job_0", "job_1", "job_2", "job_3"];
    (
        select(vec!["a", "b", "c"]),
        select(works),
        select(vec!["ann", "bob", "cy"]),
        select(causes),
        0..100_i64,
    )
        .prop_map(|(node, work, user, cause, at)| {
            let fact = if cause == ExitCause::Success {
                successful_attempt(work, user, at)
            } else {
                failed_attempt(work, user, cause, at)
            };
            (node, fact)
        })
}

/// Generates facts with distinct keys.
fn any_facts() -> impl Strategy<Value = Vec<(&'static str, Fact)>> {
    proptest::collection::vec(any_fact(), 0..20).prop_map(|mut facts| {
        for (number, (_, fact)) in facts.iter_mut().enumerate() {
            fact.key = number.to_string();
        }
        facts
    })
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_change_the_count(facts in any_facts()) {
        let reversed: Vec<_> = facts.iter().rev().cloned().collect();
        prop_assert_eq!(count_failures_against_a(&facts), count_failures_against_a(&reversed));
    }

    #[test]
    fn a_failure_on_another_node_never_adds_blame(facts in any_facts()) {
        let mut with_other_node = facts.clone();
        let failed_launch_on_z = |work| ("z", failed_launch(&format!("job_{work}"), "ann", 99));
        with_other_node.extend((0..4).map(failed_launch_on_z));
        let count = count_failures_against_a(&facts);
        prop_assert!(count_failures_against_a(&with_other_node) <= count);
    }
}
