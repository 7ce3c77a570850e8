//! Tests of the runtime with a fake engine that misbehaves.

mod fake_engine;

use std::time::Duration;

use hayward_vocabulary::{ContainerForm, Exit, ExitCause, Launch, Program, Size};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::container::RUNTIME_DOWN;
use super::*;
use crate::run_as::OwnAccount;
use crate::runtime::Container;
use fake_engine::{FakeEngine, Mood, Registry, Stage};

struct Bench {
    engine: FakeEngine,
    /// The async runtime of the agent. Dropping it kills the agent.
    agent: Option<Runtime>,
    docker: Docker,
    events: mpsc::Receiver<RuntimeEvent>,
    dir: tempfile::TempDir,
}

fn settings(dir: &Path) -> DockerSettings {
    DockerSettings {
        socket: dir.join("engine.sock"),
        state_dir: dir.to_owned(),
        node: "node-1".into(),
        network: "bridge".into(),
        mounts: Vec::new(),
        mountable: Vec::new(),
        accounts: Accounts::new(OwnAccount { uid: 0, gid: 0 }, "", None, None).unwrap(),
        registries: vec!["listed.example".into()],
        uid: None,
        gid: None,
        processes_limit: 10,
        output_limit_bytes: 1000,
        limits: Limits {
            soon: Duration::from_millis(100),
            later: Duration::from_millis(300),
            pull: Duration::from_secs(5),
            patience: Duration::from_millis(500),
            unclear: Duration::from_millis(300),
            sweep: Duration::from_millis(20),
        },
    }
}

impl Bench {
    fn new() -> Self {
        let bench = Self::without_engine();
        bench.engine.listen(&bench.dir.path().join("engine.sock"));
        bench
    }

    fn without_engine() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (agent, docker, events) = agent(dir.path());
        Self {
            engine: FakeEngine::new(),
            agent: Some(agent),
            docker,
            events,
            dir,
        }
    }

    /// Kills and restarts the agent.
    fn again(&mut self) -> BTreeMap<AllocationId, Found> {
        self.agent.take().unwrap().shutdown_background();
        let (agent, docker, events) = agent(self.dir.path());
        (self.docker, self.events) = (docker, events);
        let agent = self.agent.insert(agent);
        let _entered = agent.enter();
        self.docker.recover().unwrap()
    }

    fn launch(&self, image: &str) -> AllocationId {
        let id = AllocationId::new("alc_one").unwrap();
        let container = ContainerForm {
            image: image.into(),
            uid: None,
            gid: None,
            read_only: false,
            mounts: Vec::new(),
        };
        let argv = vec!["program".to_owned()];
        let program = Program::Container {
            argv: argv.clone(),
            container: container.clone(),
        };
        let ordered = Container {
            id: id.clone(),
            incarnation: 1,
            epoch: 1,
            exclusive: false,
            work: "svc_1".parse().unwrap(),
            user: "ada".parse().unwrap(),
            size: Size::default(),
            launch: Launch {
                program,
                environment: BTreeMap::new(),
                working_directory: None,
                stop_grace_ms: 1,
                traceparent: None,
                within: None,
            },
        };
        let _entered = self.agent.as_ref().unwrap().enter();
        self.docker.launch(ImageLaunch {
            container: ordered,
            argv,
            image: container,
        });
        id
    }

    async fn started(&mut self) {
        let event = self.events.recv().await.unwrap();
        assert!(
            matches!(event.event, Event::Started { pid: 4242, .. }),
            "{event:?}"
        );
    }

    async fn ended(&mut self) -> Exit {
        match self.events.recv().await.unwrap().event {
            Event::Ended(exit) => exit,
            event => panic!("{event:?}"),
        }
    }

    /// Checks that no event arrives for longer than any limit.
    async fn silence(&mut self) {
        let received = tokio::time::timeout(Duration::from_millis(1500), self.events.recv()).await;
        assert!(received.is_err(), "{received:?}");
    }
}

fn agent(dir: &Path) -> (Runtime, Docker, mpsc::Receiver<RuntimeEvent>) {
    let agent = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (events_sender, events) = mpsc::channel(64);
    let entered = agent.enter();
    let docker = Docker::new(settings(dir), events_sender).unwrap();
    drop(entered);
    (agent, docker, events)
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.shutdown_background();
        }
    }
}

fn code(exit: &Exit) -> (ExitCause, Option<&str>) {
    (exit.cause, exit.cause_code.as_deref())
}

#[tokio::test]
async fn a_container_runs_from_order_to_exit() {
    let mut bench = Bench::new();
    bench.engine.change(|state| {
        let at = "2026-11-21T21:00:00.000000001Z".to_owned();
        state.output = vec![(at, "words\n".to_owned())];
    });
    let id = bench.launch("image");
    bench.started().await;
    assert!(bench.docker.has(&id));
    let made = bench.engine.read(|state| state.containers["c1"].clone());
    assert_eq!(made.name, "hayward.alc_one.1");
    assert_eq!(made.body["HostConfig"]["CapDrop"], json!(["ALL"]));
    bench.engine.end_all(3);
    let exit = bench.ended().await;
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(3)));
    let piece = bench.docker.output(&id, 0, 100, 100).unwrap();
    assert_eq!(piece.bytes, b"words\n");
    bench
        .engine
        .until(|state| state.containers.is_empty())
        .await;
    bench.docker.forget(&id);
    assert!(!bench.docker.has(&id));
}

#[tokio::test]
async fn a_missing_image_is_pulled_only_from_a_listed_registry() {
    let mut bench = Bench::new();
    let (listed, other) = ("listed.example/x:1", "docker.example/x:1");
    bench.engine.change(|state| {
        state.missing.insert(listed.into(), Registry::Has);
        state.missing.insert(other.into(), Registry::Has);
    });
    bench.launch(other);
    let exit = bench.ended().await;
    assert_eq!(code(&exit), (ExitCause::LaunchFailed, Some("image_pull")));
    assert!(
        exit.message
            .unwrap()
            .contains("docker.example is not in docker_registries")
    );
    assert_eq!(
        bench.engine.read(|state| (state.pulls, state.starts)),
        (0, 0)
    );

    bench.docker.forget(&AllocationId::new("alc_one").unwrap());
    bench.launch(listed);
    bench.started().await;
    assert_eq!(
        bench.engine.read(|state| (state.pulls, state.starts)),
        (1, 1)
    );
}

#[tokio::test]
async fn an_unknown_image_is_the_users_fault_and_a_broken_registry_is_not() {
    let image = "listed.example/none";
    for (registry, cause) in [
        (Registry::HasNot, ExitCause::LaunchFailed),
        (Registry::Fails, ExitCause::Node),
    ] {
        let mut bench = Bench::new();
        let missing = [(image.to_owned(), registry)];
        bench.engine.change(|state| state.missing.extend(missing));
        bench.launch(image);
        let exit = bench.ended().await;
        assert_eq!(code(&exit), (cause, Some("image_pull")));
        assert!(exit.message.unwrap().contains(image));
    }
}

#[tokio::test]
async fn an_unusable_engine_fails_the_launch_as_a_node_fault() {
    let mut bench = Bench::without_engine();
    bench.launch("image");
    let exit = bench.ended().await;
    assert_eq!(code(&exit), (ExitCause::Node, Some(RUNTIME_DOWN)));
    assert!(!bench.docker.answers());
    for mood in [Mood::Babbles, Mood::Hangs] {
        let mut bench = Bench::new();
        bench.engine.change(|state| state.mood = mood);
        bench.launch("image");
        let exit = bench.ended().await;
        assert_eq!(
            code(&exit),
            (ExitCause::Node, Some(RUNTIME_DOWN)),
            "{mood:?}"
        );
    }
}

#[tokio::test]
async fn a_silent_engine_ends_no_running_container() {
    for mood in [Mood::Hangs, Mood::Babbles] {
        let mut bench = Bench::new();
        bench.launch("image");
        bench.started().await;
        bench.engine.change(|state| state.mood = mood);
        bench.silence().await;
        // The state is the same after a restart of the agent.
        let found = bench.again();
        assert!(
            found
                .values()
                .all(|found| found.evidence == Evidence::Alive)
        );
        bench.silence().await;
        bench.engine.change(|state| state.mood = Mood::Well);
        bench.started().await;
        bench.engine.end_all(0);
        assert_eq!(bench.ended().await.cause, ExitCause::Success, "{mood:?}");
        assert_eq!(bench.engine.read(|state| state.starts), 1, "I3");
    }
}

#[tokio::test]
async fn a_start_without_an_answer_is_not_repeated() {
    let mut bench = Bench::new();
    bench
        .engine
        .change(|state| state.mood = Mood::StartsInSilence);
    bench.launch("image");
    bench.started().await;
    assert_eq!(bench.engine.read(|state| state.starts), 1);

    let mut bench = Bench::new();
    bench
        .engine
        .change(|state| state.mood = Mood::StartsNothing);
    bench.launch("image");
    assert_eq!(bench.ended().await.cause, ExitCause::LaunchUnknown);
    assert_eq!(
        bench
            .engine
            .read(|state| (state.starts, state.containers.len())),
        (1, 0)
    );
}

#[tokio::test]
async fn a_program_missing_in_the_image_fails_the_launch() {
    let mut bench = Bench::new();
    bench.engine.change(|state| state.mood = Mood::RefusesStart);
    bench.launch("image");
    let exit = bench.ended().await;
    assert_eq!(code(&exit), (ExitCause::LaunchFailed, None));
    assert!(bench.engine.read(|state| state.containers.is_empty()));
}

#[tokio::test]
async fn a_container_of_another_agent_with_the_same_name_is_not_started() {
    let mut bench = Bench::new();
    bench
        .engine
        .plant("hayward.alc_one.1", json!({"hayward.owner": "another"}));
    bench.launch("image");
    assert_eq!(bench.ended().await.cause, ExitCause::LaunchUnknown);
    let left = bench
        .engine
        .read(|state| (state.starts, state.containers.len()));
    assert_eq!(left, (0, 1), "a stranger is neither started nor removed");
}

#[tokio::test]
async fn containers_in_any_state_are_reported_correctly_after_a_restart() {
    // The engine was not called yet.
    let mut bench = Bench::new();
    let order = LaunchRecord {
        id: AllocationId::new("alc_one").unwrap(),
        incarnation: 1,
        epoch: 1,
        stop_grace_ms: 1,
    };
    let folder = bench.docker.folder(&order.id);
    folder.make(&order).unwrap();
    bench.again();
    assert_eq!(bench.ended().await.cause, ExitCause::Node);
    assert_eq!(bench.engine.read(|state| state.starts), 0);
    folder.remove();
    // The start was requested, and the container has disappeared.
    folder.make(&order).unwrap();
    folder.record_start_request().unwrap();
    bench.again();
    assert_eq!(bench.ended().await.cause, ExitCause::LaunchUnknown);
    folder.remove();
    // The container ended while no agent was running.
    let mut bench = Bench::new();
    bench.launch("image");
    bench.started().await;
    bench.engine.change(|state| {
        let made = state.containers.values_mut().next().unwrap();
        (made.stage, made.out_of_memory) = (Stage::Over(137), true);
    });
    let exit = bench.ended().await;
    assert_eq!((exit.cause, exit.code), (ExitCause::UserLimit, Some(137)));
    // The end is reported again after another restart.
    let found = bench.again();
    assert!(matches!(&found[&order.id].evidence, Evidence::Exited(reported) if *reported == exit));
}

#[tokio::test]
async fn a_stop_stays_intended_after_a_restart() {
    let mut bench = Bench::new();
    let id = bench.launch("image");
    bench.started().await;
    bench.docker.stop(&id);
    let exit = bench.ended().await;
    assert_eq!((exit.cause, exit.code), (ExitCause::Intended, Some(143)));

    let mut bench = Bench::new();
    let id = bench.launch("image");
    bench.started().await;
    bench.docker.folder(&id).record_stop_request();
    bench.again();
    bench.started().await;
    assert_eq!(bench.ended().await.cause, ExitCause::Intended);
}

#[tokio::test]
async fn orphans_are_removed_and_other_containers_are_not() {
    let bench = Bench::new();
    let owner = bench.docker.0.settings.owner.clone();
    bench.engine.plant("unlabelled", json!({}));
    bench.engine.plant(
        "of-another-agent",
        json!({"hayward.node": "node-1", "hayward.owner": "another",
               "hayward.allocation": "alc_x", "hayward.incarnation": "1"}),
    );
    bench.engine.plant(
        "orphan",
        json!({"hayward.node": "node-1", "hayward.owner": owner,
               "hayward.allocation": "alc_x", "hayward.incarnation": "1"}),
    );
    bench
        .engine
        .until(|state| !state.containers.contains_key("orphan"))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.engine.read(|state| state.containers.len()), 2);
}

#[tokio::test]
async fn a_container_removed_from_the_engine_has_ended() {
    let mut bench = Bench::new();
    bench.launch("image");
    bench.started().await;
    bench.engine.change(|state| state.containers.clear());
    let exit = bench.ended().await;
    assert_eq!(exit.cause, ExitCause::Node);
    assert!(exit.message.unwrap().contains("removed"));
}
