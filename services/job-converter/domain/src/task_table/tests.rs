//! Tests of the task table: random histories of leases, reports, ends and restarts, and the rules
//! for single reports.

use proptest::prelude::*;
use std::collections::BTreeMap;

use super::*;

fn allocation_id(number: u8) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    /// Leases at most `limit` tasks.
    Lease {
        holder: u8,
        limit: usize,
    },
    /// Reports one of the runs so far. The holder may be another one, and the run may have been
    /// reported before.
    Report {
        run: usize,
        holder: u8,
        result: RunResult,
    },
    EndLeases {
        holder: u8,
    },
    ReturnTask {
        holder: u8,
        task: u64,
    },
    RetainKnown {
        holder: u8,
        known: Vec<u64>,
    },
    /// Cancels `len` tasks.
    Cancel {
        start: u64,
        len: u64,
    },
    /// Delays a waiting task.
    Delay {
        task: u64,
        due_ms: u64,
    },
    /// Releases the delayed tasks that are due.
    ReleaseDue {
        now_ms: u64,
    },
    /// Restores everything from recorded rows.
    Restart,
}

fn steps() -> impl Strategy<Value = Step> {
    let result = prop_oneof![
        Just(RunResult::Succeeded),
        Just(RunResult::Failed),
        Just(RunResult::FailedForGood),
        Just(RunResult::Interrupted)
    ];
    prop_oneof![
        3 => (0..4_u8, 1..5_usize).prop_map(|(holder, limit)| Step::Lease { holder, limit }),
        6 => (any::<usize>(), 0..4_u8, result)
            .prop_map(|(run, holder, result)| Step::Report { run, holder, result }),
        1 => (0..4_u8).prop_map(|holder| Step::EndLeases { holder }),
        1 => (0..4_u8, 0..12_u64).prop_map(|(holder, task)| Step::ReturnTask { holder, task }),
        1 => (0..4_u8, prop::collection::vec(0..12_u64, 0..4))
            .prop_map(|(holder, known)| Step::RetainKnown { holder, known }),
        1 => (0..12_u64, 1..4_u64).prop_map(|(start, len)| Step::Cancel { start, len }),
        1 => (0..12_u64, 0..9_u64).prop_map(|(task, due_ms)| Step::Delay { task, due_ms }),
        1 => (0..9_u64).prop_map(|now_ms| Step::ReleaseDue { now_ms }),
        1 => Just(Step::Restart),
    ]
}

/// Outcome of a task in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
    Cancelled,
    /// Cancelled without a run.
    Unrun,
}

/// Model of the stored rows.
#[derive(Default)]
struct StoredRows {
    outcomes: BTreeMap<u64, Outcome>,
    failures: BTreeMap<u64, u32>,
    cancelling: BTreeMap<u64, Arc<str>>,
}

impl StoredRows {
    fn count(&self, outcome: Outcome) -> u64 {
        let all = self.outcomes.values();
        all.filter(|other| **other == outcome).count() as u64
    }

    /// Stores the outcomes without a run.
    fn store_unrun(&mut self, table: &mut TaskTable) -> Result<(), TestCaseError> {
        for span in table.take_unstored() {
            for task in span.start..span.end {
                let before = self.outcomes.insert(task, Outcome::Unrun);
                prop_assert!(before.is_none(), "a second outcome of task {task}");
                self.failures.remove(&task);
            }
        }
        Ok(())
    }
}

impl StoredRows {
    fn restore(&self, old: &TaskTable, total: u64, attempts: u32) -> TaskTable {
        let mut table = TaskTable::new(total, attempts);
        for (task, outcome) in &self.outcomes {
            if *outcome == Outcome::Unrun {
                table.restore_cancelled(*task, task + 1);
            } else {
                table.restore_done(*task, task + 1);
            }
        }
        table.restore_sums(OutcomeSums {
            failed: self.count(Outcome::Failed),
            cancelled: self.count(Outcome::Cancelled),
            spent_us: old.spent_us,
        });
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
        for (task, due_ms) in &old.delayed {
            table.delay(*task, *due_ms);
        }
        for (task, by) in &self.cancelling {
            table.restore_cancelling(*task, by);
        }
        table
    }
}

/// Checks that each task is in exactly one state, and that the table matches the stored rows.
fn check_table(table: &TaskTable, rows: &StoredRows) -> Result<(), TestCaseError> {
    for task in 0..table.total {
        let states = usize::from(table.waiting.contains(task))
            + usize::from(table.delayed.contains_key(&task))
            + usize::from(table.done.contains(task))
            + table
                .leases
                .values()
                .filter(|held| held.contains_key(&task))
                .count();
        prop_assert_eq!(table.delayed.len(), table.due_order.len());
        prop_assert_eq!(states, 1, "task {} is in {} states", task, states);
        prop_assert_eq!(table.done.contains(task), rows.outcomes.contains_key(&task));
    }
    prop_assert_eq!(
        table.waiting() + table.delayed() + table.leased() + table.done(),
        table.total()
    );
    prop_assert!(table.leases.values().all(|held| !held.is_empty()));
    prop_assert_eq!(table.failed(), rows.count(Outcome::Failed));
    prop_assert_eq!(table.succeeded(), rows.count(Outcome::Succeeded));
    let cancelled = rows.count(Outcome::Cancelled) + rows.count(Outcome::Unrun);
    prop_assert_eq!(table.cancelled(), cancelled);
    prop_assert_eq!(table.find_inconsistency(), None);
    for task in table.cancelling.keys() {
        prop_assert!(table.leases.values().any(|held| held.contains_key(task)));
    }
    Ok(())
}

impl StoredRows {
    /// Records the result of a report. `holds_lease` means that the reporter holds the lease of
    /// this attempt.
    fn record(
        &mut self,
        leased: Leased,
        result: RunResult,
        holds_lease: bool,
        recorded: ReportEffect,
    ) -> Result<(), TestCaseError> {
        match recorded {
            ReportEffect::FinalOutcome => {
                let outcome = if result == RunResult::Succeeded {
                    Outcome::Succeeded
                } else {
                    Outcome::Failed
                };
                let before = self.outcomes.insert(leased.task, outcome);
                prop_assert!(before.is_none(), "a second outcome of task {}", leased.task);
                self.failures.remove(&leased.task);
            }
            ReportEffect::AttemptCounted => {
                prop_assert_eq!(result, RunResult::Failed);
                *self.failures.entry(leased.task).or_default() += 1;
            }
            ReportEffect::Cancelled => {
                prop_assert!(holds_lease && result != RunResult::Succeeded);
                prop_assert!(self.cancelling.contains_key(&leased.task));
                let before = self.outcomes.insert(leased.task, Outcome::Cancelled);
                prop_assert!(before.is_none(), "a second outcome of task {}", leased.task);
                self.failures.remove(&leased.task);
            }
            ReportEffect::TaskReturned => prop_assert_eq!(result, RunResult::Interrupted),
            ReportEffect::Unchanged => {
                prop_assert!(!holds_lease || self.outcomes.contains_key(&leased.task));
            }
            ReportEffect::NoSuchTask => prop_assert!(false, "no such task"),
        }
        Ok(())
    }
}

/// Completes the job with one runner that executes its tasks, which is possible after any history.
fn complete_job(table: &mut TaskTable, rows: &mut StoredRows) -> Result<(), TestCaseError> {
    for number in 0..4 {
        table.end_leases(&allocation_id(number));
    }
    rows.store_unrun(table)?;
    table.release_due(u64::MAX);
    let last_holder = allocation_id(9);
    while !table.is_over() {
        let leased = table.lease(&last_holder, 3);
        prop_assert!(!leased.is_empty(), "a task was lost");
        for leased in leased {
            let (recorded, _) = table.finish(&last_holder, leased, RunResult::Succeeded, 10);
            prop_assert_eq!(recorded, ReportEffect::FinalOutcome);
            prop_assert!(
                rows.outcomes
                    .insert(leased.task, Outcome::Succeeded)
                    .is_none()
            );
        }
    }
    Ok(())
}

/// Runs one history. Checks after each step that no task is lost or in two states.
fn run_history(steps: Vec<Step>, total: u64, attempts: u32) -> Result<(), TestCaseError> {
    let (mut table, mut rows) = (TaskTable::new(total, attempts), StoredRows::default());
    let mut runs: Vec<Leased> = Vec::new();
    for step in steps {
        match step {
            Step::Lease { holder, limit } => {
                runs.extend(table.lease(&allocation_id(holder), limit));
            }
            Step::Report {
                run,
                holder,
                result,
            } if !runs.is_empty() => {
                let holder = allocation_id(holder);
                let leased = runs[run % runs.len()];
                let held = table.leases_of(&holder);
                let held = held.and_then(|held| held.get(&leased.task)).copied();
                let (recorded, _) = table.finish(&holder, leased, result, 10);
                let holds_lease = held == Some(leased.attempt);
                rows.record(leased, result, holds_lease, recorded)?;
                let failures = rows.failures.get(&leased.task);
                let is_within_limit = failures.is_none_or(|count| *count < attempts);
                prop_assert!(is_within_limit, "more attempts failed than are allowed");
            }
            Step::Report { .. } => {}
            Step::EndLeases { holder } => {
                table.end_leases(&allocation_id(holder));
            }
            Step::ReturnTask { holder, task } => {
                table.return_tasks(&allocation_id(holder), &[task]);
            }
            Step::RetainKnown { holder, known } => {
                table.retain_known(&allocation_id(holder), &known);
            }
            Step::Cancel { start, len } => {
                let by: Arc<str> = "ada".into();
                for held in table.cancel(start, start + len, &by).stopping {
                    rows.cancelling.insert(held.task, Arc::clone(&by));
                }
            }
            Step::Delay { task, due_ms } => table.delay(task, due_ms),
            Step::ReleaseDue { now_ms } => {
                table.release_due(now_ms);
            }
            Step::Restart => {
                let restored = rows.restore(&table, total, attempts);
                prop_assert_eq!(&restored, &table, "a restart changes the table");
                table = restored;
            }
        }
        rows.store_unrun(&mut table)?;
        check_table(&table, &rows)?;
    }
    complete_job(&mut table, &mut rows)?;
    prop_assert_eq!(rows.outcomes.len() as u64, total);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_task_is_lost_or_recorded_twice(
        steps in prop::collection::vec(steps(), 0..120), total in 1..12_u64, attempts in 1..4_u32,
    ) {
        run_history(steps, total, attempts)?;
    }
}

#[test]
fn a_task_fails_for_good_after_its_last_attempt() {
    let mut table = TaskTable::new(1, 2);
    let runner = allocation_id(1);
    let first = table.lease(&runner, 1)[0];
    assert_eq!(
        table.finish(&runner, first, RunResult::Failed, 1).0,
        ReportEffect::AttemptCounted
    );
    assert_eq!(
        table.finish(&runner, first, RunResult::Failed, 1).0,
        ReportEffect::Unchanged
    );
    let second = table.lease(&runner, 1)[0];
    assert_eq!(second.attempt, 2);
    assert_eq!(
        table.finish(&runner, second, RunResult::Failed, 1).0,
        ReportEffect::FinalOutcome
    );
    assert_eq!(
        (table.failed(), table.succeeded(), table.is_over()),
        (1, 0, true)
    );
}

#[test]
fn a_failure_that_would_repeat_is_final_whatever_attempts_are_left() {
    let mut table = TaskTable::new(1, 3);
    let runner = allocation_id(1);
    let first = table.lease(&runner, 1)[0];
    assert_eq!(
        table.finish(&runner, first, RunResult::FailedForGood, 1).0,
        ReportEffect::FinalOutcome
    );
    assert_eq!((table.failed(), table.is_over()), (1, true));
    // A runner that lost its lease ends no task.
    let mut table = TaskTable::new(1, 3);
    let late = table.lease(&runner, 1)[0];
    table.end_leases(&runner);
    assert_eq!(
        table.finish(&runner, late, RunResult::FailedForGood, 1).0,
        ReportEffect::Unchanged
    );
}

#[test]
fn a_late_success_counts_and_a_late_failure_does_not() {
    let mut table = TaskTable::new(1, 1);
    let (slow, quick) = (allocation_id(1), allocation_id(2));
    let late = table.lease(&slow, 1)[0];
    assert!(table.end_leases(&slow));
    assert_eq!(table.lease(&quick, 1).len(), 1);
    assert_eq!(
        table.finish(&slow, late, RunResult::Failed, 1).0,
        ReportEffect::Unchanged
    );
    let (recorded, other_holder) = table.finish(&slow, late, RunResult::Succeeded, 1);
    assert_eq!(
        (recorded, other_holder),
        (ReportEffect::FinalOutcome, Some(quick.clone()))
    );
    assert_eq!(
        table.finish(&quick, late, RunResult::Succeeded, 1).0,
        ReportEffect::Unchanged
    );
    assert_eq!((table.leased(), table.waiting(), table.done()), (0, 0, 1));
}

#[test]
fn waiting_tasks_are_cancelled_at_once_and_leased_ones_when_their_run_ends() {
    let mut table = TaskTable::new(6, 3);
    let (runner, by) = (allocation_id(1), Arc::from("ada"));
    let runs = table.lease(&runner, 3);
    table.finish(&runner, runs[0], RunResult::Succeeded, 1);
    let effect = table.cancel(0, 5, &by);
    let stopped: Vec<u64> = effect.stopping.iter().map(|held| held.task).collect();
    let counts = (effect.cancelled, effect.ended, stopped);
    assert_eq!(counts, (2, 1, vec![1, 2]));
    assert_eq!(
        (table.waiting(), table.leased(), table.cancelled()),
        (1, 2, 2)
    );
    // Task 1 obeys the signal. Task 2 has ended with success before.
    let stopped = table.finish(&runner, runs[1], RunResult::Interrupted, 1);
    assert_eq!(stopped.0, ReportEffect::Cancelled);
    let succeeded = table.finish(&runner, runs[2], RunResult::Succeeded, 1);
    assert_eq!(succeeded.0, ReportEffect::FinalOutcome);
    let counts = (table.succeeded(), table.cancelled(), table.waiting());
    assert_eq!(counts, (2, 3, 1));
}

#[test]
fn a_cancelled_task_does_not_run_again_when_its_process_is_lost() {
    let mut table = TaskTable::new(2, 3);
    let runner = allocation_id(1);
    table.lease(&runner, 2);
    table.cancel(1, 2, &Arc::from("ada"));
    table.end_leases(&runner);
    assert_eq!((table.waiting(), table.cancelled()), (1, 1));
    let unstored = table.take_unstored();
    assert_eq!((unstored[0].start, unstored[0].end), (1, 2));
}

#[test]
fn a_delayed_task_is_leased_when_it_is_due() {
    let mut table = TaskTable::new(2, 3);
    let runner = allocation_id(1);
    let first = table.lease(&runner, 2)[0];
    table.finish(&runner, first, RunResult::Failed, 1);
    table.delay(0, 500);
    assert_eq!((table.waiting(), table.delayed()), (0, 1));
    assert_eq!(
        (table.next_due_ms(), table.release_due(499)),
        (Some(500), 0)
    );
    assert!(table.lease(&runner, 2).is_empty());
    assert_eq!(table.release_due(500), 1);
    assert_eq!(table.lease(&runner, 2)[0].attempt, 2);
    // A cancellation ends a delayed task at once.
    let mut table = TaskTable::new(1, 3);
    table.delay(0, 500);
    assert_eq!(table.cancel(0, 1, &Arc::from("ada")).cancelled, 1);
    assert_eq!((table.delayed(), table.is_over()), (0, true));
}

#[test]
fn tasks_of_a_lost_response_are_returned() {
    let mut table = TaskTable::new(4, 1);
    let runner = allocation_id(1);
    table.lease(&runner, 4);
    assert!(table.retain_known(&runner, &[1]));
    assert_eq!((table.leased(), table.waiting()), (1, 3));
}

/// Each task must be in exactly one state (I5).
#[test]
fn a_lost_or_duplicated_task_is_detected() {
    let holder = AllocationId::new("alc_1").unwrap();
    let table = || {
        let mut table = TaskTable::new(6, 1);
        table.lease(&holder, 3);
        let leased = Leased {
            task: 0,
            attempt: 1,
        };
        table.finish(&holder, leased, RunResult::Succeeded, 1);
        table
    };
    assert_eq!(table().find_inconsistency(), None);
    assert_eq!(TaskTable::new(0, 1).find_inconsistency(), None);

    let mut lost = table();
    lost.waiting.remove(4);
    let expected = "of 6 tasks 2 wait, 2 are leased and 1 are done";
    assert_eq!(lost.find_inconsistency().as_deref(), Some(expected));

    // One task is lost and another is in two states: the sums still match.
    let mut duplicated = table();
    duplicated.waiting.remove(4);
    duplicated.done.insert(5);
    assert_eq!(
        duplicated.find_inconsistency().as_deref(),
        Some("task 5 is in two places")
    );
    let mut duplicated = table();
    duplicated.waiting.remove(4);
    duplicated.waiting.insert(1);
    assert_eq!(
        duplicated.find_inconsistency().as_deref(),
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
