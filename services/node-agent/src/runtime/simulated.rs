//! The runtime of a simulated node. Containers are async tasks that only wait. Task runners lease
//! real tasks and report simulated outcomes through the real lease loop. All other parts of the
//! agent are the same as on a real node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use hayward_job_converter_api::tasks::{EndCause, LeasedTask, RunEnd, TaskReport};
use hayward_node_agent_domain::{LeaseAction, NodeFault, Tenure, lease};
use hayward_service::Shutdown;
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Program};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Container, Event, EventSender, FoundContainer, OutputPiece, Runtime, RuntimeEvent};
use crate::lease::boottime_ms;
use crate::tasks::queue::TaskQueue;
use crate::tasks::{Assignment, TaskSource};

/// Behaviour of simulated programs.
#[derive(Debug, Clone)]
pub struct Behaviour {
    pub source: TaskSource,
    /// Duration of a command in milliseconds. With 0, it runs until it is stopped.
    pub container_ms: u64,
    /// Duration of a task in milliseconds.
    pub task_ms: u64,
    /// Percentage of tasks that fail.
    pub failure_percent: u32,
    /// Fault of every start. `None` if starts succeed.
    pub fault: Option<NodeFault>,
}

pub struct SimulatedRuntime {
    behaviour: Arc<Behaviour>,
    events: EventSender,
    tenure: watch::Receiver<Option<Tenure>>,
    /// Stop signals of the containers that have not ended.
    live: Arc<Mutex<HashMap<AllocationId, Shutdown>>>,
}

impl SimulatedRuntime {
    pub fn new(
        behaviour: Behaviour,
        events: EventSender,
        tenure: watch::Receiver<Option<Tenure>>,
    ) -> Self {
        Self {
            behaviour: Arc::new(behaviour),
            events,
            tenure,
            live: Arc::default(),
        }
    }
}

impl Runtime for SimulatedRuntime {
    fn available_runtimes(&self) -> Vec<String> {
        vec!["simulated".to_owned()]
    }

    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("hayward.limits".to_owned(), "pretended".to_owned())])
    }

    /// Finds no container, because each start of the agent counts as a boot.
    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, FoundContainer>> {
        Ok(BTreeMap::new())
    }

    fn launch(&self, container: Container) {
        let stop = Shutdown::new();
        self.live.lock().insert(container.id.clone(), stop.clone());
        let (events, live) = (self.events.clone(), Arc::clone(&self.live));
        let (behaviour, tenure) = (Arc::clone(&self.behaviour), self.tenure.clone());
        tokio::spawn(async move {
            let (id, incarnation) = (container.id.clone(), container.incarnation);
            let send_event = async |event| {
                let id = id.clone();
                let _ = events
                    .send(RuntimeEvent {
                        id,
                        incarnation,
                        event,
                    })
                    .await;
            };
            let mut exit = if let Some(fault) = behaviour.fault {
                fault.to_exit("this simulated machine cannot start anything")
            } else {
                // The pid is 0, because there is no real process.
                let (pid, at) = (0, SystemClock.now());
                send_event(Event::Started { pid, at }).await;
                run_to_end(&behaviour, &container, stop, tenure).await
            };
            exit.ended_at = Some(SystemClock.now());
            live.lock().remove(&id);
            send_event(Event::Ended(exit)).await;
        });
    }

    fn stop(&self, id: &AllocationId) {
        if let Some(stop) = self.live.lock().get(id) {
            stop.begin();
        }
    }

    fn forget(&self, _id: &AllocationId) {}

    fn output(&self, _: &AllocationId, _: u64, _: u64, _: u64) -> Option<OutputPiece> {
        None
    }

    fn has_output(&self) -> bool {
        false
    }
}

/// Waits until the container ends, is stopped, or loses its lease.
async fn run_to_end(
    behaviour: &Arc<Behaviour>,
    container: &Container,
    stop: Shutdown,
    tenure: watch::Receiver<Option<Tenure>>,
) -> Exit {
    tokio::select! {
        exit = run_program(behaviour, container, stop.clone()) => {
            if stop.has_begun() { Exit::of(ExitCause::Intended, "asked to end") } else { exit }
        }
        () = wait_for_lease_end(tenure), if container.exclusive => {
            Exit::of(ExitCause::Node, "the lease of its node ran out")
        }
    }
}

/// Waits for the end of the lease. A simulated program needs no time to stop.
async fn wait_for_lease_end(tenure: watch::Receiver<Option<Tenure>>) {
    loop {
        let lease_held = tenure.borrow().map(|tenure| tenure.lease);
        let now_ms = boottime_ms();
        match lease::required_action(now_ms, lease_held) {
            LeaseAction::Run { until_ms } => sleep(Duration::from_millis(until_ms - now_ms)).await,
            LeaseAction::Stop { .. } | LeaseAction::Kill => return,
        }
    }
}

async fn run_program(behaviour: &Arc<Behaviour>, container: &Container, stop: Shutdown) -> Exit {
    match &container.launch.program {
        Program::Command { .. } | Program::Container { .. } => {
            tokio::select! {
                () = stop.wait() => {}
                () = sleep(Duration::from_millis(behaviour.container_ms)),
                    if behaviour.container_ms > 0 => {}
            }
            exit_with_code(0)
        }
        Program::RunTasks { token, threads } => {
            let assignment = Assignment {
                source: behaviour.source.clone(),
                token: token.clone(),
                job: container.work.clone(),
                allocation: container.id.clone(),
                threads: *threads,
                stop_grace_ms: container.launch.stop_grace_ms,
                node: String::new(),
            };
            match run_tasks(behaviour, &assignment, stop).await {
                Ok(()) => exit_with_code(0),
                Err(error) => {
                    let message = Some(format!("{error:#}"));
                    Exit {
                        message,
                        ..exit_with_code(1)
                    }
                }
            }
        }
    }
}

fn exit_with_code(code: i32) -> Exit {
    let cause = if code == 0 {
        ExitCause::Success
    } else {
        ExitCause::UserError
    };
    Exit {
        cause,
        cause_code: None,
        code: Some(code),
        signal: None,
        message: None,
        ended_at: None,
    }
}

async fn run_tasks(
    behaviour: &Arc<Behaviour>,
    assignment: &Assignment,
    stop: Shutdown,
) -> anyhow::Result<()> {
    let queue = Arc::new(TaskQueue::new(assignment.threads));
    // Time of the last stop request. Tasks that start later go on.
    let (stop_sender, stopped_at) = watch::channel(None);
    for _ in 0..queue.threads() {
        tokio::spawn(run_worker(
            Arc::clone(behaviour),
            Arc::clone(&queue),
            stopped_at.clone(),
        ));
    }
    let grace = Duration::from_millis(assignment.stop_grace_ms);
    let lease_loop = assignment.lease_loop(Arc::clone(&queue))?;
    let stop_tasks = |_| {
        stop_sender.send_replace(Some(std::time::Instant::now()));
    };
    let result = lease_loop.run(stop, grace, stop_tasks).await;
    queue.close();
    result
}

async fn run_worker(
    behaviour: Arc<Behaviour>,
    queue: Arc<TaskQueue>,
    mut stopped_at: watch::Receiver<Option<std::time::Instant>>,
) {
    while let Some(started) = queue.take_async().await {
        let task = &started.task;
        let started_at = tokio::time::Instant::now();
        let limit_ms = started.terms.as_ref().and_then(|terms| terms.time_limit_ms);
        let reaches_limit = limit_ms.is_some_and(|limit| limit < behaviour.task_ms);
        let run_ms = limit_ms.map_or(behaviour.task_ms, |limit| limit.min(behaviour.task_ms));
        let mut interrupted = false;
        if run_ms > 0 {
            let is_later = |stop: &Option<_>| stop.is_some_and(|at| at >= started.started_at);
            tokio::select! {
                () = sleep(Duration::from_millis(run_ms)) => {}
                stop = stopped_at.wait_for(is_later) => interrupted = stop.is_ok(),
            }
        }
        let duration_us = u64::try_from(started_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut report = simulate_outcome(&behaviour, task, interrupted, duration_us);
        if reaches_limit && !interrupted {
            report.end = Some(RunEnd {
                cause: EndCause::TimeLimit,
                message: None,
            });
        }
        queue.finish(report);
        // The worker yields, because short tasks must not block other work.
        tokio::task::yield_now().await;
    }
}

/// Returns the report of a simulated task. Failures depend only on the number and attempt of the
/// task, so runs are reproducible.
fn simulate_outcome(
    behaviour: &Behaviour,
    task: &LeasedTask,
    interrupted: bool,
    duration_us: u64,
) -> TaskReport {
    let hash = task
        .task
        .wrapping_mul(31)
        .wrapping_add(u64::from(task.attempt).wrapping_mul(17));
    let failed = hash % 100 < u64::from(behaviour.failure_percent);
    TaskReport {
        task: task.task,
        attempt: task.attempt,
        exit_code: (!interrupted).then_some(i32::from(failed)),
        signal: None,
        error: None,
        interrupted,
        end: None,
        duration_us,
        usage: None,
        output: String::new(),
    }
}
