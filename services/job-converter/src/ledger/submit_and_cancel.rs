//! Applies submissions and cancellations of work.

use std::sync::Arc;

use hayward_job_converter_api::submission::{BulkResult, BulkSubmitted, Submitted};
use hayward_job_converter_api::{DEMAND, JOBS};
use hayward_publication::committer::{Batch, Moment};
use uuid::Uuid;

use super::Ledger;
use super::idempotency_keys::KeyState;
use super::task_signals::push_stops;
use crate::command::{CancelWork, ChangeTarget, SubmissionResponse, SubmitWork};
use crate::error::Refusal;
use crate::metrics;
use crate::store::Rows;
use crate::store::work::{CancelledRow, RunnerRow};
use crate::work::prepared_work::PreparedWork;
use crate::work::{Runner, StopSpeed, Work, parse_work_id, published_entries};

/// A runner token and the number of open jobs that use it.
pub struct RunnerUse {
    pub token: Arc<str>,
    pub works: usize,
}

/// Work that a caller may change.
pub(super) enum FoundWork {
    Open(Uuid),
    Ended,
}

impl Ledger {
    pub(super) fn submit(
        &mut self,
        submit: SubmitWork,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<SubmissionResponse, Refusal> {
        // A dry run may use any key again.
        match self.keys.lookup(submit.request_key) {
            _ if submit.is_dry_run => {}
            KeyState::SameRequest(response) => {
                return Ok(SubmissionResponse {
                    body: response,
                    replayed: true,
                });
            }
            KeyState::OtherRequest => return Err(Refusal::KeyMismatch),
            KeyState::New => {}
        }
        let limit = self.shared.settings.max_open_work;
        let open = self.works.len() + self.orchestrators.work_count();
        if open + submit.items.len() > limit {
            return Err(Refusal::TooMuchWork { limit });
        }
        let mut results = Vec::with_capacity(submit.items.len());
        for item in submit.items {
            results.push(match item {
                Ok(_) if submit.is_dry_run => BulkResult {
                    id: None,
                    error: None,
                },
                Ok(prepared) => {
                    let id = prepared.work.id.clone();
                    self.accept(*prepared, moment, batch);
                    BulkResult {
                        id: Some(id),
                        error: None,
                    }
                }
                Err(error) => BulkResult {
                    id: None,
                    error: Some(error),
                },
            });
        }
        let response = submission_response(results, submit.is_bulk, moment.revision);
        if submit.is_dry_run {
            return Ok(SubmissionResponse {
                body: response,
                replayed: false,
            });
        }
        batch
            .rows
            .keys
            .push(self.keys.insert(submit.request_key, moment.now, &response));
        Ok(SubmissionResponse {
            body: response,
            replayed: false,
        })
    }

    /// Adds prepared work to the working set, and publishes its view and demand.
    fn accept(&mut self, prepared: PreparedWork, moment: &Moment, batch: &mut Batch<Rows>) {
        let PreparedWork {
            mut work,
            row,
            view,
            demand,
            account,
        } = prepared;
        metrics::count_submission(work.kind());
        batch.publish(JOBS, work.user.as_str(), work.id.as_str(), &view);
        let known = Some(self.shared.accounts.of_user(&work.user, &mut batch.rows));
        if account == known {
            for (id, entry) in demand {
                batch.publish(DEMAND, "", id.as_str(), &entry);
            }
        } else {
            self.publish_demand(&work, batch);
        }
        if let Some(job) = work.job() {
            let runner = job.runner.clone();
            self.add_runner_use(&runner, batch);
        }
        batch.rows.submitted.revision = i64::try_from(moment.revision).unwrap_or(i64::MAX);
        batch.rows.submitted.rows.push(row);
        self.shared.owners.write().insert(work.uuid, &work.user);
        if let Some(host_key) = work.host_key() {
            // The first demand depends on the last nodes stored under this name.
            self.last_hosts.add_service((work.user.clone(), host_key));
            self.dirty.insert(work.uuid);
        }
        work.begin_processors(&self.last_hosts, moment);
        self.works.insert(work.uuid, Box::new(work));
    }

    /// Publishes the demand of new work, if its user got a number since the work was prepared.
    fn publish_demand(&self, work: &Work, batch: &mut Batch<Rows>) {
        let grace_ms = self.shared.settings.stop_grace_ms;
        for slot in 0..work.slots.len() {
            if let Some(mut entry) = published_entries::demand(work, slot, 0, grace_ms) {
                self.shared.accounts.add_to(&mut entry, &mut batch.rows);
                batch.publish(DEMAND, "", entry.work.as_str(), &entry);
            }
        }
    }

    fn add_runner_use(&mut self, runner: &Runner, batch: &mut Batch<Rows>) {
        if let Some(runner_use) = self.runners.get_mut(&runner.id) {
            runner_use.works += 1;
            return;
        }
        let token = runner.token.clone();
        let row = RunnerRow {
            id: runner.id.to_string(),
            token: token.to_string(),
        };
        // The token may have been released earlier in this batch. Its row must then stay.
        batch.rows.deleted_runners.retain(|id| *id != row.id);
        batch.rows.runners.push(row);
        self.runners
            .insert(runner.id.clone(), RunnerUse { token, works: 1 });
    }

    /// Returns the work if the caller may change it.
    pub(super) fn find_changeable(&self, target: &ChangeTarget) -> Result<FoundWork, Refusal> {
        let missing = || Refusal::NoSuchWork(target.id.clone());
        let (_, uuid, _) = parse_work_id(&target.id).ok_or_else(missing)?;
        let (id, owner, found) = match (self.works.get(&uuid), self.final_works.get(&uuid)) {
            (Some(work), _) => (&work.id, &work.user, FoundWork::Open(uuid)),
            (None, Some(over)) => (&over.id, &over.user, FoundWork::Ended),
            (None, None) => return Err(missing()),
        };
        let is_owner = target
            .user
            .as_ref()
            .is_none_or(|user| user == owner.as_str());
        if is_owner && *id == target.id {
            Ok(found)
        } else {
            Err(missing())
        }
    }

    /// Cancels work. Cancelling again, or cancelling ended work, changes nothing.
    pub(super) fn cancel(
        &mut self,
        cancel: &CancelWork,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let uuid = match self.find_changeable(&cancel.target)? {
            FoundWork::Open(uuid) => uuid,
            FoundWork::Ended => return Ok(()),
        };
        let Some(work) = self.works.get_mut(&uuid) else {
            return Ok(());
        };
        if work.cancelled || batch.is_dry_run() {
            return Ok(());
        }
        work.cancelled = true;
        for slot in 0..work.slots.len() {
            batch.withdraw(DEMAND, "", work.slot_id(slot).as_str());
        }
        batch.rows.cancelled.push(CancelledRow {
            id: uuid,
            at_ms: moment.now.unix_ms(),
        });
        work.record_event(
            format!("cancelled by {}", cancel.target.caller),
            moment,
            batch,
        );
        if let Some(job) = work.job_mut().filter(|_| cancel.speed == StopSpeed::AtOnce) {
            let held = job.tasks.held();
            push_stops(&self.shared, job, &held, cancel.speed, moment);
        }
        self.shared.tasks.notify(&uuid, moment.revision);
        self.dirty.insert(uuid);
        Ok(())
    }
}

/// Returns the body of the response: all results for a bulk request, else the id of the work.
fn submission_response(mut results: Vec<BulkResult>, is_bulk: bool, revision: u64) -> Arc<str> {
    let single = (!is_bulk)
        .then(|| results.pop().and_then(|result| result.id))
        .flatten();
    let text = match single {
        Some(id) => serde_json::to_string(&Submitted { id, revision }),
        None => serde_json::to_string(&BulkSubmitted { results, revision }),
    };
    // Serialization of ids, numbers and texts cannot fail.
    text.unwrap_or_default().into()
}
