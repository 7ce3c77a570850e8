//! Tasks of one job under random histories of leases, reports, ends and restarts, and the rules of
//! single reports.

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
    ReturnTasks(u8, u64),
    RetainKnown(u8, Vec<u64>),
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
            .prop_map(|(run, number, ending)| Step::Report(run, number, ending)),
        1 => (0..4_u8).prop_map(Step::End),
        1 => (0..4_u8, 0..12_u64).prop_map(|(number, task)| Step::ReturnTasks(number, task)),
        1 => (0..4_u8, prop::collection::vec(0..12_u64, 0..4))
            .prop_map(|(number, held)| Step::RetainKnown(number, held)),
        1 => Just(Step::Restart),
    ]
}

/// Model of the stored rows.
#[derive(Default)]
struct StoredRows {
    outcomes: BTreeMap<u64, bool>,
    failures: BTreeMap<u64, u32>,
}

impl StoredRows {
    fn restore(&self, old: &TaskTable, total: u64, attempts: u32) -> TaskTable {
        let mut table = TaskTable::new(total, attempts);
        for task in self.outcomes.keys() {
            table.restore_done(*task, task + 1);
        }
        let failed = self
            .outcomes
            .values()
            .filter(|succeeded| !**succeeded)
            .count() as u64;
        table.restore_sums(failed, old.spent_us);
        for (task, failures) in &self.failures {
            table.restore_failures(*task, *failures);
        }
        for (holder, held) in &old.leases {
            let leased: Vec<Leased> = held
                .iter()
                .map(|(task, attempt)| Leased {
                    task: *task,
                    attempt: *attempt,
                })
                .collect();
            table.restore_lease(holder, &leased);
        }
        table
    }
}

fn check(table: &TaskTable, rows: &StoredRows) -> Result<(), TestCaseError> {
    for task in 0..table.total {
        let states = usize::from(table.waiting.contains(task))
            + usize::from(table.done.contains(task))
            + table
                .leases
                .values()
                .filter(|held| held.contains_key(&task))
                .count();
        prop_assert_eq!(states, 1, "task {} is in {} states", task, states);
        prop_assert_eq!(table.done.contains(task), rows.outcomes.contains_key(&task));
    }
    prop_assert_eq!(
        table.waiting() + table.leased() + table.done(),
        table.total()
    );
    prop_assert!(table.leases.values().all(|held| !held.is_empty()));
    let failed = rows
        .outcomes
        .values()
        .filter(|succeeded| !**succeeded)
        .count() as u64;
    prop_assert_eq!(table.failed(), failed);
    Ok(())
}

impl StoredRows {
    /// Records the result of a report. `holds_lease` means that the reporter holds the lease of
    /// this attempt.
    fn record(
        &mut self,
        leased: Leased,
        ending: Ending,
        holds_lease: bool,
        recorded: Recorded,
    ) -> Result<(), TestCaseError> {
        match recorded {
            Recorded::Outcome => {
                let before = self
                    .outcomes
                    .insert(leased.task, ending == Ending::Succeeded);
                prop_assert!(before.is_none(), "a second outcome of task {}", leased.task);
                self.failures.remove(&leased.task);
            }
            Recorded::Attempt => *self.failures.entry(leased.task).or_default() += 1,
            Recorded::Returned => prop_assert_eq!(ending, Ending::Interrupted),
            Recorded::Nothing => {
                prop_assert!(!holds_lease || self.outcomes.contains_key(&leased.task));
            }
            Recorded::NoSuchTask => prop_assert!(false, "no such task"),
        }
        Ok(())
    }
}

/// Runs one history. Checks after each step that no task is lost or in two states.
fn run_history(steps: Vec<Step>, total: u64, attempts: u32) -> Result<(), TestCaseError> {
    let (mut table, mut rows) = (TaskTable::new(total, attempts), StoredRows::default());
    let mut runs: Vec<Leased> = Vec::new();
    for step in steps {
        match step {
            Step::Lease(number, want) => runs.extend(table.lease(&holder(number), want)),
            Step::Report(run, number, ending) if !runs.is_empty() => {
                let leased = runs[run % runs.len()];
                let held = table.held(&holder(number));
                let held = held.and_then(|held| held.get(&leased.task)).copied();
                let (recorded, _) = table.finish(&holder(number), leased, ending, 10);
                let holds_lease = held == Some(leased.attempt);
                rows.record(leased, ending, holds_lease, recorded)?;
                let failures = rows.failures.get(&leased.task);
                let is_within_limit = failures.is_none_or(|count| *count < attempts);
                prop_assert!(is_within_limit, "more attempts failed than are allowed");
            }
            Step::Report(..) => {}
            Step::End(number) => {
                table.end(&holder(number));
            }
            Step::ReturnTasks(number, task) => {
                table.return_tasks(&holder(number), &[task]);
            }
            Step::RetainKnown(number, held) => {
                table.retain_known(&holder(number), &held);
            }
            Step::Restart => {
                let restored = rows.restore(&table, total, attempts);
                prop_assert_eq!(&restored, &table, "a restart changes the table");
                table = restored;
            }
        }
        check(&table, &rows)?;
    }
    // One runner that does its work ends the job after any history.
    for number in 0..4 {
        table.end(&holder(number));
    }
    let last = holder(9);
    while !table.is_over() {
        let leased = table.lease(&last, 3);
        prop_assert!(!leased.is_empty(), "a task was lost");
        for leased in leased {
            let (recorded, _) = table.finish(&last, leased, Ending::Succeeded, 10);
            prop_assert_eq!(recorded, Recorded::Outcome);
            prop_assert!(rows.outcomes.insert(leased.task, true).is_none());
        }
    }
    prop_assert_eq!(rows.outcomes.len() as u64, total);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_task_is_lost_or_recorded_twice(
        steps in prop::collection::vec(step(), 0..120), total in 1..12_u64, attempts in 1..4_u32,
    ) {
        run_history(steps, total, attempts)?;
    }
}

#[test]
fn a_task_fails_for_good_after_its_last_attempt() {
    let mut table = TaskTable::new(1, 2);
    let runner = holder(1);
    let first = table.lease(&runner, 1)[0];
    assert_eq!(
        table.finish(&runner, first, Ending::Failed, 1).0,
        Recorded::Attempt
    );
    assert_eq!(
        table.finish(&runner, first, Ending::Failed, 1).0,
        Recorded::Nothing
    );
    let second = table.lease(&runner, 1)[0];
    assert_eq!(second.attempt, 2);
    assert_eq!(
        table.finish(&runner, second, Ending::Failed, 1).0,
        Recorded::Outcome
    );
    assert_eq!(
        (table.failed(), table.succeeded(), table.is_over()),
        (1, 0, true)
    );
}

#[test]
fn a_late_success_counts_and_a_late_failure_does_not() {
    let mut table = TaskTable::new(1, 1);
    let (slow, quick) = (holder(1), holder(2));
    let late = table.lease(&slow, 1)[0];
    assert!(table.end(&slow));
    assert_eq!(table.lease(&quick, 1).len(), 1);
    assert_eq!(
        table.finish(&slow, late, Ending::Failed, 1).0,
        Recorded::Nothing
    );
    let (recorded, other_holder) = table.finish(&slow, late, Ending::Succeeded, 1);
    assert_eq!(
        (recorded, other_holder),
        (Recorded::Outcome, Some(quick.clone()))
    );
    assert_eq!(
        table.finish(&quick, late, Ending::Succeeded, 1).0,
        Recorded::Nothing
    );
    assert_eq!((table.leased(), table.waiting(), table.done()), (0, 0, 1));
}

#[test]
fn tasks_of_a_lost_response_are_returned() {
    let mut table = TaskTable::new(4, 1);
    let runner = holder(1);
    table.lease(&runner, 4);
    assert!(table.retain_known(&runner, &[1]));
    assert_eq!((table.leased(), table.waiting()), (1, 3));
}

/// The check of the invariant finds a task that is lost or in two states (I5).
#[test]
fn a_lost_or_doubled_task_is_detected() {
    let holder = AllocationId::new("alc_1").unwrap();
    let table = || {
        let mut table = TaskTable::new(6, 1);
        table.lease(&holder, 3);
        let leased = Leased {
            task: 0,
            attempt: 1,
        };
        table.finish(&holder, leased, Ending::Succeeded, 1);
        table
    };
    assert_eq!(table().find_inconsistency(), None);
    assert_eq!(TaskTable::new(0, 1).find_inconsistency(), None);

    let mut lost = table();
    lost.waiting.remove(4);
    let expected = "of 6 tasks 2 wait, 2 are leased and 1 are done";
    assert_eq!(lost.find_inconsistency().as_deref(), Some(expected));

    // One task is lost and another is in two states: the sums still match.
    let mut twice = table();
    twice.waiting.remove(4);
    twice.done.insert(5);
    assert_eq!(
        twice.find_inconsistency().as_deref(),
        Some("task 5 is in two places")
    );
    let mut twice = table();
    twice.waiting.remove(4);
    twice.waiting.insert(1);
    assert_eq!(
        twice.find_inconsistency().as_deref(),
        Some("task 1 is in two places")
    );

    let mut miscounted = table();
    miscounted.leased = 7;
    assert!(
        miscounted
            .find_inconsistency()
            .unwrap()
            .contains("where 7 are counted")
    );
}
