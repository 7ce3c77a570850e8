//! Containers as processes of this machine, each behind its own supervisor.
//!
//! A container lives in `containers/<id>/`. The agent writes the order there and starts a
//! supervisor; from then on the supervisor's files tell the truth, and a pipe and a process handle
//! tell when to read them. An agent that comes later finds the directory and watches on.

mod leftovers;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hayward_node_agent_domain::{Stage, Trace, refusal};
use hayward_vocabulary::{AllocationId, Exit, Program};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::time::Instant;

use super::cgroups::Groups;
use super::{Container, Event, Found, News, NewsSender, Piece, Runtime};
use crate::fault_points::{self, Point};
use crate::log_segments;
use crate::orphan_processes::{self, MARK};
use crate::run_as::{Account, Accounts};
use crate::supervisor::{CLAIM, Claim, EXIT, ORDER, Order, STARTED, Started};
use crate::{files, lease, tasks};

/// Variables a container gets from the agent's own environment (S17), and those it gets only where
/// it runs as the agent itself: they speak of an account.
const INHERITED: [&str; 4] = ["PATH", "LANG", "LC_ALL", "TZ"];
const OF_ACCOUNT: [&str; 4] = ["HOME", "USER", "LOGNAME", "TMPDIR"];

const LOCK_LOOKS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// How processes are run here.
#[derive(Debug, Clone)]
pub struct Conditions {
    pub state_dir: PathBuf,
    /// How to start this program again; `supervise DIR` or `run-tasks` is appended.
    pub command: Vec<String>,
    pub lender: tasks::Lender,
    pub output_limit_bytes: u64,
    pub processes_limit: u64,
    pub accounts: Accounts,
    pub groups: Groups,
    pub boot_id: String,
    /// A launch that takes longer has failed (F31).
    pub launch_limit: Duration,
}

#[derive(Clone)]
pub struct Processes(Arc<Inner>);

struct Inner {
    conditions: Conditions,
    news: NewsSender,
    live: Mutex<HashMap<AllocationId, Live>>,
    /// The state directory is this agent's alone for as long as it lives (F28).
    _lock: Flock<File>,
}

/// A container whose supervisor is being started or runs.
#[derive(Default)]
struct Live {
    supervisor: Option<OwnedFd>,
    stop_asked: Option<Instant>,
    /// Between a request to end and the forced end.
    grace: Duration,
}

impl Processes {
    pub fn new(conditions: Conditions, news: NewsSender) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(conditions.state_dir.join("containers"))?;
        let lock = lock(&conditions.state_dir)?;
        if let Groups::Off { reason } = &conditions.groups {
            tracing::warn!(%reason, "containers have no limits of memory, cpu and processes");
        }
        let live = Mutex::default();
        Ok(Self(Arc::new(Inner {
            conditions,
            news,
            live,
            _lock: lock,
        })))
    }

    fn dir(&self, id: &AllocationId) -> PathBuf {
        self.0
            .conditions
            .state_dir
            .join("containers")
            .join(id.as_str())
    }

    /// Makes the directory with the order in it. It must not be there yet.
    fn prepare(&self, container: &Container) -> io::Result<PathBuf> {
        let conditions = &self.0.conditions;
        let dir = self.dir(&container.id);
        fs::DirBuilder::new().mode(0o711).create(&dir)?;
        let own = dir.join("work");
        fs::DirBuilder::new().mode(0o700).create(&own)?;
        let Container { size, launch, .. } = container;
        let account = conditions.accounts.of(&container.user);
        let (uid, gid) = account.map(|it| (it.uid, it.gid)).unzip();
        std::os::unix::fs::chown(&own, uid, gid)?;
        let groups = conditions
            .groups
            .create(&container.id, size, conditions.processes_limit)?;
        let (argv, extra) = self.program(container)?;
        let mut environment = surroundings(account, &own);
        environment.extend(launch.environment.clone());
        environment.extend(extra);
        let mark = orphan_processes::mark(&dir, container.incarnation);
        environment.insert(MARK.to_owned(), mark);
        let order = Order {
            id: container.id.clone(),
            incarnation: container.incarnation,
            epoch: container.epoch,
            argv,
            environment,
            own_directory: launch.working_directory.is_none(),
            working_directory: launch.working_directory.as_ref().map_or(own, PathBuf::from),
            stop_grace_ms: launch.stop_grace_ms,
            output_limit_bytes: conditions.output_limit_bytes,
            uid,
            gid,
            processes_limit: conditions.counted_by_account(uid),
            boot_id: conditions.boot_id.clone(),
            groups,
            own_program: matches!(launch.program, Program::RunTasks { .. }),
            lease: container
                .exclusive
                .then(|| lease::file(&conditions.state_dir)),
        };
        files::create_json(&dir.join(ORDER), &order)?;
        fault_points::pass(Point::FolderAfter);
        Ok(dir)
    }

    fn program(
        &self,
        container: &Container,
    ) -> io::Result<(Vec<String>, BTreeMap<String, String>)> {
        let id = container.id.to_string();
        let mut extra = BTreeMap::from([("HAYWARD_ALLOCATION".to_owned(), id)]);
        if let Some(parent) = &container.launch.traceparent {
            extra.insert("TRACEPARENT".to_owned(), parent.clone());
        }
        match &container.launch.program {
            Program::Command { argv } => Ok((argv.clone(), extra)),
            Program::RunTasks { token, threads } => {
                let assignment = tasks::Assignment {
                    lender: self.0.conditions.lender.clone(),
                    token: token.clone(),
                    job: container.work.clone(),
                    allocation: container.id.clone(),
                    threads: *threads,
                    stop_grace_ms: container.launch.stop_grace_ms,
                };
                extra.extend(assignment.to_environment());
                let mut argv = self.0.conditions.command.clone();
                argv.push("run-tasks".to_owned());
                Ok((argv, extra))
            }
            Program::Container { .. } => Err(io::Error::other("an image is no process")),
        }
    }

    /// Keeps the handle; true when the container was asked to end meanwhile.
    fn hold(&self, id: &AllocationId, handle: Option<OwnedFd>) {
        let mut live = self.0.live.lock();
        let entry = live.entry(id.clone()).or_default();
        entry.supervisor = handle;
        if entry.stop_asked.is_some() {
            entry.terminate();
        }
    }

    fn stop_asked(&self, id: &AllocationId) -> bool {
        self.0
            .live
            .lock()
            .get(id)
            .is_some_and(|entry| entry.stop_asked.is_some())
    }

    async fn say(&self, id: &AllocationId, incarnation: u64, event: Event) {
        if matches!(event, Event::Ended(_)) {
            self.0.live.lock().remove(id);
        }
        // Nobody listens when the agent is ending; the files keep the news.
        let _ = self
            .0
            .news
            .send(News {
                id: id.clone(),
                incarnation,
                event,
            })
            .await;
    }

    /// What a directory proves.
    fn trace(dir: &Path) -> Trace {
        if let Some(exit) = files::read_json::<Exit>(&dir.join(EXIT)) {
            return Trace::Exited(exit);
        }
        // From here on no supervisor can begin that has not begun.
        let void = Claim { supervisor: None };
        if files::create_json(&dir.join(CLAIM), &void).is_ok() {
            return Trace::Untouched;
        }
        let claim = files::read_json::<Claim>(&dir.join(CLAIM));
        match claim {
            Some(Claim { supervisor: None }) => Trace::Untouched,
            Some(Claim {
                supervisor: Some(supervisor),
            }) if supervisor.open().is_some() => Trace::Alive,
            _ if dir.join(STARTED).exists() => Trace::Lost,
            _ => Trace::Begun,
        }
    }

    fn look(&self, dir: &Path) -> Option<(AllocationId, Found)> {
        let id = AllocationId::new(dir.file_name()?.to_str()?).ok()?;
        let Some(order) = files::read_json::<Order>(&dir.join(ORDER)) else {
            // No order, so no supervisor either: a launch that got no further.
            tracing::warn!(container = %id, "an unfinished directory is removed");
            let _ = fs::remove_dir_all(dir);
            return None;
        };
        let incarnation = order.incarnation;
        let started = files::read_json::<Started>(&dir.join(STARTED));
        let mut found = Found {
            incarnation: order.incarnation,
            epoch: order.epoch,
            boot_id: Some(order.boot_id).filter(|boot_id| !boot_id.is_empty()),
            pid: started.as_ref().map(|started| started.program.pid),
            started_at: started.map(|started| started.at),
            trace: Self::trace(dir),
        };
        match &found.trace {
            Trace::Alive => {
                let grace = Duration::from_millis(order.stop_grace_ms);
                self.adopt(id.clone(), incarnation, dir.to_owned(), grace);
            }
            Trace::Lost | Trace::Begun if !self.end_remains(&id, dir) => {
                found.trace = Trace::Orphan;
                self.outlive(id.clone(), incarnation, dir.to_owned());
            }
            _ => {}
        }
        Some((id, found))
    }
}

/// The kernel's, so it goes with the process, however that ends.
fn lock(state_dir: &Path) -> io::Result<Flock<File>> {
    let mut file = File::create(state_dir.join("lock"))?;
    for _ in 0..LOCK_LOOKS {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) => file = back,
            Err((_, error)) => return Err(error.into()),
        }
        // One that was killed may still be on its way out.
        std::thread::sleep(LOCK_PAUSE);
    }
    let what = format!("another agent runs in {}", state_dir.display());
    Err(io::Error::new(io::ErrorKind::WouldBlock, what))
}

impl Conditions {
    /// Where no control group counts processes, those of the account are. The agent's own account
    /// has others, which must not keep work from starting.
    fn counted_by_account(&self, uid: Option<u32>) -> Option<u64> {
        uid.filter(|_| !self.groups.counts_processes())
            .map(|_| self.processes_limit)
    }
}

/// What a program finds in its environment besides what was ordered. An allow-list: nothing else of
/// the agent's own is passed on (S17).
fn surroundings(account: Option<&Account>, own: &Path) -> BTreeMap<String, String> {
    let mut names = INHERITED.to_vec();
    if account.is_none() {
        names.extend(OF_ACCOUNT);
    }
    let mut environment: BTreeMap<String, String> = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    let Some(account) = account else {
        return environment;
    };
    let home = account.home.as_deref().filter(|home| home.is_dir());
    let home = home.unwrap_or(own).display().to_string();
    environment.insert("HOME".to_owned(), home);
    for name in ["USER", "LOGNAME"] {
        if let Some(account) = &account.name {
            environment.insert(name.to_owned(), account.clone());
        }
    }
    environment
}

impl Live {
    fn terminate(&self) {
        if let Some(supervisor) = &self.supervisor {
            // Gone already: its watcher says how it went.
            let _ = pidfd_send_signal(supervisor, Signal::TERM);
        }
    }
}

impl Runtime for Processes {
    fn offers(&self) -> Vec<String> {
        vec!["process".to_owned()]
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let conditions = &self.0.conditions;
        let limits = match &conditions.groups {
            Groups::Off { .. } if !conditions.accounts.is_the_agents() => "account-pids".into(),
            groups => groups.describe(),
        };
        BTreeMap::from([
            ("hayward.limits".to_owned(), limits),
            ("hayward.run_as".to_owned(), conditions.accounts.describe()),
        ])
    }

    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, Found>> {
        let dirs = fs::read_dir(self.0.conditions.state_dir.join("containers"))?;
        let dirs = dirs.collect::<io::Result<Vec<_>>>()?;
        let mut found: BTreeMap<_, _> = dirs
            .into_iter()
            .filter_map(|entry| self.look(&entry.path()))
            .collect();
        self.end_orphans(&mut found);
        Ok(found)
    }

    fn launch(&self, container: Container) {
        let (id, incarnation) = (container.id.clone(), container.incarnation);
        let live = Live {
            grace: Duration::from_millis(container.launch.stop_grace_ms),
            ..Live::default()
        };
        self.0.live.lock().insert(id.clone(), live);
        self.0.conditions.groups.stir();
        let runtime = self.clone();
        tokio::spawn(async move {
            fault_points::pass(Point::FolderBefore);
            match runtime.prepare(&container) {
                Ok(dir) => runtime.supervise(id, incarnation, dir).await,
                Err(error) => {
                    let message = format!("its directory cannot be prepared: {error}");
                    let exit = refusal(Stage::Own, error.raw_os_error(), message);
                    runtime.say(&id, incarnation, Event::Ended(exit)).await;
                }
            }
        });
    }

    fn stop(&self, id: &AllocationId) {
        let grace = {
            let mut live = self.0.live.lock();
            let Some(entry) = live.get_mut(id) else {
                return;
            };
            entry.stop_asked.get_or_insert_with(Instant::now);
            entry.terminate();
            entry.grace
        };
        self.insist(id.clone(), grace);
    }

    fn forget(&self, id: &AllocationId) {
        self.0.conditions.groups.remove(id);
        if let Err(error) = fs::remove_dir_all(self.dir(id))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(container = %id, %error, "its directory cannot be removed");
        }
    }

    fn output(&self, id: &AllocationId, offset: u64, most: u64, backlog: u64) -> Option<Piece> {
        let (offset, bytes) = log_segments::read(&self.dir(id), offset, most, backlog)?;
        Some(Piece { offset, bytes })
    }
}
