//! Checks of promises about single pieces of work: jobs, services, reservations, gangs, pools.

use std::collections::BTreeSet;

use anyhow::ensure;
use hayward_job_converter_api::applications::ApplicationView;
use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::{ClientError, Code};
use serde_json::Value;

use super::{CheckContext, CheckResult};
use crate::fleet::{TIMEOUT, container_processes, poll_until};
use crate::plan::{Operation, ProcessKind, Work};
use crate::work::{Cancellation, Item, live_workers, read_proof};

impl CheckContext<'_> {
    /// Returns the acknowledged items that are not cancelled and for which `filter` is true.
    fn active_items(&self, filter: impl Fn(&Item) -> bool) -> Vec<Item> {
        self.acknowledged_items(|item| item.cancellation == Cancellation::None && filter(item))
    }

    async fn fetch_outcomes(&self, item: &Item) -> anyhow::Result<Vec<TaskView>> {
        let path = format!("{}/tasks?limit=1000", item.path().unwrap_or_default());
        let request = async || {
            let list = self.clients.jobs.get::<TaskList>(&path).await;
            list.map_err(|error| format!("{error:?}"))
        };
        Ok(poll_until("outcomes", TIMEOUT, request).await?.tasks)
    }
}

fn is_job(item: &Item) -> bool {
    matches!(item.work, Work::Job { .. } | Work::FailingJob { .. })
}

/// Waits until `check` accepts the state of a piece of work.
async fn wait_for_state(
    context: &CheckContext<'_>,
    item: &Item,
    check: impl Fn(&WorkView) -> Result<(), String>,
) -> CheckResult {
    let path = item.path().unwrap_or_default();
    poll_until(&item.key, TIMEOUT, async || {
        let view = context.clients.jobs.get::<WorkView>(&path).await;
        let view = view.map_err(|error| format!("{path}: {error:?}"))?;
        check(&view).map_err(|mismatch| {
            let processes = view.processes.iter().map(|process| {
                format!(
                    "{} on {} {}",
                    process.allocation, process.node, process.state
                )
            });
            let processes: Vec<String> = processes.collect();
            let (state, reason, tasks) = (view.state, &view.reason, view.tasks);
            format!("{path}: {mismatch}; it is {state:?}, {reason:?}, {tasks:?}, {processes:?}")
        })
    })
    .await
}

/// Checks that each acknowledged job ends with the result of its programs (I5).
pub async fn every_job_ends_with_the_result_of_its_programs(
    context: &CheckContext<'_>,
) -> CheckResult {
    for item in context.acknowledged_items(is_job) {
        wait_for_state(context, &item, |view| {
            let must_fail = matches!(item.work, Work::FailingJob { .. });
            let is_expected = match (view.state, item.cancellation) {
                (WorkState::Cancelled, Cancellation::None) => false,
                (WorkState::Cancelled, _) => true,
                (WorkState::Completed, _) => !must_fail,
                (WorkState::Failed, _) => must_fail,
                _ => false,
            };
            is_expected
                .then_some(())
                .ok_or_else(|| "it has not ended as expected".into())
        })
        .await?;
    }
    Ok(())
}

/// Checks that each task of an active job has exactly one outcome, and a task of a cancelled job at
/// most one.
pub async fn every_task_has_one_outcome(context: &CheckContext<'_>) -> CheckResult {
    for item in context.acknowledged_items(is_job) {
        let (Work::Job { tasks, .. } | Work::FailingJob { tasks }) = item.work else {
            continue;
        };
        let outcomes = context.fetch_outcomes(&item).await?;
        let task_numbers: Vec<u64> = outcomes.iter().map(|outcome| outcome.task).collect();
        let distinct: BTreeSet<u64> = task_numbers.iter().copied().collect();
        ensure!(
            task_numbers.len() == distinct.len(),
            "{}: {task_numbers:?}",
            item.key
        );
        ensure!(
            distinct.iter().all(|task| *task < tasks),
            "{}: {task_numbers:?}",
            item.key
        );
        let is_complete = item.cancellation != Cancellation::None || distinct.len() as u64 == tasks;
        ensure!(
            is_complete,
            "{}: {} of {tasks}: {task_numbers:?}",
            item.key,
            distinct.len()
        );
    }
    Ok(())
}

/// Checks that each successful outcome has the number of a run that wrote its end.
pub async fn no_success_without_a_run(context: &CheckContext<'_>) -> CheckResult {
    for item in context.acknowledged_items(is_job) {
        let proof = read_proof(&item);
        let must_fail = matches!(item.work, Work::FailingJob { .. });
        for outcome in context.fetch_outcomes(&item).await? {
            // A shell may report that a process was killed before it prints the number.
            let last_line = outcome.output.lines().last().unwrap_or_default();
            let run = (outcome.task.to_string(), last_line.to_owned());
            let details = format!("{}: {outcome:?}", item.key);
            if outcome.succeeded {
                ensure!(
                    proof.ended.contains(&run),
                    "no run with this number wrote its end: {details}"
                );
                // Tasks with an odd number fail in a job that must fail.
                ensure!(
                    !must_fail || outcome.task % 2 == 0,
                    "a task that always fails succeeded: {details}"
                );
            } else {
                ensure!(must_fail, "a task that never fails failed: {details}");
            }
        }
    }
    Ok(())
}

/// Checks for each service that the requested number of processes is reported as running, and that
/// as many processes really run.
pub async fn services_run_their_instances(context: &CheckContext<'_>) -> CheckResult {
    for item in context.active_items(Item::is_service) {
        let wanted_count = match item.work {
            Work::Service {
                instances,
                standbys,
            } => instances * (1 + standbys),
            _ => 1,
        };
        wait_for_state(context, &item, |view| {
            let running = view
                .processes
                .iter()
                .filter(|process| process.state == "running");
            let reported_count = running.count();
            // The slash is needed because `p0-services-10` begins with `p0-services-1`.
            let proofs_prefix = format!("{}/", item.proofs.display());
            let processes = container_processes::list(&context.fleet.dir);
            let programs = processes.iter().filter(|process| {
                process.kind == ProcessKind::Program
                    && process.command_line.contains(&proofs_prefix)
            });
            let found_count = programs.count();
            if reported_count == wanted_count as usize
                && found_count == reported_count
                && view.processes.len() == reported_count
            {
                Ok(())
            } else {
                Err(format!(
                    "{wanted_count} wanted, {reported_count} reported, {found_count} found"
                ))
            }
        })
        .await?;
    }
    Ok(())
}

pub async fn reservations_exist(context: &CheckContext<'_>) -> CheckResult {
    for item in context.active_items(|item| item.work == Work::Reservation) {
        wait_for_state(context, &item, |view| match view.state {
            WorkState::Running | WorkState::Waiting => Ok(()),
            other => Err(format!("it is {other:?}, and was not cancelled")),
        })
        .await?;
    }
    Ok(())
}

/// Checks that each task of a gang ends, and succeeds only if it ran.
pub async fn gangs_end(context: &CheckContext<'_>) -> CheckResult {
    for item in context.active_items(|item| matches!(item.work, Work::Gang { .. })) {
        let Work::Gang { members, .. } = item.work else {
            continue;
        };
        let path = item.path().unwrap_or_default();
        let request = async || {
            let view = context.clients.jobs.get::<ApplicationView>(&path).await;
            let view = view.map_err(|error| format!("{path}: {error:?}"))?;
            let is_final =
                |state: &str| ["Completed", "Failed", "Killed", "Rejected"].contains(&state);
            let all_ended = view.tasks.iter().all(|task| is_final(&task.state));
            if all_ended && view.tasks.len() == members as usize {
                return Ok(view);
            }
            let (state, tasks, reason) = (view.state, view.task_states, view.why);
            let warnings: Vec<_> = view
                .warnings
                .iter()
                .map(|warning| warning.message.clone())
                .collect();
            Err(format!(
                "{path} is {state}, its tasks {tasks:?}, {reason:?}, {warnings:?}"
            ))
        };
        let view = poll_until(&item.key, TIMEOUT, request).await?;
        let ended: BTreeSet<String> = read_proof(&item)
            .ended
            .into_iter()
            .map(|(task, _)| task)
            .collect();
        for task in &view.tasks {
            let is_proven = task.state != "Completed" || ended.contains(&task.id);
            ensure!(
                is_proven,
                "{}: a completed task never wrote its end: {task:?}",
                item.key
            );
        }
    }
    Ok(())
}

pub async fn worker_pools_have_their_size(context: &CheckContext<'_>) -> CheckResult {
    for item in context.active_items(|item| matches!(item.work, Work::Pool { .. })) {
        let Work::Pool { size } = item.work else {
            continue;
        };
        let path = item.path().unwrap_or_default();
        let client = context.clients.for_work(item.work);
        poll_until(&item.key, TIMEOUT, async || {
            let view = client.get::<Value>(&path).await;
            let view = view.map_err(|error| format!("{path}: {error:?}"))?;
            let live = live_workers(&item);
            if view["started"].as_u64() == Some(u64::from(size)) && live.len() == size as usize {
                return Ok(());
            }
            Err(format!("{size} wanted, {live:?} alive: {view}"))
        })
        .await?;
    }
    Ok(())
}

/// Checks that each acknowledged move of a process ends, with success or failure.
pub async fn moves_end(context: &CheckContext<'_>) -> CheckResult {
    let operations = context.ledger.borrow().acknowledged_operations.clone();
    for acknowledged in operations {
        if !matches!(acknowledged.operation, Operation::Move { .. }) {
            continue;
        }
        poll_until(&acknowledged.path, TIMEOUT, async || {
            let view = context
                .clients
                .containers
                .get::<Value>(&acknowledged.path)
                .await;
            let view = match view {
                Ok(view) => view,
                // The deployment is not readable after the end of its service.
                Err(error) if error.is_not_found() || service_has_ended(&error) => return Ok(()),
                Err(error) => return Err(format!("{error:?}")),
            };
            let status = view["status_code"].as_str().unwrap_or_default();
            let has_ended = ["SUCCEEDED", "FAILED", "BAD_REQUEST"].contains(&status);
            has_ended.then_some(()).ok_or_else(|| view.to_string())
        })
        .await?;
    }
    Ok(())
}

/// Returns whether the service of a move has ended or was deployed again.
fn service_has_ended(error: &ClientError) -> bool {
    error
        .problem()
        .is_some_and(|problem| problem.code == Code::Gone)
}
