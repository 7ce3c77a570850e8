//! A fake control plane for one agent: node-status, container-manager and job-converter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use hayward_container_manager_api::{
    ContainerReport, ContainerState, DesiredEntry, Goal, OutputReport, Report, ReportAnswer,
};
use hayward_job_converter_api::tasks::{
    LeaseAnswer, LeaseRequest, LeasedTask, RunTerms, TaskReport, TermsState,
};
use hayward_node_status_api::{Health, Heartbeat, HeartbeatAnswer};
use hayward_service::{Code, Problem};
use hayward_vocabulary::{AllocationId, Exit, Launch, Program, Size, WorkKind};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Time limit of waits.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// State of the fake services. Tests change it to order containers and to inject faults.
#[derive(Default, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault that a test switches on by itself"
)]
pub struct ControlPlaneState {
    /// Desired set of the node.
    pub desired: BTreeMap<String, DesiredEntry>,
    /// Revision of the desired set.
    pub revision: u64,
    /// All received heartbeats.
    pub heartbeats: Vec<Heartbeat>,
    /// Last report of the agent.
    pub report: Option<Report>,
    /// Received output, by container.
    pub output: BTreeMap<AllocationId, String>,
    /// Tasks to lease, in reverse order.
    pub tasks: Vec<LeasedTask>,
    /// Tasks that are leased now, by number.
    pub leased: BTreeMap<u64, LeasedTask>,
    /// Terms for all tasks. `None` if job-converter has an older version.
    pub terms: Option<RunTerms>,
    /// Reports of runs that Hayward stopped.
    pub interrupted: Vec<TaskReport>,
    /// First outcome of each task, by number.
    pub finished: BTreeMap<u64, TaskReport>,
    /// Numbers of the tasks that the last request reported as running.
    pub running: Vec<u64>,
    /// Numbers of the tasks that the runner gave back.
    pub returned: Vec<u64>,
    /// Number of all tasks. The job is done when all of them have an outcome.
    pub task_count: usize,
    /// Whether job-converter leases no more tasks.
    pub no_more_tasks: bool,
    /// Number of accepted requests of the task runner.
    pub requests: u64,
    /// Duration of the leases of tasks, in milliseconds.
    pub lease_ms: u64,
    /// Whether job-converter is down.
    pub job_converter_down: bool,
    /// Whether job-converter refuses all tokens.
    pub tokens_refused: bool,
    /// Number of requests of the task runner that were refused because of their token.
    pub refused_requests: u64,
    /// Lease of the node in the responses to heartbeats, in milliseconds. `None` if no lease is
    /// granted.
    pub node_lease_ms: Option<u64>,
    /// Whether node-status is down.
    pub node_status_down: bool,
    /// Number of requests for the desired set.
    pub desired_requests: u64,
    /// All reported ends by container and incarnation, with repetitions.
    pub ends: BTreeMap<(AllocationId, u64), Vec<Exit>>,
    /// Position to publish in place of the current one. `None` publishes the current position.
    pub cursor: Option<String>,
}

/// The fake services, at one address, and a temporary directory for the agent.
#[derive(Clone)]
pub struct FakeControlPlane {
    /// State of the fake services. Waits are notified of each change.
    pub state: Arc<watch::Sender<ControlPlaneState>>,
    pub url: String,
    pub dir: Arc<tempfile::TempDir>,
}

type SharedState = Arc<watch::Sender<ControlPlaneState>>;

impl FakeControlPlane {
    pub async fn start() -> Self {
        let initial_state = ControlPlaneState {
            lease_ms: 30_000,
            ..ControlPlaneState::default()
        };
        let state: SharedState = Arc::new(watch::channel(initial_state).0);
        let router = Router::new()
            .route("/v1/nodes/{node}/heartbeat", put(put_heartbeat))
            .route("/v1/nodes/{node}/report", put(put_report))
            .route("/v1/nodes/{node}/output", put(put_output))
            .route("/v1/desired/{node}/publication", get(get_desired))
            .route("/v1/jobs/{job}/tasks/leases", post(lease_tasks))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let dir = Arc::new(tempfile::tempdir().unwrap());
        // Programs of other accounts write to this folder.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(dir.path(), mode).unwrap();
        std::fs::write(dir.path().join("token"), "secret").unwrap();
        Self { state, url, dir }
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn container_dir(&self, id: &AllocationId) -> PathBuf {
        self.state_dir().join("containers").join(id.as_str())
    }

    pub fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// Changes the state, and publishes the desired set at a new revision.
    pub fn change(&self, change: impl FnOnce(&mut ControlPlaneState)) {
        self.state.send_modify(|plane| {
            change(plane);
            plane.revision += 1;
        });
    }

    pub fn set_desired(&self, entry: DesiredEntry) {
        self.change(|plane| {
            plane.desired.insert(entry.id.to_string(), entry);
        });
    }

    pub fn set_goal(&self, id: &AllocationId, goal: Goal) {
        self.change(|plane| plane.desired.get_mut(id.as_str()).unwrap().goal = goal);
    }

    /// Waits until `condition` holds, and returns the state.
    pub async fn wait_until(
        &self,
        description: &str,
        condition: impl Fn(&ControlPlaneState) -> bool,
    ) -> ControlPlaneState {
        let mut receiver = self.state.subscribe();
        let state_reached =
            tokio::time::timeout(TIMEOUT, receiver.wait_for(|plane| condition(plane)));
        match state_reached.await {
            Ok(plane) => plane.unwrap().clone(),
            Err(_) => panic!(
                "not reached: {description}; last report {:?}",
                self.state.borrow().report
            ),
        }
    }

    /// Returns the exit of a container, once its end is reported.
    pub async fn wait_for_exit(&self, id: &AllocationId) -> Exit {
        let report = self.wait_for_state(id, ContainerState::Ended).await;
        report.exit.expect("an ended container has an exit")
    }

    /// Waits until the agent reports this state.
    pub async fn wait_for_state(
        &self,
        id: &AllocationId,
        state: ContainerState,
    ) -> ContainerReport {
        let has_state = |plane: &ControlPlaneState| {
            find_report(plane, id).is_some_and(|report| report.state == state)
        };
        let plane = self.wait_until(&format!("{id} {state:?}"), has_state).await;
        find_report(&plane, id).unwrap()
    }
}

pub fn find_report(plane: &ControlPlaneState, id: &AllocationId) -> Option<ContainerReport> {
    plane
        .report
        .as_ref()?
        .containers
        .iter()
        .find(|report| report.id == *id)
        .cloned()
}

async fn put_heartbeat(
    State(plane): State<SharedState>,
    Json(heartbeat): Json<Heartbeat>,
) -> Result<Json<Value>, StatusCode> {
    if plane.borrow().node_status_down {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    plane.send_modify(|plane| plane.heartbeats.push(heartbeat));
    let answer = HeartbeatAnswer {
        health: Health::Healthy,
        schedulable: true,
        heartbeat_ms: 200,
        lease_ms: plane.borrow().node_lease_ms,
    };
    Ok(Json(json!(answer)))
}

async fn put_report(State(plane): State<SharedState>, Json(report): Json<Report>) -> Json<Value> {
    plane.send_modify(|plane| {
        for container in &report.containers {
            if let Some(exit) = &container.exit {
                let key = (container.id.clone(), container.incarnation);
                plane.ends.entry(key).or_default().push(exit.clone());
            }
        }
        plane.report = Some(report);
    });
    Json(json!(ReportAnswer { revision: 1 }))
}

async fn put_output(
    State(plane): State<SharedState>,
    Json(report): Json<OutputReport>,
) -> Json<Value> {
    plane.send_modify(|plane| {
        for chunk in report.chunks {
            plane
                .output
                .entry(chunk.id)
                .or_default()
                .push_str(&chunk.text);
        }
    });
    Json(Value::Null)
}

/// Answers a long poll of the desired set, always with the full set.
async fn get_desired(
    State(plane): State<SharedState>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<Value> {
    let since = query.get("since").and_then(|cursor| cursor.split_once('-'));
    let since: Option<u64> = since.map(|(_, revision)| revision.parse().unwrap());
    let sender = Arc::clone(&plane);
    // A poll waits at most five seconds for a new revision.
    let mut receiver = plane.subscribe();
    let changed = receiver.wait_for(|plane| Some(plane.revision) != since);
    let plane = match tokio::time::timeout(Duration::from_secs(5), changed).await {
        Ok(plane) => plane.unwrap().clone(),
        Err(_) => plane.borrow().clone(),
    };
    sender.send_modify(|plane| plane.desired_requests += 1);
    let current_cursor = format!("0190b5a0c5f47c5e8f3c000000000001-{}", plane.revision);
    let cursor = plane.cursor.clone().unwrap_or(current_cursor);
    Json(json!({ "cursor": cursor, "full": true, "changed": plane.desired, "removed": [] }))
}

/// Handles a request of the task runner: takes its outcomes and returned tasks, and leases new
/// ones.
async fn lease_tasks(
    State(plane): State<SharedState>,
    Json(request): Json<LeaseRequest>,
) -> Result<Json<Value>, Response> {
    if plane.borrow().job_converter_down {
        return Err(StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    if plane.borrow().tokens_refused {
        plane.send_modify(|plane| plane.refused_requests += 1);
        return Err(Problem::new(Code::Unauthenticated, "expired").into_response());
    }
    let mut answer = LeaseAnswer {
        tasks: Vec::new(),
        lease_ms: 0,
        done: false,
        terms: None,
    };
    plane.send_modify(|plane| {
        plane.requests += 1;
        plane.running = request.running.iter().map(|running| running.task).collect();
        record_reports(plane, request.finished, &request.returned);
        // Leased tasks that the runner does not list were lost with a response, and are leased
        // again.
        let held = request.held.unwrap();
        for (_, task) in plane.leased.extract_if(.., |task, _| !held.contains(task)) {
            plane.tasks.push(task);
        }
        assert_eq!(
            plane.leased.len(),
            held.len(),
            "the runner has tasks that are not leased to it"
        );
        let want = usize::try_from(request.want).unwrap();
        let want = if plane.no_more_tasks {
            0
        } else {
            want.min(plane.tasks.len())
        };
        answer.tasks = plane.tasks.split_off(plane.tasks.len() - want);
        plane
            .leased
            .extend(answer.tasks.iter().map(|task| (task.task, task.clone())));
        if request.terms == Some(TermsState::Wanted) {
            answer.terms = plane.terms.clone().map(Box::new);
        }
        answer.lease_ms = plane.lease_ms;
        answer.done = plane.no_more_tasks || plane.finished.len() == plane.task_count;
    });
    Ok(Json(json!(answer)))
}

/// Records outcomes and returned tasks.
fn record_reports(plane: &mut ControlPlaneState, finished: Vec<TaskReport>, returned: &[u64]) {
    for report in finished {
        plane.leased.remove(&report.task);
        if report.interrupted {
            plane.interrupted.push(report);
        } else {
            plane.finished.entry(report.task).or_insert(report);
        }
    }
    for task in returned {
        if let Some(task) = plane.leased.remove(task) {
            plane.returned.push(task.task);
            plane.tasks.push(task);
        }
    }
}

/// Returns the id of the test container with this name.
pub fn id(name: &str) -> AllocationId {
    AllocationId::new(format!("alc_{name}")).unwrap()
}

pub fn desired_entry(name: &str, program: Program, stop_grace_ms: u64) -> DesiredEntry {
    DesiredEntry {
        id: id(name),
        work: "job_1".parse().unwrap(),
        kind: WorkKind::Job,
        user: "ada".parse().unwrap(),
        incarnation: 1,
        epoch: 1,
        goal: Goal::Run,
        exclusive: false,
        size: Size::default(),
        launch: Launch {
            program,
            environment: BTreeMap::from([("COLOUR".into(), "red".into())]),
            working_directory: None,
            stop_grace_ms,
            traceparent: None,
            within: None,
            account: None,
            limits: None,
        },
    }
}

pub fn shell(script: &str) -> Program {
    Program::Command {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
    }
}

/// Returns `count` equal tasks, in reverse order of their numbers.
pub fn tasks_with_command(count: u64, argv: &[&str]) -> Vec<LeasedTask> {
    (0..count)
        .rev()
        .map(|task| LeasedTask {
            task,
            attempt: 1,
            arguments: Vec::new(),
            argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
            environment: BTreeMap::new(),
            working_directory: None,
        })
        .collect()
}

/// Returns terms with this command, and a grace that no test waits for.
pub fn terms_with_command(argv: &[&str]) -> RunTerms {
    let terms = json!({
        "job": "job_1", "name": "train", "user": "ada", "command": argv, "warn_signal": "USR1",
        "stop_signal": "TERM", "stop_grace_ms": 600_000,
    });
    serde_json::from_value(terms).unwrap()
}

/// Returns whether a process is alive and not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, state)| !state.starts_with(" Z"))
}

/// Polls until `probe` returns a value.
pub fn wait_for<T>(description: &str, probe: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "not reached: {description}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn read_pid(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
