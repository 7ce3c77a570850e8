//! Tests of the Docker runtime with a fake engine that can misbehave. Each test starts with an
//! agent without containers, and with a listening engine that has all images.

mod fake_engine;

use std::time::Duration;

use hayward_vocabulary::{ContainerForm, Exit, ExitCause, Launch, Program, Size};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::container_lifecycle::RUNTIME_DOWN;
use super::*;
use crate::run_as::tests::root_accounts;
use crate::runtime::Container;
use fake_engine::{Behaviour, FakeEngine, PID, Registry, Stage};

struct Fixture {
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
        accounts: root_accounts(""),
        registries: vec!["listed.example".into()],
        uid: None,
        gid: None,
        processes_limit: 10,
        output_limit_bytes: 1000,
        limits: Limits {
            quick_call: Duration::from_millis(100),
            slow_call: Duration::from_millis(300),
            pull: Duration::from_secs(5),
            launch_retry: Duration::from_millis(500),
            start_confirmation: Duration::from_millis(300),
            sweep_interval: Duration::from_millis(20),
        },
    }
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self::without_engine();
        fixture
            .engine
            .listen(&fixture.dir.path().join("engine.sock"));
        fixture
    }

    fn without_engine() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (agent, docker, events) = start_agent(dir.path());
        Self {
            engine: FakeEngine::new(),
            agent: Some(agent),
            docker,
            events,
            dir,
        }
    }

    /// Kills and restarts the agent.
    fn restart_agent(&mut self) -> BTreeMap<AllocationId, FoundContainer> {
        self.agent.take().unwrap().shutdown_background();
        let (agent, docker, events) = start_agent(self.dir.path());
        (self.docker, self.events) = (docker, events);
        let agent = self.agent.insert(agent);
        let _runtime_guard = agent.enter();
        self.docker.recover().unwrap()
    }

    fn launch(&self, image: &str) -> AllocationId {
        let id = AllocationId::new("alc_one").unwrap();
        let image_form = ContainerForm {
            image: image.into(),
            uid: None,
            gid: None,
            read_only: false,
            mounts: Vec::new(),
        };
        let argv = vec!["program".to_owned()];
        let program = Program::Container {
            argv: argv.clone(),
            container: image_form.clone(),
        };
        let container = Container {
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
                account: None,
                limits: None,
            },
        };
        let _runtime_guard = self.agent.as_ref().unwrap().enter();
        self.docker.launch(ImageLaunch {
            container,
            argv,
            image: image_form,
        });
        id
    }

    async fn expect_started(&mut self) {
        let event = self.events.recv().await.unwrap();
        assert!(
            matches!(event.event, Event::Started { pid: PID, .. }),
            "{event:?}"
        );
    }

    async fn expect_ended(&mut self) -> Exit {
        match self.events.recv().await.unwrap().event {
            Event::Ended(exit) => exit,
            event => panic!("{event:?}"),
        }
    }

    /// Checks that no event arrives for longer than any limit.
    async fn expect_no_event(&mut self) {
        let received = tokio::time::timeout(Duration::from_millis(1500), self.events.recv()).await;
        assert!(received.is_err(), "{received:?}");
    }
}

fn start_agent(dir: &Path) -> (Runtime, Docker, mpsc::Receiver<RuntimeEvent>) {
    let agent = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (event_sender, events) = mpsc::channel(64);
    let runtime_guard = agent.enter();
    let docker = Docker::new(settings(dir), event_sender).unwrap();
    drop(runtime_guard);
    (agent, docker, events)
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.shutdown_background();
        }
    }
}

fn cause_and_code(exit: &Exit) -> (ExitCause, Option<&str>) {
    (exit.cause, exit.cause_code.as_deref())
}

#[tokio::test]
async fn a_container_starts_reports_its_exit_and_is_removed() {
    let mut fixture = Fixture::new();
    fixture.engine.change(|state| {
        let timestamp = "2026-11-21T21:00:00.000000001Z".to_owned();
        state.output = vec![(timestamp, "words\n".to_owned())];
    });
    let id = fixture.launch("image");
    fixture.expect_started().await;
    assert!(fixture.docker.contains(&id));
    let created = fixture.engine.read(|state| state.containers["c1"].clone());
    assert_eq!(created.name, "hayward.alc_one.1");
    assert_eq!(created.body["HostConfig"]["CapDrop"], json!(["ALL"]));
    fixture.engine.end_all(3);
    let exit = fixture.expect_ended().await;
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(3)));
    let piece = fixture.docker.output(&id, 0, 100, 100).unwrap();
    assert_eq!(piece.bytes, b"words\n");
    fixture
        .engine
        .wait_until(|state| state.containers.is_empty())
        .await;
    fixture.docker.forget(&id);
    assert!(!fixture.docker.contains(&id));
}

#[tokio::test]
async fn a_missing_image_is_pulled_only_from_a_listed_registry() {
    let mut fixture = Fixture::new();
    let (listed, other) = ("listed.example/x:1", "docker.example/x:1");
    fixture.engine.change(|state| {
        state.missing.insert(listed.into(), Registry::Found);
        state.missing.insert(other.into(), Registry::Found);
    });
    fixture.launch(other);
    let exit = fixture.expect_ended().await;
    assert_eq!(
        cause_and_code(&exit),
        (ExitCause::LaunchFailed, Some("image_pull"))
    );
    assert!(
        exit.message
            .unwrap()
            .contains("docker.example is not in docker_registries")
    );
    assert_eq!(
        fixture.engine.read(|state| (state.pulls, state.starts)),
        (0, 0)
    );

    fixture
        .docker
        .forget(&AllocationId::new("alc_one").unwrap());
    fixture.launch(listed);
    fixture.expect_started().await;
    assert_eq!(
        fixture.engine.read(|state| (state.pulls, state.starts)),
        (1, 1)
    );
}

#[tokio::test]
async fn an_unknown_image_is_the_users_fault_and_a_broken_registry_is_not() {
    let image = "listed.example/none";
    for (registry, cause) in [
        (Registry::NotFound, ExitCause::LaunchFailed),
        (Registry::Fails, ExitCause::Node),
    ] {
        let mut fixture = Fixture::new();
        let missing = [(image.to_owned(), registry)];
        fixture.engine.change(|state| state.missing.extend(missing));
        fixture.launch(image);
        let exit = fixture.expect_ended().await;
        assert_eq!(cause_and_code(&exit), (cause, Some("image_pull")));
        assert!(exit.message.unwrap().contains(image));
    }
}

#[tokio::test]
async fn an_unusable_engine_fails_the_launch_as_a_node_fault() {
    let mut fixture = Fixture::without_engine();
    fixture.launch("image");
    let exit = fixture.expect_ended().await;
    assert_eq!(cause_and_code(&exit), (ExitCause::Node, Some(RUNTIME_DOWN)));
    assert!(!fixture.docker.is_available());
    for behaviour in [Behaviour::InvalidResponses, Behaviour::Hangs] {
        let mut fixture = Fixture::new();
        fixture.engine.change(|state| state.behaviour = behaviour);
        fixture.launch("image");
        let exit = fixture.expect_ended().await;
        assert_eq!(
            cause_and_code(&exit),
            (ExitCause::Node, Some(RUNTIME_DOWN)),
            "{behaviour:?}"
        );
    }
}

#[tokio::test]
async fn a_silent_engine_ends_no_running_container() {
    for behaviour in [Behaviour::Hangs, Behaviour::InvalidResponses] {
        let mut fixture = Fixture::new();
        fixture.launch("image");
        fixture.expect_started().await;
        fixture.engine.change(|state| state.behaviour = behaviour);
        fixture.expect_no_event().await;
        // The state is the same after a restart of the agent.
        let found = fixture.restart_agent();
        assert!(
            found
                .values()
                .all(|found| found.evidence == Evidence::Alive)
        );
        fixture.expect_no_event().await;
        fixture
            .engine
            .change(|state| state.behaviour = Behaviour::Normal);
        fixture.expect_started().await;
        fixture.engine.end_all(0);
        assert_eq!(
            fixture.expect_ended().await.cause,
            ExitCause::Success,
            "{behaviour:?}"
        );
        assert_eq!(
            fixture.engine.read(|state| state.starts),
            1,
            "the start is requested once (I3)"
        );
    }
}

#[tokio::test]
async fn a_start_without_an_answer_is_not_repeated() {
    let mut fixture = Fixture::new();
    fixture
        .engine
        .change(|state| state.behaviour = Behaviour::StartsWithoutResponse);
    fixture.launch("image");
    fixture.expect_started().await;
    assert_eq!(fixture.engine.read(|state| state.starts), 1);

    let mut fixture = Fixture::new();
    fixture
        .engine
        .change(|state| state.behaviour = Behaviour::IgnoresStart);
    fixture.launch("image");
    assert_eq!(fixture.expect_ended().await.cause, ExitCause::LaunchUnknown);
    assert_eq!(
        fixture
            .engine
            .read(|state| (state.starts, state.containers.len())),
        (1, 0)
    );
}

#[tokio::test]
async fn a_program_missing_in_the_image_fails_the_launch() {
    let mut fixture = Fixture::new();
    fixture
        .engine
        .change(|state| state.behaviour = Behaviour::RefusesStart);
    fixture.launch("image");
    let exit = fixture.expect_ended().await;
    assert_eq!(cause_and_code(&exit), (ExitCause::LaunchFailed, None));
    assert!(fixture.engine.read(|state| state.containers.is_empty()));
}

#[tokio::test]
async fn a_container_of_another_agent_with_the_same_name_is_not_started() {
    let mut fixture = Fixture::new();
    fixture
        .engine
        .add_container("hayward.alc_one.1", json!({"hayward.owner": "another"}));
    fixture.launch("image");
    assert_eq!(fixture.expect_ended().await.cause, ExitCause::LaunchUnknown);
    let remaining = fixture
        .engine
        .read(|state| (state.starts, state.containers.len()));
    assert_eq!(
        remaining,
        (0, 1),
        "a container of another agent is neither started nor removed"
    );
}

#[tokio::test]
async fn containers_in_any_state_are_reported_correctly_after_a_restart() {
    // The engine was not called yet.
    let mut fixture = Fixture::new();
    let record = LaunchRecord {
        id: AllocationId::new("alc_one").unwrap(),
        incarnation: 1,
        epoch: 1,
        stop_grace_ms: 1,
    };
    let folder = fixture.docker.folder(&record.id);
    folder.create(&record).unwrap();
    fixture.restart_agent();
    assert_eq!(fixture.expect_ended().await.cause, ExitCause::Node);
    assert_eq!(fixture.engine.read(|state| state.starts), 0);
    folder.remove();
    // The start was requested, and the container has disappeared.
    folder.create(&record).unwrap();
    folder.record_start_request().unwrap();
    fixture.restart_agent();
    assert_eq!(fixture.expect_ended().await.cause, ExitCause::LaunchUnknown);
    folder.remove();
    // The container ended while no agent was running.
    let mut fixture = Fixture::new();
    fixture.launch("image");
    fixture.expect_started().await;
    fixture.engine.change(|state| {
        let container = state.containers.values_mut().next().unwrap();
        (container.stage, container.out_of_memory) = (Stage::Ended(137), true);
    });
    let exit = fixture.expect_ended().await;
    assert_eq!((exit.cause, exit.code), (ExitCause::UserLimit, Some(137)));
    // The end is reported again after another restart.
    let found = fixture.restart_agent();
    assert!(matches!(&found[&record.id].evidence, Evidence::Exited(reported) if *reported == exit));
}

#[tokio::test]
async fn a_stop_stays_intended_after_a_restart() {
    let mut fixture = Fixture::new();
    let id = fixture.launch("image");
    fixture.expect_started().await;
    fixture.docker.stop(&id);
    let exit = fixture.expect_ended().await;
    assert_eq!((exit.cause, exit.code), (ExitCause::Intended, Some(143)));

    let mut fixture = Fixture::new();
    let id = fixture.launch("image");
    fixture.expect_started().await;
    fixture.docker.folder(&id).record_stop_request();
    fixture.restart_agent();
    fixture.expect_started().await;
    assert_eq!(fixture.expect_ended().await.cause, ExitCause::Intended);
}

#[tokio::test]
async fn orphans_are_removed_and_other_containers_are_not() {
    let fixture = Fixture::new();
    let owner = fixture.docker.0.settings.owner.clone();
    fixture.engine.add_container("unlabelled", json!({}));
    fixture.engine.add_container(
        "of-another-agent",
        json!({"hayward.node": "node-1", "hayward.owner": "another",
               "hayward.allocation": "alc_x", "hayward.incarnation": "1"}),
    );
    fixture.engine.add_container(
        "orphan",
        json!({"hayward.node": "node-1", "hayward.owner": owner,
               "hayward.allocation": "alc_x", "hayward.incarnation": "1"}),
    );
    fixture
        .engine
        .wait_until(|state| !state.containers.contains_key("orphan"))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(fixture.engine.read(|state| state.containers.len()), 2);
}

#[tokio::test]
async fn a_container_removed_from_the_engine_ends_as_a_node_fault() {
    let mut fixture = Fixture::new();
    fixture.launch("image");
    fixture.expect_started().await;
    fixture.engine.change(|state| state.containers.clear());
    let exit = fixture.expect_ended().await;
    assert_eq!(exit.cause, ExitCause::Node);
    assert!(exit.message.unwrap().contains("removed"));
}
