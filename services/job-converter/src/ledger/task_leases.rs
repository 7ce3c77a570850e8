//! Handles requests of task runners, which lease tasks and report how they ended.
//!
//! One request is handled in this order: reports, returned tasks, renewal, new leases. One commit
//! stores all four steps, so a repeated request is safe.

use std::collections::BTreeMap;
use std::sync::Arc;

use hayward_job_converter_api::submission::JobSubmission;
use hayward_job_converter_api::tasks::{
    LeaseRequest, RunTerms, RunningReport, TaskReport, TermsState,
};
use hayward_job_converter_domain::{LeaseDemand, Leased, RunningTask};
use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::{AllocationId, WorkId};
use uuid::Uuid;

use super::Ledger;
use super::task_cancellation::write_unrun;
use super::task_reports::Reports;
use crate::command::{LeaseGrant, LeaseTasks};
use crate::error::Refusal;
use crate::store::Rows;
use crate::store::backoffs::BackoffRow;
use crate::store::tasks::LeaseRow;
use crate::work::retry_policy::REQUEST_AHEAD_MS;
use crate::work::run_terms::needed_terms;
use crate::work::{Job, Work, parse_work_id};

impl Ledger {
    /// Handles one request of a task runner.
    pub(super) fn lease(
        &mut self,
        lease: LeaseTasks,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<LeaseGrant, Refusal> {
        let LeaseTasks {
            job: id,
            runner,
            request,
            ends_idle_runner,
        } = lease;
        let uuid = self.find_runner_job(&id, &runner)?;
        let Some(work) = self.works.get_mut(&uuid) else {
            return Ok(LeaseGrant::JOB_ENDED);
        };
        check_tasks(work, &id, &request.finished)?;
        let holder = &request.allocation;
        let mut changed = Reports::record_all(work, &request, moment, batch);
        let Some(exchange) = Exchange::apply_request(work, &request, moment) else {
            return Ok(LeaseGrant::JOB_ENDED);
        };
        let is_idle = ends_idle_runner && exchange.has_no_work(work, moment);
        let terms = exchange.wanted_terms(work, &request, self.shared.settings.stop_grace_ms);
        let job_over = work.job().is_some_and(|job| job.tasks.is_over());
        if let Some(job) = work.job_mut().filter(|_| is_idle) {
            job.runners.release(holder);
        }
        changed.lease |= exchange.returned || !exchange.leased.is_empty();
        if changed.progress {
            self.clear_backoff(uuid, moment, batch);
            self.schedule_delays(uuid);
        }
        if exchange.returned || changed.waiting {
            self.shared.tasks.notify(&uuid, moment.revision);
        }
        let holds_tasks = exchange.held_tasks != HeldTasks::None;
        self.update_lease_end(uuid, holder, holds_tasks, moment);
        if changed.lease {
            self.changed_leases.insert((uuid, holder.clone()));
        }
        if changed.lease || exchange.running_changed {
            self.progressed.insert(uuid);
        }
        self.changed_leases
            .extend(changed.other_holders.into_iter().map(|other| (uuid, other)));
        if exchange.held_tasks == HeldTasks::FirstOfJob {
            self.dirty.insert(uuid);
        }
        if job_over {
            self.end_completed_job(uuid, moment, batch);
        }
        Ok(LeaseGrant {
            leased: exchange.leased,
            job: Some(exchange.submission),
            terms,
            done: job_over || exchange.runner == RunnerState::TakesNoTasks || is_idle,
        })
    }

    /// Returns the uuid of the job if the token belongs to a runner of the job.
    pub(super) fn find_runner_job(&self, id: &WorkId, runner: &WorkId) -> Result<Uuid, Refusal> {
        let missing = || Refusal::NoSuchWork(id.clone());
        let (_, uuid, _) = parse_work_id(id).ok_or_else(missing)?;
        let (job_id, job_runner) = match (self.works.get(&uuid), self.final_works.get(&uuid)) {
            (Some(work), _) => (&work.id, work.job().map(|job| &job.runner.id)),
            (None, Some(over)) => (&over.id, over.runner.as_ref()),
            (None, None) => return Err(missing()),
        };
        if job_id != id {
            return Err(missing());
        }
        let is_permitted =
            job_runner.is_some_and(|job_runner| job_runner == runner || id == runner);
        if is_permitted {
            Ok(uuid)
        } else {
            Err(Refusal::WrongRunner)
        }
    }

    /// Renews or removes the end of a lease. Renewals change no rows, because rows store holders
    /// and not expiry times.
    fn update_lease_end(
        &mut self,
        uuid: Uuid,
        holder: &AllocationId,
        holds_tasks: bool,
        moment: &Moment,
    ) {
        if !holds_tasks {
            self.lease_ends.remove(holder);
            return;
        }
        let end = moment
            .monotonic_ms
            .saturating_add(self.shared.settings.task_lease_ms);
        if self
            .lease_ends
            .insert(holder.clone(), (uuid, end))
            .is_none()
        {
            self.lease_order.insert((end, holder.clone()));
        }
    }

    /// Clears the backoff of a job that made progress.
    fn clear_backoff(&mut self, uuid: Uuid, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        let slot_id = work.slot_id(0).to_string();
        let Some(slot) = work.slots.first_mut() else {
            return;
        };
        if slot.backoff.clear() {
            slot.hold_reason = None;
            batch.rows.backoffs.push(BackoffRow {
                slot: slot_id,
                work: uuid,
                strikes: 0,
            });
            work.record_event("tasks make progress again", moment, batch);
            self.dirty.insert(uuid);
        }
    }

    /// Writes the rows of leases that changed in this batch.
    pub(super) fn write_leases(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        for (uuid, holder) in std::mem::take(&mut self.changed_leases) {
            // The leases of an ended job are deleted with it.
            let Some(work) = self.works.get_mut(&uuid) else {
                continue;
            };
            write_unrun(work, moment, batch);
            let Some(job) = work.job() else { continue };
            match leased_tasks_to_text(job, &holder) {
                Some(tasks) => batch.rows.leases.push(LeaseRow {
                    allocation: holder.to_string(),
                    job: uuid,
                    tasks,
                }),
                None => batch.rows.deleted_leases.push(holder.to_string()),
            }
        }
    }
}

/// Refuses reports about tasks that the job does not have.
fn check_tasks(work: &Work, job: &WorkId, reports: &[TaskReport]) -> Result<(), Refusal> {
    let total = work.job().map_or(0, |job| job.tasks.total());
    match reports.iter().find(|report| report.task >= total) {
        Some(unknown) => Err(Refusal::NoSuchTask {
            job: job.clone(),
            task: unknown.task,
            total,
        }),
        None => Ok(()),
    }
}

/// Whether the process holds leased tasks after the request.
#[derive(PartialEq, Eq)]
enum HeldTasks {
    None,
    Some,
    /// The process holds tasks, and no other task of the job was leased before.
    FirstOfJob,
}

/// Whether a runner may lease tasks.
#[derive(PartialEq, Eq)]
enum RunnerState {
    Open,
    /// The process gets no new tasks.
    TakesNoTasks,
    /// The runner is of an older version, and cannot do what the job asks for.
    TooOld,
    /// The runner has sent a later request.
    HasLaterRequest,
}

/// Tasks that one request returns and leases.
struct Exchange {
    leased: Vec<Leased>,
    /// Whether at least one task waits again.
    returned: bool,
    /// Whether other tasks run than before.
    running_changed: bool,
    held_tasks: HeldTasks,
    runner: RunnerState,
    submission: Arc<JobSubmission>,
}

impl Exchange {
    /// Applies the returns, the renewal and the leases of one request. Returns `None` if the work
    /// is no job.
    fn apply_request(work: &mut Work, request: &LeaseRequest, moment: &Moment) -> Option<Self> {
        let holder = &request.allocation;
        let (ended, takes_no_tasks) = (work.has_ended(holder), !work.may_lease(holder));
        let job = work.job_mut()?;
        let demand = lease_demand(request);
        let is_current = job.runners.record_request(holder, demand, request.request);
        let mut returned = false;
        let mut running_changed = false;
        if is_current {
            returned |= job.tasks.return_tasks(holder, &request.returned);
            if let Some(held) = &request.held {
                returned |= job.tasks.retain_known(holder, held);
            }
            running_changed = job
                .runners
                .set_running(holder, running_tasks(request, moment));
        }
        if ended {
            returned |= job.tasks.end_leases(holder);
            job.runners.remove(holder);
        }
        let is_too_old = request.understood_terms() < needed_terms(&job.submission);
        let runner = match (takes_no_tasks, is_current) {
            (true, _) => RunnerState::TakesNoTasks,
            (false, true) if is_too_old => RunnerState::TooOld,
            (false, true) => RunnerState::Open,
            (false, false) => RunnerState::HasLaterRequest,
        };
        let mut leased = Vec::new();
        if runner == RunnerState::Open && !job.tasks.is_over() {
            leased = lease_tasks(job, request, demand);
        } else if is_current {
            job.runners.record_response(holder, false);
        }
        let is_first = job.tasks.leased() == leased.len() as u64 && !leased.is_empty();
        let held_tasks = match job.tasks.leases_of(holder) {
            None => HeldTasks::None,
            Some(_) if is_first => HeldTasks::FirstOfJob,
            Some(_) => HeldTasks::Some,
        };
        Some(Self {
            returned,
            running_changed,
            held_tasks,
            runner,
            submission: job.submission.clone(),
            leased,
        })
    }

    /// Returns the terms of the job together with the first tasks of a runner.
    fn wanted_terms(
        &self,
        work: &Work,
        request: &LeaseRequest,
        grace_ms: u64,
    ) -> Option<Box<RunTerms>> {
        let is_wanted = request.terms == Some(TermsState::Wanted) && !self.leased.is_empty();
        let terms = is_wanted.then(|| work.run_terms(grace_ms)).flatten();
        terms.map(Box::new)
    }

    /// Returns whether the process may end, because nothing of the job waits and it runs nothing.
    /// It stays while a process that takes no new tasks may return some. A process that is too old
    /// ends too, so that its space goes to another one.
    fn has_no_work(&self, work: &Work, moment: &Moment) -> bool {
        if self.runner == RunnerState::TooOld {
            return self.held_tasks == HeldTasks::None;
        }
        let is_idle = self.runner == RunnerState::Open && self.held_tasks == HeldTasks::None;
        is_idle
            && work.job().is_some_and(|job| {
                let soon = moment.monotonic_ms.saturating_add(REQUEST_AHEAD_MS);
                let is_due_soon = job.tasks.next_due_ms().is_some_and(|due| due <= soon);
                let none_waits = job.tasks.waiting() == 0 && !is_due_soon;
                none_waits && job.tasks.holders().all(|other| work.may_lease(other))
            })
    }
}

/// Returns what a runner asks for. An older runner names no slots, and gets what it wants.
fn lease_demand(request: &LeaseRequest) -> LeaseDemand {
    let wanted = u64::from(request.want);
    match request.slots {
        Some(slots) => LeaseDemand {
            slots: u64::from(slots),
            idle: u64::from(request.idle.min(slots)),
            wanted,
        },
        None => LeaseDemand {
            slots: 1,
            idle: wanted,
            wanted,
        },
    }
}

fn running_tasks(request: &LeaseRequest, moment: &Moment) -> Vec<RunningTask> {
    let to_task = |running: &RunningReport| RunningTask {
        task: running.task,
        started_at_ms: moment
            .now
            .unix_ms()
            .saturating_sub(i64::try_from(running.run_ms).unwrap_or(i64::MAX)),
    };
    // A faulty list must not change the counts, so it names each task once, and no more than slots.
    let by_task: BTreeMap<u64, RunningTask> = request
        .running
        .iter()
        .take(request.slots.unwrap_or(0) as usize)
        .map(|running| (running.task, to_task(running)))
        .collect();
    by_task.into_values().collect()
}

fn lease_tasks(job: &mut Job, request: &LeaseRequest, demand: LeaseDemand) -> Vec<Leased> {
    let holder = &request.allocation;
    let held = job.tasks.leases_of(holder).map_or(0, BTreeMap::len) as u64;
    let count = job
        .runners
        .lease_count(holder, demand, held, job.tasks.waiting());
    let count = count.min(u64::from(job.max_leased));
    let leased = job
        .tasks
        .lease(holder, usize::try_from(count).unwrap_or(usize::MAX));
    // Only a request that waits for tasks may hold back the reserves of others.
    let waits = request.slots.is_some() && request.wait_ms > 0;
    let has_idle_slot = waits && (leased.len() as u64) < demand.idle;
    job.runners.record_response(holder, has_idle_slot);
    leased
}

/// Returns the column value of a lease: `[[first, one past the last, attempt], …]`.
fn leased_tasks_to_text(job: &Job, holder: &AllocationId) -> Option<String> {
    let mut spans: Vec<(u64, u64, u32)> = Vec::new();
    for (task, attempt) in job.tasks.leases_of(holder)? {
        match spans.last_mut() {
            Some((_, end, span_attempt)) if *end == *task && span_attempt == attempt => *end += 1,
            _ => spans.push((*task, *task + 1, *attempt)),
        }
    }
    serde_json::to_string(&spans).ok()
}

/// Parses the output of [`leased_tasks_to_text`].
pub fn leased_tasks_from_text(text: &str) -> Result<Vec<Leased>, serde_json::Error> {
    let spans: Vec<(u64, u64, u32)> = serde_json::from_str(text)?;
    Ok(spans
        .into_iter()
        .flat_map(|(start, end, attempt)| (start..end).map(move |task| Leased { task, attempt }))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_lease_is_parsed_into_its_tasks() {
        let read = leased_tasks_from_text("[[3,5,1],[9,10,2]]").unwrap();
        let plain: Vec<(u64, u32)> = read.iter().map(|it| (it.task, it.attempt)).collect();
        assert_eq!(plain, [(3, 1), (4, 1), (9, 2)]);
    }
}
