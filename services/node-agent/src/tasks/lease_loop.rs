//! The loop in which a task runner calls job-converter. Each request reports finished tasks, renews
//! the lease of unfinished tasks and asks for more tasks. There is one request at a time.
//!
//! A failed request is repeated with the same outcomes. That is harmless, because the first outcome
//! of a task counts. If the lease expires before a request succeeds, all running tasks are killed,
//! and their outcomes are still reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hayward_job_converter_api::tasks::{LeaseAnswer, LeaseRequest, TaskReport, TermsState};
use hayward_node_agent_domain::{Lease, StopReason, StopRequest};
use hayward_service::{Client, ClientError, Code, Shutdown};
use hayward_vocabulary::{AllocationId, WorkId};
use http::Method;
use tokio::time::{sleep, sleep_until, timeout};

use super::queue::{QueueState, TaskLists, TaskQueue};
use super::request_form::RequestForm;
use crate::lease::boottime_ms;

/// Minimum interval between reports, to batch outcomes of short tasks.
const REPORT_INTERVAL: Duration = Duration::from_millis(40);
/// Maximum number of outcomes in one request.
const MAX_REPORTS: usize = 200;
/// Maximum size of the outcomes in one request, in bytes. job-converter accepts bodies of 1 MiB.
const MAX_REPORT_BYTES: usize = 700_000;
/// Time that job-converter may wait for tasks before it answers, in milliseconds.
const WAIT_MS: u64 = 20_000;
/// Unit of the backoff after failed requests, in milliseconds. It doubles with each failure.
const BACKOFF_UNIT_MS: u64 = 50;
/// Maximum number of these doublings.
const MAX_BACKOFF_DOUBLINGS: u32 = 6;
/// Shortest wait in milliseconds after which an empty response was worth waiting for.
const MIN_WAIT_MS: u64 = 100;
/// Delay after a response without tasks, while no slot is idle.
const EMPTY_RETRY: Duration = Duration::from_millis(250);
/// Time after the start of a task within which its start is reported (TC-11).
const START_REPORT: Duration = Duration::from_millis(500);
/// Time for which a refused token is retried. A wrong clock or a key rotation may be the cause,
/// which must not fail leased work (F23).
const REFUSAL_TIMEOUT: Duration = Duration::from_hours(2);
/// Part of the grace reserved for the last report.
const FINAL_REPORT_TIME: Duration = Duration::from_millis(500);
/// Maximum number of unreported outcomes. Above it, no task is requested (I25).
const MAX_UNREPORTED: usize = 4096;

/// Kills the tasks at once, because others may run them from now on.
const LEASE_EXPIRED: StopRequest = StopRequest {
    reason: StopReason::LeaseExpired,
    latest_kill_at_ms: 0,
};

pub struct LeaseLoop {
    client: Client,
    path: String,
    allocation: AllocationId,
    queue: Arc<TaskQueue>,
    /// Zero of the clock that `lease` uses.
    started_at: Instant,
    lease: Option<Lease>,
    /// Tasks that will not run here, to be reported in the next request.
    returned: Vec<u64>,
    /// Whether no more tasks are requested.
    done: bool,
    /// Number of failed requests in a row, at most [`MAX_BACKOFF_DOUBLINGS`].
    failures: u32,
    /// Whether the last response was lost, perhaps with tasks. Another request is then needed,
    /// which lists the tasks that this runner has.
    response_lost: bool,
    last_response: Option<Instant>,
    /// Time at which the token was first refused. `None` if it is accepted.
    refused_since: Option<Instant>,
    /// Earliest time of the next request for a reserve.
    next_request_at: Instant,
    /// Earliest time of the next request for idle slots.
    next_idle_request_at: Instant,
    /// Earliest time of any request after a failure.
    paused_until: Instant,
    /// Number of the last request.
    last_request: u64,
    form: RequestForm,
}

impl LeaseLoop {
    pub fn new(
        client: Client,
        job: &WorkId,
        allocation: AllocationId,
        queue: Arc<TaskQueue>,
    ) -> Self {
        Self {
            client,
            path: format!("/v1/jobs/{job}/tasks/leases"),
            allocation,
            queue,
            started_at: Instant::now(),
            lease: None,
            returned: Vec::new(),
            done: false,
            failures: 0,
            response_lost: false,
            last_response: None,
            refused_since: None,
            next_request_at: Instant::now(),
            next_idle_request_at: Instant::now(),
            paused_until: Instant::now(),
            last_request: 0,
            form: RequestForm::Usage,
        }
    }

    /// Runs until there are no more tasks, or until `stop`. `stop_tasks` stops running tasks.
    ///
    /// # Errors
    /// If job-converter does not know this runner any more.
    pub async fn run(
        mut self,
        stop: Shutdown,
        grace: Duration,
        stop_tasks: impl Fn(StopRequest),
    ) -> anyhow::Result<()> {
        while !stop.has_begun() {
            self.returned.extend(self.queue.take_overdue());
            let state = self.queue.state();
            let nothing_to_report = state.finished == 0 && self.returned.is_empty();
            if self.done && state.is_idle() && nothing_to_report {
                return Ok(());
            }
            self.stop_if_expired(&stop_tasks);
            let (next_request, wait_ms) = self.next_request(state);
            if let Some(at) = next_request
                && at <= Instant::now()
            {
                let queue = Arc::clone(&self.queue);
                let lease_end = self.lease_end().unwrap_or_else(far_future);
                let waits_next_to_tasks = wait_ms > 0 && !state.is_idle();
                // A task that starts during the wait is reported soon after its start.
                let reports_start = wait_ms > 0 && state.waiting > 0;
                tokio::select! {
                    result = self.exchange(state.want, wait_ms) => result?,
                    // Only a wait for tasks is cancelled, never a report. The next request lists
                    // all tasks of this runner, so tasks of a lost response are leased again.
                    () = stop.wait(), if wait_ms > 0 => {}
                    () = queue.changed.notified(), if waits_next_to_tasks => {}
                    () = sleep_until(lease_end.into()), if waits_next_to_tasks => {}
                    () = sleep(START_REPORT), if reports_start => {}
                }
                continue;
            }
            let wake_at = next_request
                .into_iter()
                .chain(self.lease_end())
                .chain(state.reserve_ends_at)
                .min();
            tokio::select! {
                () = self.queue.changed.notified() => {}
                () = stop.wait() => {}
                () = sleep_until(wake_at.unwrap_or_else(far_future).into()) => {}
            }
        }
        self.finish(grace, stop_tasks).await
    }

    /// Returns when to send the next request, and how long its response may wait.
    fn next_request(&self, state: QueueState) -> (Option<Instant>, u64) {
        let now = Instant::now();
        let holds_tasks = !state.is_idle();
        let wants_more = state.want > 0 && !self.done && state.finished < MAX_UNREPORTED;
        let has_idle_slot = state.idle > 0 && self.form.has_slots();
        let mut times = Vec::new();
        if wants_more {
            times.push(if has_idle_slot {
                self.next_idle_request_at
            } else {
                self.next_request_at
            });
        }
        if let Some(since) = state.unreported_since.filter(|_| self.form.has_slots()) {
            times.push(since + START_REPORT);
        }
        if state.finished > 0 {
            let is_urgent = !holds_tasks || has_idle_slot || state.finished >= MAX_REPORTS;
            times.push(if is_urgent { now } else { self.next_report() });
        }
        if !self.returned.is_empty() {
            times.push(now);
        }
        if holds_tasks && let Some(lease) = self.lease {
            times.push(self.started_at + Duration::from_millis(lease.renew_at_ms()));
        }
        let send_at = times
            .into_iter()
            .min()
            .map(|send_at| send_at.max(self.paused_until));
        let has_report = state.finished > 0 || !self.returned.is_empty();
        let wait_ms = match self.lease {
            _ if has_report => 0,
            // The wait leaves time to renew the lease of the running tasks.
            Some(lease) if holds_tasks && has_idle_slot && wants_more => {
                WAIT_MS.min(lease.lease_ms() / 3)
            }
            _ if holds_tasks => 0,
            _ => WAIT_MS,
        };
        (send_at, wait_ms)
    }

    fn next_report(&self) -> Instant {
        self.last_response
            .map_or_else(Instant::now, |response_at| response_at + REPORT_INTERVAL)
    }

    /// Returns when running tasks must be ended.
    fn lease_end(&self) -> Option<Instant> {
        self.lease
            .map(|lease| self.started_at + Duration::from_millis(lease.stop_at_ms()))
    }

    /// Ends running tasks before another runner may run them (I4).
    fn stop_if_expired(&mut self, stop_tasks: &impl Fn(StopRequest)) {
        let now_ms = millis(self.started_at.elapsed());
        if self.lease.is_some_and(|lease| !lease.is_valid_at(now_ms)) {
            self.lease = None;
            self.queue.halt();
            stop_tasks(LEASE_EXPIRED);
        }
    }

    /// Sends one request and handles its response.
    async fn exchange(&mut self, want: u32, wait_ms: u64) -> anyhow::Result<()> {
        let lists = self.queue.take_lists(MAX_REPORTS, MAX_REPORT_BYTES);
        let want = if self.done { 0 } else { want };
        let sent_ms = millis(self.started_at.elapsed());
        let pending = PendingReports {
            queue: Arc::clone(&self.queue),
            finished: lists.finished.clone(),
        };
        let request = self.new_request(want, wait_ms, lists);
        self.response_lost = true;
        let response = self.send(&request).await;
        self.response_lost = response.is_err();
        match response {
            Ok(response) => {
                pending.accept();
                self.apply_response(
                    response,
                    &SentRequest {
                        want,
                        wait_ms,
                        sent_ms,
                    },
                );
                Ok(())
            }
            Err(error) if self.is_permanent(&error) => {
                Err(error).context("job-converter does not know this runner any more")
            }
            Err(error) if self.form != RequestForm::Plain && is_unknown_field(&error) => {
                self.form = self.form.previous();
                Ok(())
            }
            Err(_) => {
                drop(pending);
                self.failures = self.failures.saturating_add(1).min(MAX_BACKOFF_DOUBLINGS);
                let max_ms = BACKOFF_UNIT_MS << self.failures;
                let pause_ms = rand::random_range(max_ms / 2..=max_ms);
                self.paused_until = Instant::now() + Duration::from_millis(pause_ms);
                Ok(())
            }
        }
    }

    fn apply_response(&mut self, response: LeaseAnswer, sent: &SentRequest) {
        self.failures = 0;
        self.refused_since = None;
        self.returned.clear();
        self.lease = Some(Lease::new(sent.sent_ms, response.lease_ms));
        self.done = response.done;
        let is_empty = response.tasks.is_empty() && sent.want > 0;
        let pause = if is_empty {
            EMPTY_RETRY
        } else {
            REPORT_INTERVAL
        };
        let now = Instant::now();
        self.last_response = Some(now);
        self.next_request_at = now + pause;
        // A server that does not wait must not be asked without a pause.
        let waited_ms = millis(self.started_at.elapsed()) - sent.sent_ms;
        if is_empty && sent.wait_ms > 0 && waited_ms < sent.wait_ms.min(MIN_WAIT_MS) {
            self.next_idle_request_at = now + EMPTY_RETRY;
        }
        self.queue.resume();
        if let Some(terms) = response.terms {
            self.queue.set_terms(*terms);
        }
        self.queue.add(response.tasks);
        if self.done {
            // Waiting tasks are returned, and running ones finish.
            self.returned.extend(self.queue.halt());
        }
    }

    fn new_request(&mut self, want: u32, wait_ms: u64, lists: TaskLists) -> LeaseRequest {
        self.last_request += 1;
        let mut finished = lists.finished;
        if self.form != RequestForm::Usage {
            for report in &mut finished {
                report.usage = None;
            }
        }
        let request = LeaseRequest {
            allocation: self.allocation.clone(),
            want,
            slots: Some(self.queue.threads()),
            idle: lists.idle,
            running: lists.running,
            request: self.last_request,
            finished,
            returned: self.returned.clone(),
            held: Some(lists.held),
            wait_ms,
            terms: self.terms_state(),
            terms_version: self.form.terms_version(),
        };
        if self.form.has_slots() {
            return request;
        }
        LeaseRequest {
            slots: None,
            idle: 0,
            running: Vec::new(),
            request: 0,
            ..request
        }
    }

    fn terms_state(&self) -> Option<TermsState> {
        let state = if self.queue.has_terms() {
            TermsState::Known
        } else {
            TermsState::Wanted
        };
        self.form.has_terms().then_some(state)
    }

    /// Returns whether retries are useless, because the job is gone or the token is not for it.
    fn is_permanent(&mut self, error: &ClientError) -> bool {
        match error.problem().map(|problem| &problem.code) {
            Some(Code::NotFound | Code::Forbidden) => true,
            Some(Code::Unauthenticated) => {
                self.refused_since
                    .get_or_insert_with(Instant::now)
                    .elapsed()
                    >= REFUSAL_TIMEOUT
            }
            _ => false,
        }
    }

    async fn send(&self, request: &LeaseRequest) -> Result<LeaseAnswer, ClientError> {
        let timeout = Duration::from_millis(request.wait_ms + 5_000);
        let call = self
            .client
            .call(Method::POST, self.path.as_str())
            .body(request);
        call.timeout(timeout).send().await
    }

    /// Gives waiting tasks back to job-converter, stops running tasks, and reports each end as it
    /// comes (TC-111).
    async fn finish(
        mut self,
        grace: Duration,
        stop_tasks: impl Fn(StopRequest),
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + grace;
        let kill_in = grace.saturating_sub(FINAL_REPORT_TIME.min(grace / 2));
        self.returned.extend(self.queue.halt());
        self.done = true;
        stop_tasks(StopRequest {
            reason: StopReason::Requested,
            latest_kill_at_ms: boottime_ms().saturating_add(millis(kill_in)),
        });
        let mut has_expired = false;
        while Instant::now() < deadline {
            let lease_end = self.lease_end().filter(|_| !has_expired);
            if lease_end.is_some_and(|at| at <= Instant::now()) {
                has_expired = true;
                stop_tasks(LEASE_EXPIRED);
                continue;
            }
            let wake_at = lease_end.map_or(deadline, |at| at.min(deadline));
            let state = self.queue.state();
            if state.finished > 0 || !self.returned.is_empty() || self.response_lost {
                let remaining = wake_at.saturating_duration_since(Instant::now());
                // After a timeout the loop checks again what is due.
                if let Ok(result) = timeout(remaining, self.exchange(0, 0)).await {
                    result?;
                    if self.failures > 0 {
                        sleep(REPORT_INTERVAL).await;
                    }
                }
                continue;
            }
            if state.running == 0 {
                return Ok(());
            }
            tokio::select! {
                () = self.queue.changed.notified() => {}
                () = sleep_until(wake_at.into()) => {}
            }
        }
        anyhow::bail!("the grace is over before the last report was accepted")
    }
}

/// A request that was answered.
struct SentRequest {
    /// Number of requested tasks.
    want: u32,
    /// Milliseconds that the response could wait for tasks.
    wait_ms: u64,
    /// Time of the request, in milliseconds since the start of the loop.
    sent_ms: u64,
}

/// Outcomes in a request that is under way. On drop, outcomes that were not accepted return to the
/// queue.
struct PendingReports {
    queue: Arc<TaskQueue>,
    finished: Vec<TaskReport>,
}

impl PendingReports {
    fn accept(mut self) {
        self.finished.clear();
    }
}

impl Drop for PendingReports {
    fn drop(&mut self) {
        if !self.finished.is_empty() {
            self.queue
                .restore_finished(std::mem::take(&mut self.finished));
        }
    }
}

/// Returns true if a field of the request was refused, as the version before does with new fields.
fn is_unknown_field(error: &ClientError) -> bool {
    let problem = error.problem();
    problem.is_some_and(|problem| {
        matches!(problem.code, Code::BadRequest | Code::Invalid)
            && format!("{problem:?}").contains("unknown field")
    })
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
