//! An orchestrator in another language, with real processes in its allocations. The orchestrator
//! and the services are killed during its work, its work is withdrawn, and a second orchestrator is
//! not affected.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use hayward_job_converter_api::orchestrators::{
    Allotted, OrchestratorCreated, OrchestratorOrder, OrchestratorView, ShareEntry,
};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::{Client, TokenSource};
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, TestFleet, Timing};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Maximum time of each wait.
const LIMIT: Duration = Duration::from_mins(2);

/// Pid of the process of each allocation.
type PidByAllocation = BTreeMap<String, i32>;

struct Orchestrator {
    name: &'static str,
    token: String,
    token_file: PathBuf,
    state: PathBuf,
    client: Client,
}

/// The part of a publication that is read here.
#[derive(serde::Deserialize)]
struct Publication<T> {
    changed: BTreeMap<String, T>,
}

/// The state that the orchestrator writes to a file.
#[derive(serde::Deserialize)]
struct OrchestratorState {
    lineage: String,
    sequence: u64,
    running: PidByAllocation,
    machines: Vec<String>,
}

impl Orchestrator {
    async fn create(fleet: &TestFleet, name: &'static str) -> Self {
        let request = OrchestratorOrder {
            name: name.parse().expect("a name"),
            users: vec![
                "ada".parse().expect("a user"),
                "ben".parse().expect("a user"),
            ],
            anyone: false,
        };
        let operator = fleet.client("job-converter", "operator");
        let created: OrchestratorCreated = operator
            .post("/v1/orchestrators", &request, None)
            .await
            .expect("an orchestrator");
        let state = fleet.dir.path().join(name);
        std::fs::create_dir_all(&state).expect("a folder");
        let token_file = fleet.dir.path().join(format!("{name}.token"));
        std::fs::write(&token_file, &created.token).expect("a file");
        Self {
            name,
            token: created.token,
            token_file,
            state,
            client: operator,
        }
    }

    /// Starts `docs/examples/orchestrator.py` for this user.
    fn start(&self, fleet: &mut TestFleet, owner: &str, processes: u32, reserve: bool) {
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/examples/orchestrator.py"
        );
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(fleet.dir.path().join(format!("{}.log", self.name)))
            .expect("a log file");
        let mut command = Command::new("python3");
        command
            .args([
                program,
                "--url",
                fleet.url("job-converter"),
                "--name",
                self.name,
            ])
            .args(["--owner", owner, "--rhythm", "0.1", "--memory-mib", "64"])
            .args(["--processes", &processes.to_string()])
            .args(reserve.then_some("--reserve"))
            .arg("--token-file")
            .arg(&self.token_file)
            .arg("--state")
            .arg(&self.state)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        fleet.spawn(self.name, command);
    }

    /// Sends a command to the orchestrator through a file.
    fn write_command(&self, name: &str, text: &str) {
        let new_file = self.state.join(format!("{name}.new"));
        std::fs::write(&new_file, text).expect("a file");
        std::fs::rename(new_file, self.state.join(name)).expect("a file in one piece");
    }

    fn read_state(&self) -> Option<OrchestratorState> {
        let text = std::fs::read(self.state.join("orchestrator.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    async fn allocations(&self) -> Option<BTreeMap<String, ShareEntry>> {
        let path = format!("/v1/orchestrators/{}/allocations/publication", self.name);
        let update: Publication<Allotted> = self.client.get(&path).await.ok()?;
        let entries = update.changed.into_iter();
        let allocations = entries.filter_map(|(key, entry)| match entry {
            Allotted::Share(share) => Some((key, share)),
            Allotted::Work(_) => None,
        });
        Some(allocations.collect())
    }

    async fn view(&self) -> Option<OrchestratorView> {
        let path = format!("/v1/orchestrators/{}", self.name);
        self.client.get(&path).await.ok()
    }

    /// Waits until `count` processes run, each in an allocation of its own, and all sides agree.
    async fn wait_until_running(&self, count: usize) -> PidByAllocation {
        let description = format!("{count} processes of {}", self.name);
        until_within(&description, LIMIT, async || {
            let state = self.read_state()?;
            let allocations = self.allocations().await?;
            let of_job = allocations.values().filter(|it| it.work == "job");
            let all_running = of_job
                .clone()
                .all(|it| it.state == "running" && it.vacate.is_none());
            let all_known = of_job
                .clone()
                .all(|it| state.running.contains_key(it.id.as_str()));
            let all_alive = state.running.values().all(|pid| is_process_running(*pid));
            let has_count = of_job.count() == count && state.running.len() == count;
            (has_count && all_running && all_known && all_alive).then_some(state.running)
        })
        .await
    }
}

/// Returns whether a process runs. A zombie counts as gone.
fn is_process_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    let state = state.and_then(|fields| fields.chars().next());
    state.is_some_and(|state| state != 'Z')
}

async fn read_allocations(fleet: &TestFleet) -> Option<BTreeMap<String, AllocationEntry>> {
    let service = fleet.client("rm-scheduler", "job-converter");
    let update: Publication<AllocationEntry> =
        service.get("/v1/allocations/publication").await.ok()?;
    Some(update.changed)
}

/// Starts two orchestrators on three nodes: one with a job of three processes and a reservation,
/// and one with a job of two processes.
async fn start_two_orchestrators(
    fleet: &mut TestFleet,
) -> (Orchestrator, Orchestrator, PidByAllocation) {
    for node in ["node-1", "node-2", "node-3"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(3).await;
    let first_orchestrator = Orchestrator::create(fleet, "one").await;
    let second_orchestrator = Orchestrator::create(fleet, "two").await;
    first_orchestrator.start(fleet, "ada", 3, true);
    first_orchestrator.wait_until_running(3).await;
    let reserved_node = async || first_orchestrator.read_state()?.machines.into_iter().next();
    until_within("a reserved node", LIMIT, reserved_node).await;
    second_orchestrator.start(fleet, "ben", 2, false);
    let running_of_second = second_orchestrator.wait_until_running(2).await;
    (first_orchestrator, second_orchestrator, running_of_second)
}

/// Kills the orchestrator and one of its processes, and starts the orchestrator again. It keeps its
/// other processes and replaces the killed one.
async fn kill_and_restart(
    fleet: &mut TestFleet,
    first_orchestrator: &Orchestrator,
) -> PidByAllocation {
    let running = first_orchestrator.wait_until_running(3).await;
    let before = first_orchestrator.read_state().expect("a state file");
    fleet.kill("one");
    let (killed, pid) = running.iter().next().expect("a process");
    kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("killed");
    first_orchestrator.start(fleet, "ada", 3, true);
    until_within("a replacement for the killed process", LIMIT, async || {
        let now = first_orchestrator.read_state()?.running;
        (now.len() == 3 && !now.contains_key(killed)).then_some(())
    })
    .await;
    let after = first_orchestrator.wait_until_running(3).await;
    let is_unchanged = |(allocation, pid): &(&String, &i32)| after.get(*allocation) == Some(*pid);
    assert_eq!(
        running.iter().filter(is_unchanged).count(),
        2,
        "{running:?} {after:?}"
    );
    let state = first_orchestrator.read_state().expect("a state file");
    assert!(state.lineage == before.lineage && state.sequence > before.sequence);
    assert_eq!(state.machines, before.machines);
    after
}

/// Kills the orchestrator, removes its state, and starts it again. It takes over its map of work
/// with a new lineage.
async fn lose_state_and_take_over(fleet: &mut TestFleet, first_orchestrator: &Orchestrator) {
    let before = first_orchestrator
        .read_state()
        .expect("a state file")
        .lineage;
    fleet.kill("one");
    std::fs::remove_file(first_orchestrator.state.join("orchestrator.json")).expect("forgotten");
    first_orchestrator.start(fleet, "ada", 3, true);
    until_within("a takeover", LIMIT, async || {
        (first_orchestrator.view().await?.lineage.as_ref() != Some(&before)).then_some(())
    })
    .await;
}

async fn wait_until_only_these_allocations_remain(fleet: &TestFleet, expected: &PidByAllocation) {
    until_within("all other allocations to be gone", LIMIT, async || {
        let allocations = read_allocations(fleet).await?;
        let is_equal = allocations.keys().eq(expected.keys());
        is_equal.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orchestrators_keep_their_processes_when_any_process_is_killed() {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    let (first_orchestrator, second_orchestrator, running_of_second) =
        start_two_orchestrators(&mut fleet).await;
    let after = kill_and_restart(&mut fleet, &first_orchestrator).await;

    // job-converter is killed, and then the scheduler too. No process is started or ended.
    for services in [&["job-converter"][..], &["job-converter", "rm-scheduler"]] {
        for service in services {
            fleet.kill(service);
        }
        for service in services {
            fleet.start_service(service);
        }
        fleet.wait_until_services_are_ready().await;
        assert_eq!(first_orchestrator.wait_until_running(3).await, after);
        assert_eq!(
            second_orchestrator.wait_until_running(2).await,
            running_of_second
        );
    }
    lose_state_and_take_over(&mut fleet, &first_orchestrator).await;
    assert_eq!(first_orchestrator.wait_until_running(3).await, after);

    // After the first orchestrator is stopped, its processes end, but not those of the second.
    first_orchestrator.write_command("stop", "");
    until_within("the first orchestrator to end", LIMIT, async || {
        fleet.exit_status("one")
    })
    .await;
    wait_until_only_these_allocations_remain(&fleet, &running_of_second).await;
    assert!(!after.values().any(|pid| is_process_running(*pid)));
    assert_eq!(
        second_orchestrator.wait_until_running(2).await,
        running_of_second
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_follow_the_work_map_of_an_orchestrator() {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    let (first_orchestrator, second_orchestrator, running_of_second) =
        start_two_orchestrators(&mut fleet).await;

    // The job grows and then shrinks. Some of its processes end, and none is restarted.
    let first = first_orchestrator.wait_until_running(3).await;
    first_orchestrator.write_command("size", "5");
    let five = first_orchestrator.wait_until_running(5).await;
    assert!(
        first
            .iter()
            .all(|(allocation, pid)| five.get(allocation) == Some(pid))
    );
    first_orchestrator.write_command("size", "2");
    let two_left = first_orchestrator.wait_until_running(2).await;
    assert!(
        two_left
            .iter()
            .all(|(allocation, pid)| five.get(allocation) == Some(pid))
    );
    assert_eq!(
        second_orchestrator.wait_until_running(2).await,
        running_of_second
    );

    // One orchestrator cannot see the work of another. When it is removed, its processes end.
    let url = fleet.url("job-converter");
    let token = TokenSource::fixed(&second_orchestrator.token);
    let foreign_client = Client::new([url], token).expect("a client");
    let path = "/v1/orchestrators/one/allocations/publication";
    let response: Result<Publication<Allotted>, _> = foreign_client.get(path).await;
    assert!(response.is_err());
    let path = "/v1/orchestrators/one";
    let removed: Option<serde_json::Value> = first_orchestrator
        .client
        .delete(path)
        .await
        .expect("removed");
    assert!(removed.is_none());
    wait_until_only_these_allocations_remain(&fleet, &running_of_second).await;
    until_within("the first orchestrator to end", LIMIT, async || {
        fleet.exit_status("one")
    })
    .await;
    until_within(
        "the processes of the first orchestrator to end",
        LIMIT,
        async || (!two_left.values().any(|pid| is_process_running(*pid))).then_some(()),
    )
    .await;
    second_orchestrator.write_command("stop", "");
    until_within("the second orchestrator to end", LIMIT, async || {
        fleet.exit_status("two")
    })
    .await;
    wait_until_only_these_allocations_remain(&fleet, &PidByAllocation::new()).await;
}
