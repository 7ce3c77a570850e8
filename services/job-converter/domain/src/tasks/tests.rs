use proptest::prelude::*;
use std::collections::BTreeMap;

use super::*;

fn holder(number: u8) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Lease(u8, usize),
    /// Reports a run by index. The holder may differ, and the report may be a repetition.
    Report(usize, u8, Ending),
    End(u8),
    GiveBack(u8, u64),
    KeepOnly(u8, Vec<u64>),
    /// Restores everything from recorded rows.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![
        Just(Ending::Succeeded),
        Just(Ending::Failed),
        Just(Ending::Interrupted)
    ];
    prop_oneof![
        3 => (0..4_u8, 1..5_usize).prop_map(|(number, want)| Step::Lease(number, want)),
        6 => (any::<usize>(), 0..4_u8, ending)
            .prop_map(|(run, number, how)| Step::Report(run, number, how)),
        1 => (0..4_u8).prop_map(Step::End),
        1 => (0..4_u8, 0..12_u64).prop_map(|(number, task)| Step::GiveBack(number, task)),
        1 => (0..4_u8, prop::collection::vec(0..12_u64, 0..4))
            .prop_map(|(number, held)| Step::KeepOnly(number, held)),
        1 => Just(Step::Restart),
    ]
}

/// Model of the stored rows.
#[derive(Default)]
struct Written {
    outcomes: BTreeMap<u64, bool>,
    failures: BTreeMap<u64, u32>,
}

impl Written {
    fn read_again(&self, old: &TaskTable, total: u64, attempts: u32) -> TaskTable {
        let mut book = TaskTable::new(total, attempts);
        for task in self.outcomes.keys() {
            book.restore_done(*task, task + 1);
        }
        let failed = self.outcomes.values().filter(|good| !**good).count() as u64;
        book.restore_sums(failed, old.spent_us);
        for (task, failures) in &self.failures {
            book.restore_failures(*task, *failures);
        }
        for (holder, held) in &old.leases {
            let leased: Vec<Leased> = held
                .iter()
                .map(|(task, attempt)| Leased {
                    task: *task,
                    attempt: *attempt,
                })
                .collect();
            book.restore_lease(holder, &leased);
        }
        book
    }
}

fn check(book: &TaskTable, written: &Written) -> Result<(), TestCaseError> {
    for task in 0..book.total {
        let places = usize::from(book.waiting.contains(task))
            + usize::from(book.done.contains(task))
            + book
                .leases
                .values()
                .filter(|held| held.contains_key(&task))
                .count();
        prop_assert_eq!(places, 1, "task {} is in {} places", task, places);
        prop_assert_eq!(
            book.done.contains(task),
            written.outcomes.contains_key(&task)
        );
    }
    prop_assert_eq!(book.waiting() + book.leased() + book.done(), book.total());
    prop_assert!(book.leases.values().all(|held| !held.is_empty()));
    let failed = written.outcomes.values().filter(|good| !**good).count() as u64;
    prop_assert_eq!(book.failed(), failed);
    Ok(())
}

impl Written {
    /// Records the result of a report. `owns` means that the reporter holds the lease of this
    /// attempt.
    fn record(
        &mut self,
        given: Leased,
        how: Ending,
        owns: bool,
        recorded: Recorded,
    ) -> Result<(), TestCaseError> {
        match recorded {
            Recorded::Outcome => {
                let before = self.outcomes.insert(given.task, how == Ending::Succeeded);
                prop_assert!(before.is_none(), "a second outcome of task {}", given.task);
                self.failures.remove(&given.task);
            }
            Recorded::Attempt => *self.failures.entry(given.task).or_default() += 1,
            Recorded::Returned => prop_assert_eq!(how, Ending::Interrupted),
            Recorded::Nothing => {
                prop_assert!(!owns || self.outcomes.contains_key(&given.task));
            }
            Recorded::NoSuchTask => prop_assert!(false, "no such task"),
        }
        Ok(())
    }
}

fn run(steps: Vec<Step>, total: u64, attempts: u32) -> Result<(), TestCaseError> {
    let (mut book, mut written) = (TaskTable::new(total, attempts), Written::default());
    let mut runs: Vec<Leased> = Vec::new();
    for step in steps {
        match step {
            Step::Lease(number, want) => runs.extend(book.lease(&holder(number), want)),
            Step::Report(run, number, how) if !runs.is_empty() => {
                let given = runs[run % runs.len()];
                let held = book.held(&holder(number));
                let held = held.and_then(|held| held.get(&given.task)).copied();
                let (recorded, _) = book.finish(&holder(number), given, how, 10);
                let owns = held == Some(given.attempt);
                written.record(given, how, owns, recorded)?;
                let failures = written.failures.get(&given.task);
                let within = failures.is_none_or(|count| *count < attempts);
                prop_assert!(within, "the budget was overspent");
            }
            Step::Report(..) => {}
            Step::End(number) => {
                book.end(&holder(number));
            }
            Step::GiveBack(number, task) => {
                book.give_back(&holder(number), &[task]);
            }
            Step::KeepOnly(number, held) => {
                book.keep_only(&holder(number), &held);
            }
            Step::Restart => {
                let again = written.read_again(&book, total, attempts);
                prop_assert_eq!(&again, &book, "a restart forgets or invents something");
                book = again;
            }
        }
        check(&book, &written)?;
    }
    // One runner that does its work ends the job after any history.
    for number in 0..4 {
        book.end(&holder(number));
    }
    let last = holder(9);
    while !book.is_over() {
        let given = book.lease(&last, 3);
        prop_assert!(!given.is_empty(), "a task was lost");
        for given in given {
            let (recorded, _) = book.finish(&last, given, Ending::Succeeded, 10);
            prop_assert_eq!(recorded, Recorded::Outcome);
            prop_assert!(written.outcomes.insert(given.task, true).is_none());
        }
    }
    prop_assert_eq!(written.outcomes.len() as u64, total);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_task_is_lost_or_recorded_twice(
        steps in prop::collection::vec(step(), 0..120), total in 1..12_u64, attempts in 1..4_u32,
    ) {
        run(steps, total, attempts)?;
    }
}

#[test]
fn a_task_fails_for_good_after_its_last_attempt() {
    let mut book = TaskTable::new(1, 2);
    let number = holder(1);
    let first = book.lease(&number, 1)[0];
    assert_eq!(
        book.finish(&number, first, Ending::Failed, 1).0,
        Recorded::Attempt
    );
    assert_eq!(
        book.finish(&number, first, Ending::Failed, 1).0,
        Recorded::Nothing
    );
    let second = book.lease(&number, 1)[0];
    assert_eq!(second.attempt, 2);
    assert_eq!(
        book.finish(&number, second, Ending::Failed, 1).0,
        Recorded::Outcome
    );
    assert_eq!(
        (book.failed(), book.succeeded(), book.is_over()),
        (1, 0, true)
    );
}

#[test]
fn a_late_success_counts_and_a_late_failure_does_not() {
    let mut book = TaskTable::new(1, 1);
    let (slow, quick) = (holder(1), holder(2));
    let late = book.lease(&slow, 1)[0];
    assert!(book.end(&slow));
    assert_eq!(book.lease(&quick, 1).len(), 1);
    assert_eq!(
        book.finish(&slow, late, Ending::Failed, 1).0,
        Recorded::Nothing
    );
    let (recorded, robbed) = book.finish(&slow, late, Ending::Succeeded, 1);
    assert_eq!((recorded, robbed), (Recorded::Outcome, Some(quick.clone())));
    assert_eq!(
        book.finish(&quick, late, Ending::Succeeded, 1).0,
        Recorded::Nothing
    );
    assert_eq!((book.leased(), book.waiting(), book.done()), (0, 0, 1));
}

#[test]
fn tasks_of_a_lost_answer_are_returned() {
    let mut book = TaskTable::new(4, 1);
    let number = holder(1);
    book.lease(&number, 4);
    assert!(book.keep_only(&number, &[1]));
    assert_eq!((book.leased(), book.waiting()), (1, 3));
}

/// Reliability invariant (I5).
#[test]
fn a_lost_or_doubled_task_is_detected() {
    let holder = AllocationId::new("alc_1").unwrap();
    let book = || {
        let mut book = TaskTable::new(6, 1);
        book.lease(&holder, 3);
        let given = Leased {
            task: 0,
            attempt: 1,
        };
        book.finish(&holder, given, Ending::Succeeded, 1);
        book
    };
    assert_eq!(book().fault(), None);
    assert_eq!(TaskTable::new(0, 1).fault(), None);

    let mut lost = book();
    lost.waiting.remove(4);
    let expected = "of 6 tasks 2 wait, 2 are leased and 1 are done";
    assert_eq!(lost.fault().as_deref(), Some(expected));

    // One task is lost and another is in two states: the sums still match.
    let mut twice = book();
    twice.waiting.remove(4);
    twice.done.insert(5);
    assert_eq!(twice.fault().as_deref(), Some("task 5 is in two places"));
    let mut twice = book();
    twice.waiting.remove(4);
    twice.waiting.insert(1);
    assert_eq!(twice.fault().as_deref(), Some("task 1 is in two places"));

    let mut miscounted = book();
    miscounted.leased = 7;
    assert!(miscounted.fault().unwrap().contains("where 7 are counted"));
}
