//! A tiny control plane: it plays node-status, container-manager and job-converter to one agent.

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
use hayward_job_converter_api::tasks::{LeaseAnswer, LeaseRequest, LeasedTask, TaskReport};
use hayward_node_status_api::{Health, Heartbeat, HeartbeatAnswer};
use hayward_service::{Code, Problem};
use hayward_vocabulary::{AllocationId, Exit, Launch, Program, Size, WorkKind};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Long enough for a busy machine, short enough for a patient person.
pub const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Default, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault that a test switches on by itself"
)]
pub struct World {
    pub desired: BTreeMap<String, DesiredEntry>,
    pub revision: u64,
    pub heartbeats: Vec<Heartbeat>,
    pub report: Option<Report>,
    pub output: BTreeMap<AllocationId, String>,
    /// Tasks not leased, the next one last.
    pub tasks: Vec<LeasedTask>,
    pub leased: BTreeMap<u64, LeasedTask>,
    pub finished: BTreeMap<u64, TaskReport>,
    pub returned: Vec<u64>,
    pub total: usize,
    /// No task is leased any more.
    pub marked: bool,
    pub requests: u64,
    pub lease_ms: u64,
    /// job-converter is not there.
    pub lender_down: bool,
    /// job-converter takes no token for good, as one whose clock is wrong does.
    pub lender_refuses: bool,
    /// How often it did.
    pub refused: u64,
    /// Lease of the node in the answers to heartbeats.
    pub node_lease_ms: Option<u64>,
    /// node-status is not there.
    pub deaf: bool,
    /// How often the desired set was asked for.
    pub asked: u64,
    /// Ends that were reported, each time they were.
    pub ends: BTreeMap<(AllocationId, u64), Vec<Exit>>,
    /// History and revision of the desired set, instead of the own one.
    pub cursor: Option<String>,
}

#[derive(Clone)]
pub struct Control {
    pub world: Arc<watch::Sender<World>>,
    pub url: String,
    pub dir: Arc<tempfile::TempDir>,
}

type Shared = Arc<watch::Sender<World>>;

impl Control {
    pub async fn start() -> Self {
        let first = World {
            lease_ms: 30_000,
            ..World::default()
        };
        let world: Shared = Arc::new(watch::channel(first).0);
        let router = Router::new()
            .route("/v1/nodes/{node}/heartbeat", put(heartbeat))
            .route("/v1/nodes/{node}/report", put(report))
            .route("/v1/nodes/{node}/output", put(output))
            .route("/v1/desired/{node}/publication", get(desired))
            .route("/v1/jobs/{job}/tasks/leases", post(lease))
            .with_state(Arc::clone(&world));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let dir = Arc::new(tempfile::tempdir().unwrap());
        // Programs run as somebody else and leave their marks here.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        std::fs::write(dir.path().join("token"), "secret").unwrap();
        Self { world, url, dir }
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

    pub fn change(&self, change: impl FnOnce(&mut World)) {
        self.world.send_modify(|world| {
            change(world);
            world.revision += 1;
        });
    }

    pub fn want(&self, entry: DesiredEntry) {
        self.change(|world| {
            world.desired.insert(entry.id.to_string(), entry);
        });
    }

    pub fn want_goal(&self, id: &AllocationId, goal: Goal) {
        self.change(|world| world.desired.get_mut(id.as_str()).unwrap().goal = goal);
    }

    /// Waits for a state of the world.
    pub async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) -> World {
        let mut receiver = self.world.subscribe();
        let reached = tokio::time::timeout(PATIENCE, receiver.wait_for(|world| holds(world)));
        match reached.await {
            Ok(world) => world.unwrap().clone(),
            Err(_) => panic!(
                "not reached: {what}; last report {:?}",
                self.world.borrow().report
            ),
        }
    }

    /// Waits until the agent reports this state.
    pub async fn reported(&self, id: &AllocationId, state: ContainerState) -> ContainerReport {
        let holds = |world: &World| shown(world, id).is_some_and(|shown| shown.state == state);
        let world = self.until(&format!("{id} {state:?}"), holds).await;
        shown(&world, id).unwrap()
    }
}

pub fn shown(world: &World, id: &AllocationId) -> Option<ContainerReport> {
    world
        .report
        .as_ref()?
        .containers
        .iter()
        .find(|report| report.id == *id)
        .cloned()
}

async fn heartbeat(
    State(world): State<Shared>,
    Json(beat): Json<Heartbeat>,
) -> Result<Json<Value>, StatusCode> {
    if world.borrow().deaf {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    world.send_modify(|world| world.heartbeats.push(beat));
    let answer = HeartbeatAnswer {
        health: Health::Healthy,
        schedulable: true,
        heartbeat_ms: 200,
        lease_ms: world.borrow().node_lease_ms,
    };
    Ok(Json(json!(answer)))
}

async fn report(State(world): State<Shared>, Json(report): Json<Report>) -> Json<Value> {
    world.send_modify(|world| {
        for shown in &report.containers {
            if let Some(exit) = &shown.exit {
                let of = (shown.id.clone(), shown.incarnation);
                world.ends.entry(of).or_default().push(exit.clone());
            }
        }
        world.report = Some(report);
    });
    Json(json!(ReportAnswer { revision: 1 }))
}

async fn output(State(world): State<Shared>, Json(report): Json<OutputReport>) -> Json<Value> {
    world.send_modify(|world| {
        for chunk in report.chunks {
            world
                .output
                .entry(chunk.id)
                .or_default()
                .push_str(&chunk.text);
        }
    });
    Json(Value::Null)
}

async fn desired(
    State(world): State<Shared>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<Value> {
    let since = query.get("since").and_then(|cursor| cursor.split_once('-'));
    let since: Option<u64> = since.map(|(_, revision)| revision.parse().unwrap());
    let state = Arc::clone(&world);
    let mut receiver = world.subscribe();
    let news = receiver.wait_for(|world| Some(world.revision) != since);
    let world = match tokio::time::timeout(Duration::from_secs(5), news).await {
        Ok(world) => world.unwrap().clone(),
        Err(_) => world.borrow().clone(),
    };
    state.send_modify(|world| world.asked += 1);
    let own = format!("0190b5a0c5f47c5e8f3c000000000001-{}", world.revision);
    let cursor = world.cursor.clone().unwrap_or(own);
    Json(json!({ "cursor": cursor, "full": true, "changed": world.desired, "removed": [] }))
}

async fn lease(
    State(world): State<Shared>,
    Json(request): Json<LeaseRequest>,
) -> Result<Json<Value>, Response> {
    if world.borrow().lender_down {
        return Err(StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    if world.borrow().lender_refuses {
        world.send_modify(|world| world.refused += 1);
        return Err(Problem::new(Code::Unauthenticated, "expired").into_response());
    }
    let mut answer = LeaseAnswer {
        tasks: Vec::new(),
        lease_ms: 0,
        done: false,
    };
    world.send_modify(|world| {
        world.requests += 1;
        for report in request.finished {
            world.leased.remove(&report.task);
            if !report.interrupted {
                world.finished.entry(report.task).or_insert(report);
            }
        }
        for task in request.returned {
            if let Some(task) = world.leased.remove(&task) {
                world.returned.push(task.task);
                world.tasks.push(task);
            }
        }
        let held = request.held.unwrap();
        for lost in world.leased.extract_if(.., |task, _| !held.contains(task)) {
            world.tasks.push(lost.1);
        }
        assert_eq!(world.leased.len(), held.len(), "held what is leased");
        let want = usize::try_from(request.want).unwrap();
        let want = if world.marked {
            0
        } else {
            want.min(world.tasks.len())
        };
        answer.tasks = world.tasks.split_off(world.tasks.len() - want);
        world
            .leased
            .extend(answer.tasks.iter().map(|task| (task.task, task.clone())));
        answer.lease_ms = world.lease_ms;
        answer.done = world.marked || world.finished.len() == world.total;
    });
    Ok(Json(json!(answer)))
}

pub fn id(name: &str) -> AllocationId {
    AllocationId::new(format!("alc_{name}")).unwrap()
}

pub fn wanted(name: &str, program: Program, stop_grace_ms: u64) -> DesiredEntry {
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
        },
    }
}

pub fn shell(script: &str) -> Program {
    Program::Command {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
    }
}

pub fn tasks(count: u64, argv: &[&str]) -> Vec<LeasedTask> {
    (0..count)
        .rev()
        .map(|task| LeasedTask {
            task,
            attempt: 1,
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            environment: BTreeMap::new(),
            working_directory: None,
        })
        .collect()
}

/// Whether a process is there and not merely waiting to be buried.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

/// Waits for something outside of the world.
pub fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not reached: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn number_in(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
