//! Queue of waiting, running and finished tasks, between the lease loop and the workers.
//!
//! The lease loop is woken only when a request is due, not for each task, to avoid context switches
//! for short tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_job_converter_api::tasks::{LeasedTask, RunTerms, RunningReport, TaskReport};
use hayward_node_agent_domain::{RESERVE_HORIZON_MS, ReserveSizer};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

pub struct TaskQueue {
    inner: Mutex<Inner>,
    /// Notifies worker threads of new tasks.
    task_available: Condvar,
    /// Notifies asynchronous workers of new tasks.
    async_task_available: Notify,
    /// Notifies the lease loop that a request may be due.
    pub changed: Notify,
}

struct Inner {
    waiting: VecDeque<WaitingTask>,
    /// Numbers of tasks that will not start here, until they are returned.
    withdrawn: Vec<u64>,
    running: Vec<RunningTask>,
    /// Outcomes that are not yet accepted.
    finished: Vec<TaskReport>,
    sizer: ReserveSizer,
    /// Number of waiting tasks at which the lease loop is woken.
    wake_threshold: usize,
    closed: bool,
    /// Whether no more tasks may start.
    halted: bool,
    /// Terms of all tasks. `None` until job-converter has sent them.
    terms: Option<Arc<RunTerms>>,
}

/// A task that a worker has to run.
pub struct StartedTask {
    pub task: LeasedTask,
    /// `None` if job-converter has an older version. Then the task has its own command.
    pub terms: Option<Arc<RunTerms>>,
    /// A stop that was requested before does not concern the task.
    pub started_at: Instant,
}

/// A leased task that has not started.
struct WaitingTask {
    task: LeasedTask,
    received_at: Instant,
}

struct RunningTask {
    task: u64,
    attempt: u32,
    started_at: Instant,
    /// Whether job-converter may know that the task runs.
    reported: bool,
}

/// Snapshot of the queue for the lease loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    pub waiting: u32,
    pub running: u32,
    pub finished: usize,
    /// Number of slots that run nothing and have no task waiting for them.
    pub idle: u32,
    /// Number of tasks to request.
    pub want: u32,
    /// When the oldest waiting task must be returned.
    pub reserve_ends_at: Option<Instant>,
    /// Start of the oldest task that was not reported as running.
    pub unreported_since: Option<Instant>,
}

/// Content of one request about the tasks of a runner. All lists are read together, because a task
/// in none of them would be leased to another runner.
pub struct TaskLists {
    pub finished: Vec<TaskReport>,
    pub running: Vec<RunningReport>,
    /// Numbers of all tasks that are not in `finished`.
    pub held: Vec<u64>,
    pub idle: u32,
}

impl QueueState {
    pub fn is_idle(self) -> bool {
        self.waiting == 0 && self.running == 0
    }
}

impl TaskQueue {
    pub fn new(threads: u32) -> Self {
        let inner = Inner {
            waiting: VecDeque::new(),
            withdrawn: Vec::new(),
            running: Vec::new(),
            finished: Vec::new(),
            sizer: ReserveSizer::new(threads),
            wake_threshold: 0,
            closed: false,
            halted: false,
            terms: None,
        };
        let (task_available, async_task_available, changed) =
            (Condvar::new(), Notify::new(), Notify::new());
        Self {
            inner: Mutex::new(inner),
            task_available,
            async_task_available,
            changed,
        }
    }

    pub fn threads(&self) -> u32 {
        self.inner.lock().sizer.slots()
    }

    pub fn set_terms(&self, terms: RunTerms) {
        self.inner.lock().terms = Some(Arc::new(terms));
    }

    pub fn has_terms(&self) -> bool {
        self.inner.lock().terms.is_some()
    }

    pub fn add(&self, tasks: Vec<LeasedTask>) {
        let count = tasks.len();
        let mut inner = self.inner.lock();
        let received_at = Instant::now();
        inner.waiting.extend(
            tasks
                .into_iter()
                .map(|task| WaitingTask { task, received_at }),
        );
        inner.wake_threshold = inner.waiting.len() / 2;
        drop(inner);
        for _ in 0..count.min(usize::from(u16::MAX)) {
            if !self.task_available.notify_one() {
                break;
            }
        }
        self.async_task_available.notify_one();
    }

    /// Waits for the next task. Returns `None` when the queue is closed.
    pub fn take(&self) -> Option<StartedTask> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(task) = inner.start_next() {
                drop(inner);
                return Some(task);
            }
            if inner.closed {
                return None;
            }
            self.task_available.wait(&mut inner);
        }
    }

    /// Waits for the next task like [`TaskQueue::take`], for workers that are not threads.
    pub async fn take_async(&self) -> Option<StartedTask> {
        loop {
            {
                let mut inner = self.inner.lock();
                if let Some(task) = inner.start_next() {
                    if !inner.waiting.is_empty() {
                        self.async_task_available.notify_one();
                    }
                    return Some(task);
                }
                if inner.closed {
                    self.async_task_available.notify_one();
                    return None;
                }
            }
            self.async_task_available.notified().await;
        }
    }

    /// Records the outcome of a running task.
    pub fn finish(&self, report: TaskReport) {
        let mut inner = self.inner.lock();
        if !report.interrupted {
            inner.sizer.record(report.duration_us);
        }
        inner.running.retain(|running| running.task != report.task);
        inner.finished.push(report);
        let has_idle_slot = inner.waiting.is_empty();
        // The lease loop waits for the first outcome to report it after an interval. Later outcomes
        // notify the loop only if more tasks are needed.
        let notify = inner.finished.len() == 1
            || has_idle_slot
            || inner.waiting.len() == inner.wake_threshold;
        drop(inner);
        if notify {
            self.changed.notify_one();
        }
    }

    pub fn state(&self) -> QueueState {
        let inner = self.inner.lock();
        let waiting = u32::try_from(inner.waiting.len()).unwrap_or(u32::MAX);
        let running = u32::try_from(inner.running.len()).unwrap_or(u32::MAX);
        let finished = inner.finished.len();
        let unfinished = waiting.saturating_add(running);
        let unreported = inner.running.iter().filter(|running| !running.reported);
        QueueState {
            waiting,
            running,
            finished,
            idle: inner.sizer.idle(unfinished),
            want: inner.sizer.request_count(unfinished, inner.long_running()),
            reserve_ends_at: inner.waiting.front().map(WaitingTask::return_at),
            unreported_since: unreported.map(|running| running.started_at).min(),
        }
    }

    /// Removes a waiting task, so that it is returned. Returns false if it does not wait.
    pub fn withdraw(&self, task: u64) -> bool {
        let mut inner = self.inner.lock();
        let index = inner.waiting.iter().position(|it| it.task.task == task);
        let Some(index) = index else {
            return false;
        };
        inner.waiting.remove(index);
        inner.withdrawn.push(task);
        drop(inner);
        self.changed.notify_one();
        true
    }

    /// Returns whether a run of a task has started and not ended.
    pub fn is_running(&self, task: u64, attempt: u32) -> bool {
        let inner = self.inner.lock();
        let mut running = inner.running.iter();
        running.any(|running| running.task == task && running.attempt == attempt)
    }

    /// Removes and returns the withdrawn tasks, and those that have waited for the whole horizon
    /// (TC-4).
    pub fn take_overdue(&self) -> Vec<u64> {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let is_due = |waiting: &&WaitingTask| waiting.return_at() <= now;
        let count = inner.waiting.iter().take_while(is_due).count();
        let mut returned = std::mem::take(&mut inner.withdrawn);
        returned.extend(inner.waiting.drain(..count).map(|it| it.task.task));
        returned
    }

    /// Takes the oldest outcomes that fit into one request, and lists the other tasks.
    pub fn take_lists(&self, max_count: usize, max_bytes: usize) -> TaskLists {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let mut remaining = max_bytes;
        let fits = |report: &TaskReport| {
            let remaining_after = remaining.checked_sub(max_json_size(report));
            remaining = remaining_after.unwrap_or(0);
            remaining_after.is_some()
        };
        let count = inner
            .finished
            .iter()
            .take(max_count)
            .map(fits)
            .take_while(|fits| *fits)
            .count();
        // One outcome always fits, because its output is limited.
        let count = count.max(1).min(inner.finished.len());
        let finished: Vec<_> = inner.finished.drain(..count).collect();
        let held = inner
            .waiting
            .iter()
            .map(|waiting| waiting.task.task)
            .chain(inner.running.iter().map(|running| running.task))
            .chain(inner.finished.iter().map(|report| report.task))
            .collect();
        let unfinished = inner.waiting.len() + inner.running.len();
        let idle = inner
            .sizer
            .idle(u32::try_from(unfinished).unwrap_or(u32::MAX));
        let running = inner.running.iter_mut().map(RunningTask::report).collect();
        TaskLists {
            finished,
            running,
            held,
            idle,
        }
    }

    /// Puts back outcomes that were not accepted.
    pub fn restore_finished(&self, mut reports: Vec<TaskReport>) {
        let mut inner = self.inner.lock();
        reports.append(&mut inner.finished);
        inner.finished = reports;
    }

    /// Removes and returns waiting tasks. No task starts until [`TaskQueue::resume`].
    pub fn halt(&self) -> Vec<u64> {
        let mut inner = self.inner.lock();
        inner.halted = true;
        inner
            .waiting
            .drain(..)
            .map(|waiting| waiting.task.task)
            .collect()
    }

    pub fn resume(&self) {
        self.inner.lock().halted = false;
    }

    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.task_available.notify_all();
        self.async_task_available.notify_one();
    }
}

impl Inner {
    /// Returns the number of tasks that have run for longer than the horizon of the reserve.
    fn long_running(&self) -> u32 {
        let horizon = Duration::from_millis(RESERVE_HORIZON_MS);
        let is_long = |running: &&RunningTask| running.started_at.elapsed() > horizon;
        u32::try_from(self.running.iter().filter(is_long).count()).unwrap_or(u32::MAX)
    }

    fn start_next(&mut self) -> Option<StartedTask> {
        if self.halted {
            return None;
        }
        let WaitingTask { task, .. } = self.waiting.pop_front()?;
        let started_at = Instant::now();
        self.running.push(RunningTask {
            task: task.task,
            attempt: task.attempt,
            started_at,
            reported: false,
        });
        let terms = self.terms.clone();
        Some(StartedTask {
            task,
            terms,
            started_at,
        })
    }
}

impl WaitingTask {
    fn return_at(&self) -> Instant {
        self.received_at + Duration::from_millis(RESERVE_HORIZON_MS)
    }
}

impl RunningTask {
    fn report(&mut self) -> RunningReport {
        self.reported = true;
        RunningReport {
            task: self.task,
            attempt: self.attempt,
            run_ms: u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Upper bound of the JSON size of a report without its texts, in bytes.
const MAX_FIXED_SIZE: usize = 480;

/// Returns an upper bound of the JSON size of a report.
fn max_json_size(report: &TaskReport) -> usize {
    let escaped_size = |byte: u8| {
        if byte < 0x20 || matches!(byte, b'"' | b'\\') {
            // The longest escape is `\u0000`.
            6
        } else {
            1
        }
    };
    let text_size = |text: &str| text.bytes().map(escaped_size).sum::<usize>();
    let message = report.end.as_ref().and_then(|end| end.message.as_deref());
    let texts = [report.error.as_deref(), message];
    let text_sizes: usize = texts.into_iter().flatten().map(text_size).sum();
    MAX_FIXED_SIZE + text_size(&report.output) + text_sizes
}
