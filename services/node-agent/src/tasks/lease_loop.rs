//! The talk with job-converter: one request at a time reports what is finished, renews what is
//! held and asks for more.
//!
//! A request that failed is made again, with the same outcomes: repeating one is harmless. When the
//! lease is over before a request got through, everything that runs is ended; outcomes are still
//! reported, and the first one of a task is the one that counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hayward_job_converter_api::tasks::{LeaseAnswer, LeaseRequest, TaskReport};
use hayward_node_agent_domain::Lease;
use hayward_service::{Client, ClientError, Code, Shutdown};
use hayward_vocabulary::{AllocationId, WorkId};
use http::Method;
use tokio::time::{sleep, sleep_until, timeout};

use super::queue::{Desk, Standing};

/// Outcomes of short tasks are gathered this long.
const GATHER: Duration = Duration::from_millis(40);
/// Most outcomes in one request, and most bytes: a body has a limit of 1 MiB (S27).
const REPORTS: usize = 200;
const BODY: usize = 700_000;
/// How long an answer may wait for tasks.
const WAIT_MS: u64 = 20_000;
/// Between two questions for more while something runs.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// A token that is refused so long is no good any more. Until then a clock may be set right again,
/// or a key handed out (F23): work that was taken must not fail by it.
const DOUBT: Duration = Duration::from_hours(2);
/// Left of the grace for the last report.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Outcomes kept; while there are more, nothing new starts (I25).
const KEPT: usize = 4096;

pub struct Lending {
    client: Client,
    path: String,
    allocation: AllocationId,
    desk: Arc<Desk>,
    begun: Instant,
    lease: Option<Lease>,
    returned: Vec<u64>,
    done: bool,
    failures: u32,
    /// An answer was lost, and with it perhaps tasks: the other side has to be told what is held.
    unsure: bool,
    last_answer: Option<Instant>,
    /// Since when the token is refused.
    doubted: Option<Instant>,
    /// No question for more before this.
    hungry_at: Instant,
    /// No question at all before this.
    paused_until: Instant,
}

impl Lending {
    pub fn new(client: Client, job: &WorkId, allocation: AllocationId, desk: Arc<Desk>) -> Self {
        Self {
            client,
            path: format!("/v1/jobs/{job}/tasks/leases"),
            allocation,
            desk,
            begun: Instant::now(),
            lease: None,
            returned: Vec::new(),
            done: false,
            failures: 0,
            unsure: false,
            last_answer: None,
            doubted: None,
            hungry_at: Instant::now(),
            paused_until: Instant::now(),
        }
    }

    /// Until there is nothing more to do, or the stop was said and obeyed. `interrupt` ends what
    /// runs.
    ///
    /// # Errors
    /// When job-converter says that this runner has no business there.
    pub async fn run(
        mut self,
        stop: Shutdown,
        grace: Duration,
        interrupt: impl Fn(),
    ) -> anyhow::Result<()> {
        while !stop.begun() {
            let standing = self.desk.standing();
            let settled = standing.finished == 0 && self.returned.is_empty();
            if self.done && standing.is_idle() && settled {
                return Ok(());
            }
            self.keep_lease(standing, &interrupt);
            let (question, wait_ms) = self.question(standing);
            if let Some(at) = question
                && at <= Instant::now()
            {
                tokio::select! {
                    answered = self.ask(standing.want, wait_ms) => answered?,
                    // Only a wait for new work is given up; a report goes through.
                    () = stop.wait(), if wait_ms > 0 => {}
                }
                continue;
            }
            let until = question.into_iter().chain(self.lease_ends()).min();
            tokio::select! {
                () = self.desk.news.notified() => {}
                () = stop.wait() => {}
                () = sleep_until(until.unwrap_or_else(far).into()) => {}
            }
        }
        self.leave(grace, interrupt).await
    }

    /// When to ask next, and how long the answer may wait.
    fn question(&self, standing: Standing) -> (Option<Instant>, u64) {
        let now = Instant::now();
        let held = !standing.is_idle();
        let hungry = standing.want > 0 && !self.done && standing.finished < KEPT;
        let mut times = Vec::new();
        if hungry {
            times.push(self.hungry_at);
        }
        if standing.finished > 0 {
            let at_once = !held || standing.finished >= REPORTS;
            times.push(if at_once { now } else { self.next_report() });
        }
        if !self.returned.is_empty() {
            times.push(now);
        }
        if held && let Some(lease) = self.lease {
            times.push(self.begun + Duration::from_millis(lease.renew_at_ms()));
        }
        let at = times.into_iter().min().map(|at| at.max(self.paused_until));
        let wait_ms = if !held && standing.finished == 0 {
            WAIT_MS
        } else {
            0
        };
        (at, wait_ms)
    }

    fn next_report(&self) -> Instant {
        self.last_answer
            .map_or_else(Instant::now, |answered| answered + GATHER)
    }

    fn lease_ends(&self) -> Option<Instant> {
        self.lease
            .map(|lease| self.begun + Duration::from_millis(lease.stop_at_ms()))
    }

    /// I4: what runs is ended before somebody else may run it.
    fn keep_lease(&mut self, standing: Standing, interrupt: &impl Fn()) {
        let now_ms = millis(self.begun.elapsed());
        if self.lease.is_some_and(|lease| !lease.holds(now_ms)) {
            self.lease = None;
            self.desk.halt();
            if standing.running > 0 {
                interrupt();
            }
        }
    }

    async fn ask(&mut self, want: u32, wait_ms: u64) -> anyhow::Result<()> {
        let (finished, held) = self.desk.take_finished(REPORTS, BODY);
        let want = if self.done { 0 } else { want };
        let asked_ms = millis(self.begun.elapsed());
        let sent = Guarded {
            desk: Arc::clone(&self.desk),
            finished,
        };
        let request = LeaseRequest {
            allocation: self.allocation.clone(),
            want,
            finished: sent.finished.clone(),
            returned: self.returned.clone(),
            held: Some(held),
            wait_ms,
        };
        self.unsure = true;
        let answer = self.send(&request).await;
        self.unsure = answer.is_err();
        match answer {
            Ok(answer) => {
                sent.accepted();
                self.failures = 0;
                self.doubted = None;
                self.returned.clear();
                self.lease = Some(Lease::new(asked_ms, answer.lease_ms));
                self.done = answer.done;
                let nothing = answer.tasks.is_empty() && want > 0;
                let pause = if nothing { ASK_AGAIN } else { Duration::ZERO };
                let now = Instant::now();
                self.last_answer = Some(now);
                self.hungry_at = now + pause;
                self.desk.resume();
                self.desk.lay(answer.tasks);
                if self.done {
                    // What has not started is for others; what runs comes to its end.
                    self.returned.extend(self.desk.halt());
                }
                Ok(())
            }
            Err(error) if self.is_final(&error) => {
                Err(error).context("job-converter does not know this runner any more")
            }
            Err(_) => {
                drop(sent);
                self.failures = self.failures.saturating_add(1).min(6);
                let most = 50_u64 << self.failures;
                let pause = rand::random_range(most / 2..=most);
                self.paused_until = Instant::now() + Duration::from_millis(pause);
                Ok(())
            }
        }
    }

    /// Refusals that no repetition changes: the job is gone, or the token is not for it.
    fn is_final(&mut self, error: &ClientError) -> bool {
        match error.problem().map(|problem| &problem.code) {
            Some(Code::NotFound | Code::Forbidden) => true,
            Some(Code::Unauthenticated) => {
                self.doubted.get_or_insert_with(Instant::now).elapsed() >= DOUBT
            }
            _ => false,
        }
    }

    async fn send(&self, request: &LeaseRequest) -> Result<LeaseAnswer, ClientError> {
        let patience = Duration::from_millis(request.wait_ms + 5_000);
        let call = self
            .client
            .call(Method::POST, self.path.as_str())
            .body(request);
        call.timeout(patience).send().await
    }

    /// Gives back what has not started, lets what runs finish within the grace, reports, goes.
    async fn leave(mut self, grace: Duration, interrupt: impl Fn()) -> anyhow::Result<()> {
        let over = Instant::now() + grace;
        let kill_at = over.checked_sub(LAST_WORDS.min(grace / 2)).unwrap_or(over);
        self.returned.extend(self.desk.halt());
        self.done = true;
        let mut interrupted = false;
        while Instant::now() < over {
            let ends = self.lease_ends().unwrap_or(kill_at).min(kill_at);
            if !interrupted && Instant::now() >= ends {
                interrupted = true;
                interrupt();
            }
            let next = if interrupted { over } else { ends };
            let standing = self.desk.standing();
            if standing.finished > 0 || !self.returned.is_empty() || self.unsure {
                let left = next.saturating_duration_since(Instant::now());
                // Out of time means to look again what is due, not to give up.
                if let Ok(answered) = timeout(left, self.ask(0, 0)).await {
                    answered?;
                    if self.failures > 0 {
                        sleep(GATHER).await;
                    }
                }
                continue;
            }
            if standing.running == 0 {
                return Ok(());
            }
            tokio::select! {
                () = self.desk.news.notified() => {}
                () = sleep_until(next.into()) => {}
            }
        }
        anyhow::bail!("the grace is over before the last report was accepted")
    }
}

/// Outcomes under way; they go back to the desk unless they were accepted.
struct Guarded {
    desk: Arc<Desk>,
    finished: Vec<TaskReport>,
}

impl Guarded {
    fn accepted(mut self) {
        self.finished.clear();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !self.finished.is_empty() {
            self.desk.put_back(std::mem::take(&mut self.finished));
        }
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
