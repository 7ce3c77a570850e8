//! A worker pool of real processes, owned by a program in another language: kept at its size while
//! its workers are killed, and through a restart of the scheduler and of the owner (W1, W8).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hayward_rm_scheduler_api::pools::{
    PoolCreated, PoolMode, PoolOrder, PoolView, StopOrder, WorkerSpec,
};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::World;
use hayward_vocabulary::Size;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SIZE: u64 = 4;
const LIMIT: Duration = Duration::from_secs(45);

/// The pool, its owner, and the folder in which its workers register.
struct Pool {
    operator: Client,
    path: String,
    token_file: PathBuf,
    state: PathBuf,
}

impl Pool {
    async fn create(world: &World) -> Self {
        let state = world.dir.path().join("owner");
        let folder = state.join("workers");
        std::fs::create_dir_all(&folder).expect("a folder");
        // Workers may run as somebody else.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&folder, open).expect("open to all");
        let register = format!(
            "echo $$ > {}/$HAYWARD_WORKER; exec sleep 1000",
            folder.display()
        );
        let order = PoolOrder {
            job_id: "kept at its size".into(),
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
        };
        let operator = world.client("rm-scheduler", "operator");
        let created: PoolCreated = operator
            .post("/v1/pools", &order, Some("pool"))
            .await
            .expect("a pool");
        let token_file = world.dir.path().join("owner.token");
        std::fs::write(&token_file, &created.token).expect("a file");
        Self {
            operator,
            path: format!("/v1/pools/{}", created.pool.id),
            token_file,
            state,
        }
    }

    /// `docs/examples/pool_owner.py`
    fn start_owner(&self, world: &mut World) {
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/examples/pool_owner.py"
        );
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(world.dir.path().join("owner.log"))
            .expect("a log file");
        let mut command = Command::new("python3");
        command
            .args([program, "--url", world.url("rm-scheduler")])
            .args(["--pool", self.path.rsplit('/').next().unwrap_or_default()])
            .args(["--size", &SIZE.to_string()])
            .arg("--token-file")
            .arg(&self.token_file)
            .arg("--state")
            .arg(&self.state)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        world.spawn("owner", command);
    }

    /// Workers that registered and whose processes are there: id and process.
    fn alive(&self) -> BTreeSet<(String, i32)> {
        let files = std::fs::read_dir(self.state.join("workers"));
        let files = files.into_iter().flatten().flatten();
        let read = files.filter_map(|file| {
            let pid = std::fs::read_to_string(file.path())
                .ok()?
                .trim()
                .parse()
                .ok()?;
            let name = file.file_name().to_string_lossy().into_owned();
            runs(pid).then_some((name, pid))
        });
        read.collect()
    }

    /// Waits until the pool is at its size again, without those who were killed, and the scheduler,
    /// the owner and the processes say the same.
    async fn at_its_size(&self, without: &BTreeSet<String>) -> BTreeSet<(String, i32)> {
        let what = format!("{SIZE} workers without {without:?}");
        let since = Instant::now();
        let alive = until_within(&what, LIMIT, async || {
            let view: PoolView = self.operator.get(&self.path).await.ok()?;
            let alive = self.alive();
            let names: BTreeSet<String> = alive.iter().map(|(name, _)| name.clone()).collect();
            let settled = view.started == SIZE
                && (view.requested, view.launching, view.returning) == (0, 0, 0);
            let same = alive.len() as u64 == SIZE && names.is_disjoint(without);
            (settled && same && names == known_to_owner(&self.state)?).then_some(alive)
        })
        .await;
        eprintln!("at its size after {} ms", since.elapsed().as_millis());
        alive
    }
}

fn known_to_owner(state: &Path) -> Option<BTreeSet<String>> {
    #[derive(serde::Deserialize)]
    struct Known {
        workers: BTreeSet<String>,
    }
    let text = std::fs::read(state.join("owner.json")).ok()?;
    let known: Known = serde_json::from_slice(&text).ok()?;
    Some(known.workers)
}

/// A zombie is gone: its supervisor has yet to note its end.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Kills the `nth` of the workers, and remembers it.
fn strike(alive: &BTreeSet<(String, i32)>, nth: usize, killed: &mut BTreeSet<String>) {
    let (name, pid) = alive.iter().nth(nth % alive.len()).expect("a worker");
    kill(Pid::from_raw(*pid), Signal::SIGKILL).expect("killed");
    killed.insert(name.clone());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_kept_at_its_size_whoever_is_killed() {
    let mut world = World::with_agents(2).await;
    let pool = Pool::create(&world).await;
    pool.start_owner(&mut world);
    let mut killed = BTreeSet::new();
    let mut alive = pool.at_its_size(&killed).await;
    // Which ones is drawn from their ids, which are random at their ends.
    let mut draw = alive
        .iter()
        .map(|(name, _)| name.len() + name.as_bytes()[name.len() - 1] as usize)
        .sum::<usize>();
    for turn in 1..=4 {
        draw = draw * 31 + turn;
        for hit in 0..=turn % 2 {
            strike(&alive, draw + hit, &mut killed);
        }
        alive = pool.at_its_size(&killed).await;
    }

    // The scheduler dies; so does a worker while it is away. The others are the same processes.
    let before = alive.clone();
    world.kill("rm-scheduler");
    strike(&alive, 0, &mut killed);
    world.start_service("rm-scheduler");
    world.services_are_ready().await;
    alive = pool.at_its_size(&killed).await;
    assert_eq!(
        alive.intersection(&before).count() as u64,
        SIZE - 1,
        "only one was replaced"
    );

    // The owner dies; so does a worker while it is away. A new owner has the next epoch.
    let before = alive.clone();
    world.kill("owner");
    strike(&alive, 1, &mut killed);
    pool.start_owner(&mut world);
    alive = pool.at_its_size(&killed).await;
    assert_eq!(
        alive.intersection(&before).count() as u64,
        SIZE - 1,
        "only one was replaced"
    );
    let view: PoolView = pool.operator.get(&pool.path).await.expect("a view");
    assert_eq!((view.owner.epoch, view.designated), (2, SIZE));

    let stop = StopOrder::default();
    let path = format!("{}/stop", pool.path);
    let _: PoolView = pool
        .operator
        .post(&path, &stop, None)
        .await
        .expect("stopped");
    until_within("all workers to end", LIMIT, async || {
        let view: PoolView = pool.operator.get(&pool.path).await.ok()?;
        (view.returning == 0 && !alive.iter().any(|(_, pid)| runs(*pid))).then_some(())
    })
    .await;
}
