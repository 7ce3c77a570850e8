//! A worker pool of real processes with an owner in Python. The pool keeps its size when workers,
//! the scheduler or the owner are killed. A live worker leaves only if its owner chose it
//! (Invariants in `docs/spec/worker-pools.md`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hayward_rm_scheduler_api::worker_pools::{
    FinalStatus, PoolCreated, PoolMode, PoolOrder, PoolView, StopOrder, WorkerSpec,
};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, TestFleet, Timing};
use hayward_vocabulary::Size;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SIZE: u64 = 4;
/// Maximum time of each wait.
const LIMIT: Duration = Duration::from_mins(2);

/// Workers with a live process, as id and pid.
type Alive = BTreeSet<(String, i32)>;

/// A pool, and the files that its owner and its workers share with the test.
struct Pool {
    operator: Client,
    path: String,
    token_file: PathBuf,
    state: PathBuf,
}

impl Pool {
    async fn create(fleet: &TestFleet) -> Self {
        let state = fleet.dir.path().join("owner");
        let folder = state.join("workers");
        std::fs::create_dir_all(&folder).expect("a folder");
        // Workers may run under another account.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&folder, permissions).expect("permissions are set");
        let register = format!(
            "echo $$ > {}/$HAYWARD_WORKER; exec sleep 1000",
            folder.display()
        );
        let request = PoolOrder {
            job_id: "constant size".into(),
            mode: PoolMode::Managed,
            initial_size: 0,
            max_failed: Some(-1),
            worker_spec: Some(WorkerSpec {
                command: ["sh", "-c", &register].map(str::to_owned).into(),
                environment: std::collections::BTreeMap::new(),
                working_directory: None,
                size: Some(Size::memory(64 << 20)),
                machines: Vec::new(),
                stop_grace_ms: Some(500),
            }),
            user: Some("ada".parse().expect("a user")),
            class: None,
            reject_foreign: false,
        };
        let operator = fleet.client("rm-scheduler", "operator");
        let created: PoolCreated = operator
            .post("/v1/pools", &request, Some("pool"))
            .await
            .expect("a pool");
        let token_file = fleet.dir.path().join("owner.token");
        std::fs::write(&token_file, &created.token).expect("a file");
        Self {
            operator,
            path: format!("/v1/pools/{}", created.pool.id),
            token_file,
            state,
        }
    }

    /// Starts `docs/examples/pool_owner.py`, called `alias`.
    fn start_owner(&self, fleet: &mut TestFleet, alias: &str) {
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/examples/pool_owner.py"
        );
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(fleet.dir.path().join("owner.log"))
            .expect("a log file");
        let mut command = Command::new("python3");
        command
            .args([program, "--url", fleet.url("rm-scheduler")])
            .args(["--pool", self.path.rsplit('/').next().unwrap_or_default()])
            .args(["--size", &SIZE.to_string()])
            .arg("--token-file")
            .arg(&self.token_file)
            .arg("--state")
            .arg(&self.state)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        fleet.spawn(alias, command);
    }

    /// Sends a command to the owner through a file.
    fn write_command(&self, name: &str, text: &str) {
        let new_file = self.state.join(format!("{name}.new"));
        std::fs::write(&new_file, text).expect("a file");
        std::fs::rename(new_file, self.state.join(name)).expect("a file in one piece");
    }

    /// Returns the state of the owner.
    fn read_owner_state(&self) -> Option<OwnerState> {
        let text = std::fs::read(self.state.join("owner.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    async fn view(&self) -> PoolView {
        self.operator.get(&self.path).await.expect("a view")
    }

    /// Returns the workers that have registered and have a live process.
    fn alive_workers(&self) -> Alive {
        let files = std::fs::read_dir(self.state.join("workers"));
        let files = files.into_iter().flatten().flatten();
        let workers = files.filter_map(|file| {
            let pid = std::fs::read_to_string(file.path())
                .ok()?
                .trim()
                .parse()
                .ok()?;
            let name = file.file_name().to_string_lossy().into_owned();
            is_process_running(pid).then_some((name, pid))
        });
        workers.collect()
    }

    /// Waits until the pool has this size without the killed workers. The scheduler, the owner and
    /// the processes must agree.
    async fn wait_for_size(&self, size: u64, killed: &BTreeSet<String>) -> Alive {
        let description = format!("{size} workers without {killed:?}");
        let started = Instant::now();
        let alive = until_within(&description, LIMIT, async || {
            let view: PoolView = self.operator.get(&self.path).await.ok()?;
            let alive = self.alive_workers();
            let alive_ids = worker_ids(&alive);
            let is_settled = view.started == size
                && (view.requested, view.launching, view.returning) == (0, 0, 0);
            let has_size = alive.len() as u64 == size && alive_ids.is_disjoint(killed);
            (is_settled && has_size && alive_ids == self.read_owner_state()?.workers)
                .then_some(alive)
        })
        .await;
        eprintln!("at size {size} after {} ms", started.elapsed().as_millis());
        alive
    }
}

/// The state that the owner writes.
#[derive(serde::Deserialize)]
struct OwnerState {
    epoch: u64,
    workers: BTreeSet<String>,
    /// Workers that were reported dead or found dead.
    removed: BTreeSet<String>,
    /// Workers that the owner itself released.
    given_up: BTreeSet<String>,
}

fn worker_ids(alive: &Alive) -> BTreeSet<String> {
    alive.iter().map(|(name, _)| name.clone()).collect()
}

/// Starts two nodes and a pool without owner. No node is declared lost, however busy this machine
/// is.
async fn start_fleet_with_pool() -> (TestFleet, Pool) {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(2).await;
    let pool = Pool::create(&fleet).await;
    (fleet, pool)
}

/// Returns whether a process runs. A zombie counts as gone, even before its supervisor records its
/// end.
fn is_process_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|fields| fields.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Kills the worker at this index, and records it.
fn kill_worker(alive: &Alive, index: usize, killed: &mut BTreeSet<String>) {
    let (name, pid) = alive.iter().nth(index % alive.len()).expect("a worker");
    kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("killed");
    killed.insert(name.clone());
}

fn assert_one_replaced(before: &Alive, now: &Alive) {
    let unchanged = before.intersection(now).count();
    assert_eq!(unchanged, before.len() - 1, "{before:?} {now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_keeps_its_size_when_any_process_is_killed() {
    let (mut fleet, pool) = start_fleet_with_pool().await;
    pool.start_owner(&mut fleet, "owner");
    let mut killed = BTreeSet::new();
    let mut alive = pool.wait_for_size(SIZE, &killed).await;
    // The ids of the workers end in random digits, so this index is random.
    let mut index = alive
        .iter()
        .map(|(name, _)| name.len() + name.as_bytes()[name.len() - 1] as usize)
        .sum::<usize>();
    for round in 1..=4 {
        index = index * 31 + round;
        for offset in 0..=round % 2 {
            kill_worker(&alive, index + offset, &mut killed);
        }
        alive = pool.wait_for_size(SIZE, &killed).await;
    }

    // The scheduler dies, and a worker dies meanwhile. The other processes are the same afterwards.
    let before = alive;
    fleet.kill("rm-scheduler");
    kill_worker(&before, 0, &mut killed);
    fleet.start_service("rm-scheduler");
    fleet.wait_until_services_are_ready().await;
    alive = pool.wait_for_size(SIZE, &killed).await;
    assert_one_replaced(&before, &alive);

    // The owner dies, and a worker dies meanwhile. A new owner has the next epoch.
    let before = alive;
    fleet.kill("owner");
    kill_worker(&before, 1, &mut killed);
    pool.start_owner(&mut fleet, "owner");
    alive = pool.wait_for_size(SIZE, &killed).await;
    assert_one_replaced(&before, &alive);
    let view = pool.view().await;
    assert_eq!((view.owner.epoch, view.designated), (2, SIZE));

    // The scheduler, the owner and a worker die.
    let before = alive;
    fleet.kill("rm-scheduler");
    fleet.kill("owner");
    kill_worker(&before, 2, &mut killed);
    fleet.start_service("rm-scheduler");
    pool.start_owner(&mut fleet, "owner");
    fleet.wait_until_services_are_ready().await;
    alive = pool.wait_for_size(SIZE, &killed).await;
    assert_one_replaced(&before, &alive);

    let stop = StopOrder::default();
    let path = format!("{}/stop", pool.path);
    let _: PoolView = pool
        .operator
        .post(&path, &stop, None)
        .await
        .expect("stopped");
    wait_until_all_ended(&pool, &alive).await;
    // The owner observes the end of its pool, and ends.
    wait_until_owner_ended(&mut fleet, "owner").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_chooses_the_workers_that_leave() {
    let (mut fleet, pool) = start_fleet_with_pool().await;
    pool.start_owner(&mut fleet, "first");
    let mut killed = BTreeSet::new();
    let four_workers = pool.wait_for_size(4, &killed).await;
    pool.write_command("size", "6");
    let six_workers = pool.wait_for_size(6, &killed).await;
    assert!(
        six_workers.is_superset(&four_workers),
        "{four_workers:?} {six_workers:?}"
    );

    // The owner lowers the size and names workers. Exactly these leave, and none is replaced.
    pool.write_command("size", "3");
    let three_workers = pool.wait_for_size(3, &killed).await;
    assert!(
        six_workers.is_superset(&three_workers),
        "{six_workers:?} {three_workers:?}"
    );
    let state = pool.read_owner_state().expect("a state file");
    assert_eq!(
        state.given_up,
        &worker_ids(&six_workers) - &worker_ids(&three_workers)
    );
    assert!(
        state.removed.is_empty(),
        "workers that the owner released are not reported"
    );
    assert_eq!(pool.view().await.failed_so_far, 0);

    // Another owner takes over while the first still runs. The first is fenced off and ends. Every
    // worker keeps its process.
    pool.start_owner(&mut fleet, "second");
    wait_until_owner_ended(&mut fleet, "first").await;
    assert_eq!(pool.wait_for_size(3, &killed).await, three_workers);
    let state_of_second = async || pool.read_owner_state().filter(|state| state.epoch == 2);
    until_within(
        "the second owner to write its state",
        LIMIT,
        state_of_second,
    )
    .await;
    assert_eq!(pool.view().await.owner.epoch, 2);
    kill_worker(&three_workers, 0, &mut killed);
    let after_kill = pool.wait_for_size(3, &killed).await;
    assert_one_replaced(&three_workers, &after_kill);

    // The job of the owner is done.
    pool.write_command("stop", "SUCCEEDED");
    wait_until_owner_ended(&mut fleet, "second").await;
    wait_until_all_ended(&pool, &after_kill).await;
    let view = pool.view().await;
    assert_eq!(view.final_status, Some(FinalStatus::Succeeded));
    assert_eq!(view.failed_so_far, 1, "only the killed worker has failed");
}

async fn wait_until_owner_ended(fleet: &mut TestFleet, alias: &str) {
    let description = format!("{alias} to end");
    until_within(&description, LIMIT, async || fleet.exit_status(alias)).await;
}

async fn wait_until_all_ended(pool: &Pool, alive: &Alive) {
    until_within("all workers to end", LIMIT, async || {
        let view: PoolView = pool.operator.get(&pool.path).await.ok()?;
        (view.returning == 0 && !alive.iter().any(|(_, pid)| is_process_running(*pid)))
            .then_some(())
    })
    .await;
}
