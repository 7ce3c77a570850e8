use hayward_vocabulary::UserName;
use proptest::prelude::*;

use super::*;
use crate::fact::Attempt;

pub(crate) fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn fact(what: What, key: &str, at: i64, attempt: Option<Attempt>) -> Fact {
    Fact {
        key: key.to_owned(),
        what,
        at: Timestamp::from_unix_ms(at),
        attempt,
        spent: false,
    }
}

fn attempt(work: &str, user: &str, cause: ExitCause, code: Option<&str>) -> Attempt {
    Attempt {
        work: WorkId::new(work).unwrap(),
        user: UserName::new(user).unwrap(),
        cause,
        code: code.map(str::to_owned),
        ran: false,
        held_ms: 0,
    }
}

pub(crate) fn failed(work: &str, user: &str, cause: ExitCause, at: i64) -> Fact {
    fact(
        What::Failed,
        work,
        at,
        Some(attempt(work, user, cause, None)),
    )
}

pub(crate) fn coded(code: &str, at: i64) -> Fact {
    let attempt = attempt("job_9", "cy", ExitCause::LaunchFailed, Some(code));
    fact(What::Failed, code, at, Some(attempt))
}

pub(crate) fn worked(work: &str, user: &str, at: i64) -> Fact {
    let attempt = attempt(work, user, ExitCause::Success, None);
    fact(What::Worked, work, at, Some(attempt))
}

pub(crate) fn about_the_machine(what: What, at: i64) -> Fact {
    fact(what, "machine", at, None)
}

pub(crate) fn record(facts: &[(&str, Fact)]) -> Record {
    let mut record = Record::default();
    for (name, fact) in facts {
        record.add(&node(name), fact.clone());
    }
    record
}

fn counted(facts: &[(&str, Fact)]) -> usize {
    let window = Window {
        end: Timestamp::from_unix_ms(100),
        ms: 100,
    };
    record(facts).against(&node("a"), window, |_| true).len()
}

fn launch(work: &str, user: &str, at: i64) -> Fact {
    failed(work, user, ExitCause::LaunchFailed, at)
}

#[test]
fn one_users_mistake_blames_no_machine() {
    let mine: Vec<(&str, Fact)> = ["job_1", "job_2", "job_3", "job_4"]
        .iter()
        .map(|work| ("a", launch(work, "ann", 50)))
        .collect();
    assert_eq!(counted(&mine), 0, "four jobs of one user");
    let again: Vec<(&str, Fact)> = (0..9)
        .map(|at| ("a", launch("job_1", "ann", 50 + at)))
        .collect();
    assert_eq!(counted(&again), 0, "one job nine times");
    let mut two = mine[..2].to_vec();
    two.push(("a", launch("job_9", "bob", 51)));
    assert_eq!(counted(&two), 3, "three works of two users");
    two.push(("b", launch("job_9", "bob", 52)));
    assert_eq!(
        counted(&two),
        0,
        "one of them fails elsewhere: two of one user are left"
    );
}

#[test]
fn a_launch_that_works_elsewhere_is_this_machines_fault() {
    let (here, there) = (
        ("a", launch("job_1", "ann", 50)),
        ("b", worked("job_1", "ann", 40)),
    );
    assert_eq!(counted(&[here.clone(), there.clone()]), 1);
    let elsewhere = ("c", launch("job_1", "ann", 60));
    assert_eq!(counted(&[here.clone(), there.clone(), elsewhere]), 0);
    let mut ran = here;
    ran.1.attempt.as_mut().unwrap().ran = true;
    assert_eq!(
        counted(&[ran, there]),
        0,
        "a program that ran may differ by its input"
    );
}

#[test]
fn a_program_that_works_speaks_for_the_machine() {
    let mut facts = vec![
        ("a", launch("job_1", "ann", 50)),
        ("a", launch("job_2", "bob", 51)),
        ("a", launch("job_3", "cy", 52)),
    ];
    assert_eq!(counted(&facts), 3);
    facts.push(("a", worked("job_4", "dan", 53)));
    assert_eq!(counted(&facts), 0);
    facts.push(("a", coded("disk_full", 49)));
    assert_eq!(
        counted(&facts),
        1,
        "a class lies with the machine all the same"
    );
}

#[test]
fn classes_count_at_once_and_a_registry_is_not_a_machine() {
    assert_eq!(counted(&[("a", coded("disk_full", 50))]), 1);
    assert_eq!(counted(&[("a", coded("image_pull", 50))]), 1);
    let both = [
        ("a", coded("image_pull", 50)),
        ("b", coded("image_pull", 51)),
    ];
    assert_eq!(counted(&both), 0, "the same image fails elsewhere");
}

#[test]
fn what_a_lost_machine_takes_down_is_one_event() {
    let lost = |work: &str, at| ("a", failed(work, "ann", ExitCause::Node, at));
    let facts: Vec<_> = (1..=9).map(|n| lost(&format!("job_{n}"), 50)).collect();
    let within = Window {
        end: Timestamp::from_unix_ms(60_000),
        ms: 60_000,
    };
    let of = |facts: &[(&str, Fact)]| record(facts).against(&node("a"), within, |_| true).len();
    assert_eq!(of(&facts), 1);
    assert_eq!(of(&[facts, vec![lost("job_1", 40_000)]].concat()), 2);
}

#[test]
fn spent_and_old_facts_count_no_more() {
    let mut record = record(&[("a", coded("disk_full", 1)), ("a", coded("disk_full", 50))]);
    let window = |end| Window {
        end: Timestamp::from_unix_ms(end),
        ms: 50,
    };
    assert_eq!(record.against(&node("a"), window(50), |_| true).len(), 2);
    assert_eq!(record.against(&node("a"), window(51), |_| true).len(), 1);
    let gone = record.trim(|fact| fact.at > Timestamp::from_unix_ms(1));
    assert_eq!(gone.len(), 1);
    assert_eq!(record.of(&node("a")).len(), 1);
    record.spend(&node("a"));
    assert_eq!(record.against(&node("a"), window(50), |_| true).len(), 0);
}

fn facts() -> impl Strategy<Value = Vec<(&'static str, Fact)>> {
    let one = (0..3_usize, 0..4_usize, 0..3_usize, 0..6_usize, 0..100_i64);
    proptest::collection::vec(one, 0..20).prop_map(|all| {
        let made = all
            .into_iter()
            .enumerate()
            .map(|(number, (n, w, u, c, at))| {
                let cause = [
                    ExitCause::LaunchFailed,
                    ExitCause::UserError,
                    ExitCause::Node,
                    ExitCause::Intended,
                    ExitCause::Success,
                    ExitCause::Unknown,
                ][c];
                let work = format!("job_{w}");
                let user = ["ann", "bob", "cy"][u];
                let mut fact = if cause == ExitCause::Success {
                    worked(&work, user, at)
                } else {
                    failed(&work, user, cause, at)
                };
                fact.key = format!("{number}");
                (["a", "b", "c"][n], fact)
            });
        made.collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter(all in facts()) {
        let back: Vec<_> = all.iter().rev().cloned().collect();
        prop_assert_eq!(counted(&all), counted(&back));
    }

    #[test]
    fn what_is_told_of_a_works_failure_elsewhere_never_blames(all in facts()) {
        let mut more = all.clone();
        more.extend((0..4).map(|w| ("z", launch(&format!("job_{w}"), "ann", 99))));
        prop_assert!(counted(&more) <= counted(&all));
    }
}
