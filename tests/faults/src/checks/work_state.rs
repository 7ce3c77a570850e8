//! Promises about single pieces of work.

use std::collections::BTreeSet;

use anyhow::ensure;
use hayward_job_converter_api::applications::ApplicationView;
use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::{ClientError, Code};
use serde_json::Value;

use super::{Outcome, Scene};
use crate::fleet::{PATIENCE, inside, wait};
use crate::plan::{Inside, Order, Work};
use crate::work::{Cancelled, Item, alive, proof};

impl Scene<'_> {
    /// Returns the items that were acknowledged and are wanted.
    pub fn items(&self, wanted: impl Fn(&Item) -> bool) -> Vec<Item> {
        let ledger = self.ledger.borrow();
        let there = ledger.items.iter().filter(|it| it.id.is_some());
        there.filter(|it| wanted(it)).cloned().collect()
    }

    fn wanted(&self, kind: impl Fn(&Item) -> bool) -> Vec<Item> {
        self.items(|it| it.cancelled == Cancelled::No && kind(it))
    }

    async fn outcomes(&self, item: &Item) -> anyhow::Result<Vec<TaskView>> {
        let path = format!("{}/tasks?limit=1000", item.path().unwrap_or_default());
        let ask = async || {
            let list = self.doors.jobs.get::<TaskList>(&path).await;
            list.map_err(|error| format!("{error:?}"))
        };
        Ok(wait("outcomes", PATIENCE, ask).await?.tasks)
    }
}

fn is_job(item: &Item) -> bool {
    matches!(item.work, Work::Job { .. } | Work::FailingJob { .. })
}

/// Waits until a piece of work is in the wanted state.
async fn becomes(
    scene: &Scene<'_>,
    item: &Item,
    good: impl Fn(&WorkView) -> Result<(), String>,
) -> Outcome {
    let path = item.path().unwrap_or_default();
    wait(&item.key, PATIENCE, async || {
        let view = scene.doors.jobs.get::<WorkView>(&path).await;
        let view = view.map_err(|error| format!("{path}: {error:?}"))?;
        good(&view).map_err(|why| {
            let processes = view
                .processes
                .iter()
                .map(|it| format!("{} on {} {}", it.allocation, it.node, it.state));
            let processes: Vec<String> = processes.collect();
            let (state, reason, tasks) = (view.state, &view.reason, view.tasks);
            format!("{path}: {why}; it is {state:?}, {reason:?}, {tasks:?}, {processes:?}")
        })
    })
    .await
}

/// Checks that acknowledged work exists, and ends with the result of its programs (I5).
pub async fn every_job_ends_as_it_should(scene: &Scene<'_>) -> Outcome {
    for item in scene.items(is_job) {
        becomes(scene, &item, |view| {
            let fails = matches!(item.work, Work::FailingJob { .. });
            let good = match (view.state, item.cancelled) {
                (WorkState::Cancelled, Cancelled::No) => false,
                (WorkState::Cancelled, _) => true,
                (WorkState::Completed, _) => !fails,
                (WorkState::Failed, _) => fails,
                _ => false,
            };
            good.then_some(()).ok_or_else(|| "it has to end".into())
        })
        .await?;
    }
    Ok(())
}

pub async fn every_task_has_one_outcome(scene: &Scene<'_>) -> Outcome {
    for item in scene.items(is_job) {
        let (Work::Job { tasks, .. } | Work::FailingJob { tasks }) = item.work else {
            continue;
        };
        let outcomes = scene.outcomes(&item).await?;
        let numbers: Vec<u64> = outcomes.iter().map(|it| it.task).collect();
        let different: BTreeSet<u64> = numbers.iter().copied().collect();
        ensure!(
            numbers.len() == different.len(),
            "{}: {numbers:?}",
            item.key
        );
        ensure!(
            different.iter().all(|task| *task < tasks),
            "{}: {numbers:?}",
            item.key
        );
        let all = item.cancelled != Cancelled::No || different.len() as u64 == tasks;
        ensure!(
            all,
            "{}: {} of {tasks}: {numbers:?}",
            item.key,
            different.len()
        );
    }
    Ok(())
}

pub async fn no_success_without_a_run(scene: &Scene<'_>) -> Outcome {
    for item in scene.items(is_job) {
        let proof = proof(&item);
        let fails = matches!(item.work, Work::FailingJob { .. });
        for outcome in scene.outcomes(&item).await? {
            // A shell may report that a process was killed before it prints the number.
            let last_line = outcome.output.lines().last().unwrap_or_default();
            let run = (outcome.task.to_string(), last_line.to_owned());
            let label = format!("{}: {outcome:?}", item.key);
            if outcome.succeeded {
                ensure!(
                    proof.ended.contains(&run),
                    "no such run came to its end: {label}"
                );
                ensure!(
                    !fails || outcome.task % 2 == 0,
                    "it cannot succeed: {label}"
                );
            } else {
                ensure!(fails, "its tasks do not fail: {label}");
            }
        }
    }
    Ok(())
}

/// Checks that the requested number of processes is reported as running, and runs.
pub async fn services_run_their_instances(scene: &Scene<'_>) -> Outcome {
    for item in scene.wanted(Item::is_service) {
        let count = match item.work {
            Work::Service {
                instances,
                standbys,
            } => instances * (1 + standbys),
            _ => 1,
        };
        becomes(scene, &item, |view| {
            let running = view.processes.iter().filter(|it| it.state == "running");
            let reported = running.count();
            // The slash is needed because `p0-services-10` begins with `p0-services-1`.
            let word = format!("{}/", item.proofs.display());
            let all = inside::all(&scene.fleet.dir);
            let programs = all
                .iter()
                .filter(|it| it.what == Inside::Program && it.line.contains(&word));
            let found = programs.count();
            if reported == count as usize && found == reported && view.processes.len() == reported {
                Ok(())
            } else {
                Err(format!(
                    "{count} wanted, {reported} reported, {found} found"
                ))
            }
        })
        .await?;
    }
    Ok(())
}

pub async fn reservations_are_there(scene: &Scene<'_>) -> Outcome {
    for item in scene.wanted(|it| it.work == Work::Reservation) {
        becomes(scene, &item, |view| match view.state {
            WorkState::Running | WorkState::Waiting => Ok(()),
            other => Err(format!("{other:?} is not what nobody ended")),
        })
        .await?;
    }
    Ok(())
}

/// Checks that each task of a gang ends, and succeeds only if it ran.
pub async fn gangs_come_to_an_end(scene: &Scene<'_>) -> Outcome {
    for item in scene.wanted(|it| matches!(it.work, Work::Gang { .. })) {
        let Work::Gang { members, .. } = item.work else {
            continue;
        };
        let path = item.path().unwrap_or_default();
        let ask = async || {
            let view = scene.doors.jobs.get::<ApplicationView>(&path).await;
            let view = view.map_err(|error| format!("{path}: {error:?}"))?;
            let ended =
                |state: &str| ["Completed", "Failed", "Killed", "Rejected"].contains(&state);
            let all = view.tasks.iter().all(|task| ended(&task.state));
            if all && view.tasks.len() == members as usize {
                return Ok(view);
            }
            let (state, tasks, why) = (view.state, view.task_states, view.why);
            let log: Vec<_> = view.warnings.iter().map(|it| it.message.clone()).collect();
            Err(format!(
                "{path} is {state}, its tasks {tasks:?}, {why:?}, {log:?}"
            ))
        };
        let view = wait(&item.key, PATIENCE, ask).await?;
        let ended: BTreeSet<String> = proof(&item).ended.into_iter().map(|it| it.0).collect();
        for task in &view.tasks {
            let proven = task.state != "Completed" || ended.contains(&task.id);
            ensure!(
                proven,
                "{} is completed and never ran to its end: {task:?}",
                item.key
            );
        }
    }
    Ok(())
}

pub async fn pools_are_at_their_size(scene: &Scene<'_>) -> Outcome {
    for item in scene.wanted(|it| matches!(it.work, Work::Pool { .. })) {
        let Work::Pool { size } = item.work else {
            continue;
        };
        let path = item.path().unwrap_or_default();
        let client = scene.doors.of_work(item.work);
        wait(&item.key, PATIENCE, async || {
            let view = client.get::<Value>(&path).await;
            let view = view.map_err(|error| format!("{path}: {error:?}"))?;
            let there = alive(&item);
            if view["started"].as_u64() == Some(u64::from(size)) && there.len() == size as usize {
                return Ok(());
            }
            Err(format!("{size} wanted, {there:?} there: {view}"))
        })
        .await?;
    }
    Ok(())
}

pub async fn moves_come_to_an_end(scene: &Scene<'_>) -> Outcome {
    let given = scene.ledger.borrow().given.clone();
    for given in given {
        if !matches!(given.order, Order::Move { .. }) {
            continue;
        }
        wait(&given.path, PATIENCE, async || {
            let view = scene.doors.containers.get::<Value>(&given.path).await;
            let view = match view {
                Ok(view) => view,
                // The deployment is not readable after the end of its service.
                Err(error) if error.is_not_found() || is_over(&error) => return Ok(()),
                Err(error) => return Err(format!("{error:?}")),
            };
            let status = view["status_code"].as_str().unwrap_or_default();
            let ended = ["SUCCEEDED", "FAILED", "BAD_REQUEST"].contains(&status);
            ended.then_some(()).ok_or_else(|| view.to_string())
        })
        .await?;
    }
    Ok(())
}

/// Returns whether the service has ended or was deployed again. The service is named by its own
/// name or by that of its deployment.
fn is_over(error: &ClientError) -> bool {
    error
        .problem()
        .is_some_and(|problem| problem.code == Code::Gone)
}
