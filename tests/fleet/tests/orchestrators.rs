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
use hayward_tests_fleet::{Agent, Pace, TestFleet};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Limit of a test that would wait for ever.
const LIMIT: Duration = Duration::from_mins(2);

/// Pid of the process of each allocation.
type Running = BTreeMap<String, i32>;

struct Orchestrator {
    name: &'static str,
    token: String,
    token_file: PathBuf,
    state: PathBuf,
    client: Client,
}

/// The part of a publication that is read here.
#[derive(serde::Deserialize)]
struct Set<T> {
    changed: BTreeMap<String, T>,
}

/// The state that the program writes.
#[derive(serde::Deserialize)]
struct Known {
    lineage: String,
    sequence: u64,
    running: Running,
    machines: Vec<String>,
}

impl Orchestrator {
    async fn create(fleet: &TestFleet, name: &'static str) -> Self {
        let order = OrchestratorOrder {
            name: name.parse().expect("a name"),
            users: vec![
                "ada".parse().expect("a user"),
                "ben".parse().expect("a user"),
            ],
            anyone: false,
        };
        let operator = fleet.client("job-converter", "operator");
        let created: OrchestratorCreated = operator
            .post("/v1/orchestrators", &order, None)
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

    fn send(&self, name: &str, text: &str) {
        let fresh = self.state.join(format!("{name}.new"));
        std::fs::write(&fresh, text).expect("a file");
        std::fs::rename(fresh, self.state.join(name)).expect("a file in one piece");
    }

    fn known(&self) -> Option<Known> {
        let text = std::fs::read(self.state.join("orchestrator.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    async fn shares(&self) -> Option<BTreeMap<String, ShareEntry>> {
        let path = format!("/v1/orchestrators/{}/allocations/publication", self.name);
        let update: Set<Allotted> = self.client.get(&path).await.ok()?;
        let shares = update.changed.into_iter();
        let shares = shares.filter_map(|(key, entry)| match entry {
            Allotted::Share(share) => Some((key, share)),
            Allotted::Work(_) => None,
        });
        Some(shares.collect())
    }

    async fn view(&self) -> Option<OrchestratorView> {
        let path = format!("/v1/orchestrators/{}", self.name);
        self.client.get(&path).await.ok()
    }

    /// Waits until `count` processes run, each in an allocation of its own, and all sides agree.
    async fn runs(&self, count: usize) -> Running {
        let what = format!("{count} processes of {}", self.name);
        until_within(&what, LIMIT, async || {
            let known = self.known()?;
            let shares = self.shares().await?;
            let of_job = shares.values().filter(|share| share.work == "job");
            let steady = of_job
                .clone()
                .all(|it| it.state == "running" && it.vacate.is_none());
            let same = of_job
                .clone()
                .all(|it| known.running.contains_key(it.id.as_str()));
            let alive = known.running.values().all(|pid| runs(*pid));
            let right = of_job.count() == count && known.running.len() == count;
            (right && steady && same && alive).then_some(known.running)
        })
        .await
    }
}

/// Returns whether a process runs. A zombie counts as gone.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    let state = state.and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

async fn held(fleet: &TestFleet) -> Option<BTreeMap<String, AllocationEntry>> {
    let service = fleet.client("rm-scheduler", "job-converter");
    let update: Set<AllocationEntry> = service.get("/v1/allocations/publication").await.ok()?;
    Some(update.changed)
}

/// Starts two orchestrators on three nodes: one with a job of three processes and a reservation,
/// and one with a job of two processes.
async fn both(fleet: &mut TestFleet) -> (Orchestrator, Orchestrator, Running) {
    for node in ["node-1", "node-2", "node-3"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.nodes_take_work(3).await;
    let one = Orchestrator::create(fleet, "one").await;
    let two = Orchestrator::create(fleet, "two").await;
    one.start(fleet, "ada", 3, true);
    one.runs(3).await;
    let machine = async || one.known()?.machines.into_iter().next();
    until_within("a machine", LIMIT, machine).await;
    two.start(fleet, "ben", 2, false);
    let untouched = two.runs(2).await;
    (one, two, untouched)
}

/// Kills the orchestrator and starts it again. It continues with all its processes, except for the
/// one that was killed meanwhile.
async fn killed_and_back(fleet: &mut TestFleet, one: &Orchestrator) -> Running {
    let running = one.runs(3).await;
    let before = one.known().expect("what it knows");
    fleet.kill("one");
    let (lost, pid) = running.iter().next().expect("a process");
    kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("killed");
    one.start(fleet, "ada", 3, true);
    until_within("another share", LIMIT, async || {
        let now = one.known()?.running;
        (now.len() == 3 && !now.contains_key(lost)).then_some(())
    })
    .await;
    let after = one.runs(3).await;
    let same = |(share, pid): &(&String, &i32)| after.get(*share) == Some(*pid);
    assert_eq!(
        running.iter().filter(same).count(),
        2,
        "{running:?} {after:?}"
    );
    let known = one.known().expect("what it knows");
    assert!(known.lineage == before.lineage && known.sequence > before.sequence);
    assert_eq!(known.machines, before.machines);
    after
}

/// Makes the orchestrator lose its memory, so that its next life takes over.
async fn taken_over(fleet: &mut TestFleet, one: &Orchestrator) {
    let before = one.known().expect("what it knows").lineage;
    fleet.kill("one");
    std::fs::remove_file(one.state.join("orchestrator.json")).expect("forgotten");
    one.start(fleet, "ada", 3, true);
    until_within("a takeover", LIMIT, async || {
        (one.view().await?.lineage.as_ref() != Some(&before)).then_some(())
    })
    .await;
}

async fn space_is_free_but_for(fleet: &TestFleet, shares: &Running) {
    until_within("room to be free", LIMIT, async || {
        let all = held(fleet).await?;
        let same = all.keys().eq(shares.keys());
        same.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orchestrators_keep_their_processes_whatever_is_killed() {
    let mut fleet = TestFleet::at(Pace::patient()).await;
    let (one, two, untouched) = both(&mut fleet).await;
    let after = killed_and_back(&mut fleet, &one).await;

    // job-converter is killed, and then the scheduler too. No process is started or ended.
    for services in [&["job-converter"][..], &["job-converter", "rm-scheduler"]] {
        for service in services {
            fleet.kill(service);
        }
        for service in services {
            fleet.start_service(service);
        }
        fleet.services_are_ready().await;
        assert_eq!(one.runs(3).await, after);
        assert_eq!(two.runs(2).await, untouched);
    }
    taken_over(&mut fleet, &one).await;
    assert_eq!(one.runs(3).await, after);

    // After the withdrawal all its processes end, but none of the other orchestrator.
    one.send("stop", "");
    until_within("it to end", LIMIT, async || fleet.ended("one")).await;
    space_is_free_but_for(&fleet, &untouched).await;
    assert!(!after.values().any(|pid| runs(*pid)));
    assert_eq!(two.runs(2).await, untouched);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_follow_the_map_of_an_orchestrator() {
    let mut fleet = TestFleet::at(Pace::patient()).await;
    let (one, two, untouched) = both(&mut fleet).await;

    // The job grows and then shrinks. Some of its processes end, and none is restarted.
    let first = one.runs(3).await;
    one.send("size", "5");
    let five = one.runs(5).await;
    assert!(
        first
            .iter()
            .all(|(share, pid)| five.get(share) == Some(pid))
    );
    one.send("size", "2");
    let left = one.runs(2).await;
    assert!(left.iter().all(|(share, pid)| five.get(share) == Some(pid)));
    assert_eq!(two.runs(2).await, untouched);

    // One orchestrator cannot see the work of another. When it is removed, its processes end.
    let url = fleet.url("job-converter");
    let token = TokenSource::fixed(&two.token);
    let foreign = Client::new([url], token).expect("a client");
    let path = "/v1/orchestrators/one/allocations/publication";
    let read: Result<Set<Allotted>, _> = foreign.get(path).await;
    assert!(read.is_err());
    let path = "/v1/orchestrators/one";
    let removed: Option<serde_json::Value> = one.client.delete(path).await.expect("removed");
    assert!(removed.is_none());
    space_is_free_but_for(&fleet, &untouched).await;
    until_within("it to end", LIMIT, async || fleet.ended("one")).await;
    until_within("its processes to end", LIMIT, async || {
        (!left.values().any(|pid| runs(*pid))).then_some(())
    })
    .await;
    two.send("stop", "");
    until_within("the other to end", LIMIT, async || fleet.ended("two")).await;
    space_is_free_but_for(&fleet, &Running::new()).await;
}
