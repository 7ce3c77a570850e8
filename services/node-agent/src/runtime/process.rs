//! Containers as processes of this node, each under its own supervisor.
//!
//! A container has the directory `containers/<id>/`. The agent writes the order there and starts a
//! supervisor. From then on the files that the supervisor writes there are the source of truth. A
//! pipe and a process handle notify the agent of changes. A later agent finds the directory and
//! watches the same supervisor.

mod leftovers;
mod supervisor_watch;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hayward_node_agent_domain::{Evidence, Stage, exit_for_failed_start};
use hayward_vocabulary::{AllocationId, Exit, Program};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::time::Instant;

use super::{Container, Event, EventSender, FoundContainer, OutputPiece, Runtime, RuntimeEvent};
use crate::cgroups::Cgroups;
use crate::cgroups::slot_groups::{SlotGroups, SlotLimits};
use crate::container_processes::{self, MARK};
use crate::fault_points::{self, Point};
use crate::log_segments;
use crate::run_as::{Account, Accounts, prepare_home};
use crate::supervisor::{CLAIM, Claim, EXIT, LaunchSpec, ORDER, STARTED, Started};
use crate::{atomic_files, lease, tasks};

/// Variables that every container inherits from the environment of the agent (S17).
const INHERITED_VARIABLES: [&str; 4] = ["PATH", "LANG", "LC_ALL", "TZ"];
/// Variables that a container inherits only if it runs under the account of the agent (S17).
const ACCOUNT_VARIABLES: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// Maximum number of attempts to lock the state directory, and the pause between two of them.
const MAX_LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct ProcessSettings {
    pub state_dir: PathBuf,
    /// Command that starts this program. `supervise DIR` or `run-tasks` is appended to it.
    pub command: Vec<String>,
    pub source: tasks::TaskSource,
    /// Name of this node.
    pub node: String,
    pub output_limit_bytes: u64,
    pub processes_limit: u64,
    pub accounts: Accounts,
    pub groups: Cgroups,
    pub boot_id: String,
    /// Time limit of a launch (F31).
    pub launch_limit: Duration,
}

#[derive(Clone)]
pub struct Processes(Arc<Inner>);

struct Inner {
    settings: ProcessSettings,
    events: EventSender,
    live: Mutex<HashMap<AllocationId, LiveContainer>>,
    /// Lock on the state directory, so that only one agent uses it (F28).
    _lock: Flock<File>,
}

/// A container whose supervisor is starting or running.
#[derive(Default)]
struct LiveContainer {
    /// Handle on the supervisor. `None` while it is being started.
    supervisor: Option<OwnedFd>,
    /// Time of the first stop request. `None` if there is none.
    stop_requested: Option<Instant>,
    /// Time between the stop request and the kill.
    grace: Duration,
}

impl Processes {
    pub fn new(settings: ProcessSettings, events: EventSender) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(settings.state_dir.join("containers"))?;
        let lock = lock(&settings.state_dir)?;
        if let Cgroups::Off { reason } = &settings.groups {
            tracing::warn!(%reason, "memory, cpu and processes of containers are not limited");
        }
        let live = Mutex::default();
        Ok(Self(Arc::new(Inner {
            settings,
            events,
            live,
            _lock: lock,
        })))
    }

    fn container_dir(&self, id: &AllocationId) -> PathBuf {
        self.0
            .settings
            .state_dir
            .join("containers")
            .join(id.as_str())
    }

    /// Creates the directory of the container, which must not exist, and writes the order there.
    fn prepare(&self, container: &Container, account: Option<&Account>) -> io::Result<PathBuf> {
        let settings = &self.0.settings;
        let dir = self.container_dir(&container.id);
        fs::DirBuilder::new().mode(0o711).create(&dir)?;
        let work_dir = dir.join("work");
        fs::DirBuilder::new().mode(0o700).create(&work_dir)?;
        let Container { size, launch, .. } = container;
        let (uid, gid) = account.map(|account| (account.uid, account.gid)).unzip();
        let further_groups = account.map_or_else(Vec::new, |it| it.further_groups.clone());
        std::os::unix::fs::chown(&work_dir, uid, gid)?;
        let groups = self.create_groups(container, uid)?;
        let (argv, variables) = self.program_and_variables(container)?;
        let mut environment = base_environment(account, &work_dir);
        environment.extend(launch.environment.clone());
        environment.extend(variables);
        let mark = container_processes::mark_value(&dir, container.incarnation);
        environment.insert(MARK.to_owned(), mark);
        let spec = LaunchSpec {
            id: container.id.clone(),
            incarnation: container.incarnation,
            epoch: container.epoch,
            argv,
            environment,
            own_directory: launch.working_directory.is_none(),
            working_directory: launch
                .working_directory
                .as_ref()
                .map_or(work_dir, PathBuf::from),
            stop_grace_ms: launch.stop_grace_ms,
            output_limit_bytes: settings.output_limit_bytes,
            uid,
            gid,
            runner_uid: settings.accounts.runner_uid(),
            further_groups,
            processes_limit: settings.account_processes_limit(uid),
            boot_id: settings.boot_id.clone(),
            groups: groups.runner,
            slot_groups: groups.slots,
            memory_limit_bytes: Some(size.memory_bytes).filter(|bytes| *bytes > 0),
            own_program: matches!(launch.program, Program::RunTasks { .. }),
            lease: container
                .exclusive
                .then(|| lease::lease_file(&settings.state_dir)),
        };
        atomic_files::create_json(&dir.join(ORDER), &spec)?;
        fault_points::pass(Point::FolderAfter);
        Ok(dir)
    }

    /// Creates the cgroups of a container.
    fn create_groups(&self, container: &Container, uid: Option<u32>) -> io::Result<SlotGroups> {
        let settings = &self.0.settings;
        let (id, size) = (&container.id, &container.size);
        match container.launch.program {
            Program::RunTasks { threads, .. } => {
                let limits = SlotLimits {
                    size,
                    processes: settings.processes_limit,
                    slots: threads,
                    uid,
                };
                settings.groups.create_with_slots(id, &limits)
            }
            Program::Command { .. } | Program::Container { .. } => Ok(SlotGroups {
                runner: settings.groups.create(id, size, settings.processes_limit)?,
                slots: Vec::new(),
            }),
        }
    }

    fn program_and_variables(
        &self,
        container: &Container,
    ) -> io::Result<(Vec<String>, BTreeMap<String, String>)> {
        let id = container.id.to_string();
        let mut variables = BTreeMap::from([("HAYWARD_ALLOCATION".to_owned(), id)]);
        if let Some(parent) = &container.launch.traceparent {
            variables.insert("TRACEPARENT".to_owned(), parent.clone());
        }
        match &container.launch.program {
            Program::Command { argv } => Ok((argv.clone(), variables)),
            Program::RunTasks { token, threads } => {
                let assignment = tasks::Assignment {
                    source: self.0.settings.source.clone(),
                    token: token.clone(),
                    job: container.work.clone(),
                    allocation: container.id.clone(),
                    threads: *threads,
                    stop_grace_ms: container.launch.stop_grace_ms,
                    node: self.0.settings.node.clone(),
                };
                variables.extend(assignment.to_environment());
                let mut argv = self.0.settings.command.clone();
                argv.push("run-tasks".to_owned());
                Ok((argv, variables))
            }
            Program::Container { .. } => Err(io::Error::other("an image cannot run as a process")),
        }
    }

    /// Stores the handle of the supervisor. If a stop was requested meanwhile, stops the
    /// supervisor.
    fn store_handle(&self, id: &AllocationId, handle: Option<OwnedFd>) {
        let mut live = self.0.live.lock();
        let entry = live.entry(id.clone()).or_default();
        entry.supervisor = handle;
        if entry.stop_requested.is_some() {
            entry.terminate();
        }
    }

    fn stop_requested(&self, id: &AllocationId) -> bool {
        self.0
            .live
            .lock()
            .get(id)
            .is_some_and(|entry| entry.stop_requested.is_some())
    }

    async fn send_event(&self, id: &AllocationId, incarnation: u64, event: Event) {
        if matches!(event, Event::Ended(_)) {
            self.0.live.lock().remove(id);
        }
        // The send fails only while the agent is stopping. The files keep the result.
        let _ = self
            .0
            .events
            .send(RuntimeEvent {
                id: id.clone(),
                incarnation,
                event,
            })
            .await;
    }

    /// Derives the evidence from the files of a directory. If no supervisor has claimed the
    /// directory, none can begin afterwards.
    fn read_evidence(dir: &Path) -> Evidence {
        if let Some(exit) = atomic_files::read_json::<Exit>(&dir.join(EXIT)) {
            return Evidence::Exited(exit);
        }
        let claim_without_supervisor = Claim { supervisor: None };
        if atomic_files::create_json(&dir.join(CLAIM), &claim_without_supervisor).is_ok() {
            return Evidence::NoTrace;
        }
        let claim = atomic_files::read_json::<Claim>(&dir.join(CLAIM));
        match claim {
            Some(Claim { supervisor: None }) => Evidence::NoTrace,
            Some(Claim {
                supervisor: Some(supervisor),
            }) if supervisor.open().is_some() => Evidence::Alive,
            _ if dir.join(STARTED).exists() => Evidence::Lost,
            _ => Evidence::LaunchInterrupted,
        }
    }

    /// Reads what a previous agent left in a directory. Watches or ends what is still alive.
    fn inspect(&self, dir: &Path) -> Option<(AllocationId, FoundContainer)> {
        let id = AllocationId::new(dir.file_name()?.to_str()?).ok()?;
        let Some(spec) = atomic_files::read_json::<LaunchSpec>(&dir.join(ORDER)) else {
            // Without an order, no supervisor was started.
            tracing::warn!(container = %id, "an unfinished directory is removed");
            let _ = fs::remove_dir_all(dir);
            return None;
        };
        let incarnation = spec.incarnation;
        let started = atomic_files::read_json::<Started>(&dir.join(STARTED));
        let mut found = FoundContainer {
            incarnation: spec.incarnation,
            epoch: spec.epoch,
            boot_id: Some(spec.boot_id).filter(|boot_id| !boot_id.is_empty()),
            pid: started.as_ref().map(|started| started.program.pid),
            started_at: started.map(|started| started.at),
            evidence: Self::read_evidence(dir),
        };
        match &found.evidence {
            Evidence::Alive => {
                let grace = Duration::from_millis(spec.stop_grace_ms);
                self.adopt(id.clone(), incarnation, dir.to_owned(), grace);
            }
            Evidence::Lost | Evidence::LaunchInterrupted if !self.end_leftovers(&id, dir) => {
                found.evidence = Evidence::Orphan;
                self.finish_in_background(id.clone(), incarnation, dir.to_owned());
            }
            _ => {}
        }
        Some((id, found))
    }
}

/// Locks the state directory. The kernel releases the lock when this process ends.
fn lock(state_dir: &Path) -> io::Result<Flock<File>> {
    let mut file = File::create(state_dir.join("lock"))?;
    for _ in 0..MAX_LOCK_ATTEMPTS {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((returned, Errno::EWOULDBLOCK)) => file = returned,
            Err((_, error)) => return Err(error.into()),
        }
        // A killed agent may not have exited yet.
        std::thread::sleep(LOCK_PAUSE);
    }
    let message = format!("another agent runs in {}", state_dir.display());
    Err(io::Error::new(io::ErrorKind::WouldBlock, message))
}

impl ProcessSettings {
    /// Returns the process limit of the account, which is used if no cgroup limits processes. The
    /// account of the agent has no limit, because it has other processes.
    fn account_processes_limit(&self, uid: Option<u32>) -> Option<u64> {
        uid.filter(|_| !self.groups.limits_processes())
            .map(|_| self.processes_limit)
    }
}

/// Returns the default environment of a program (S17). `account` is `None` for the account of the
/// agent.
fn base_environment(account: Option<&Account>, work_dir: &Path) -> BTreeMap<String, String> {
    let mut names = INHERITED_VARIABLES.to_vec();
    if account.is_none() {
        names.extend(ACCOUNT_VARIABLES);
    }
    let mut environment: BTreeMap<String, String> = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    let Some(account) = account else {
        return environment;
    };
    let home = prepare_home(account, work_dir).display().to_string();
    let shell = account.shell.as_ref().map(|it| it.display().to_string());
    let variables = [
        ("HOME", Some(home)),
        ("USER", account.name.clone()),
        ("LOGNAME", account.name.clone()),
        ("SHELL", shell),
    ];
    let present = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    environment.extend(present);
    environment
}

impl LiveContainer {
    fn terminate(&self) {
        if let Some(supervisor) = &self.supervisor {
            // The signal fails if the supervisor is gone. Its watcher then reports the end.
            let _ = pidfd_send_signal(supervisor, Signal::TERM);
        }
    }
}

impl Runtime for Processes {
    fn available_runtimes(&self) -> Vec<String> {
        vec!["process".to_owned()]
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let settings = &self.0.settings;
        let limits = match &settings.groups {
            Cgroups::Off { .. } if !settings.accounts.uses_agent_account() => "account-pids".into(),
            groups => groups.describe(),
        };
        BTreeMap::from([
            ("hayward.limits".to_owned(), limits),
            ("hayward.run_as".to_owned(), settings.accounts.label_value()),
        ])
    }

    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, FoundContainer>> {
        let dirs = fs::read_dir(self.0.settings.state_dir.join("containers"))?;
        let dirs = dirs.collect::<io::Result<Vec<_>>>()?;
        let mut found: BTreeMap<_, _> = dirs
            .into_iter()
            .filter_map(|entry| self.inspect(&entry.path()))
            .collect();
        self.end_orphans(&mut found);
        Ok(found)
    }

    fn launch(&self, container: Container) {
        let (id, incarnation) = (container.id.clone(), container.incarnation);
        let live = LiveContainer {
            grace: Duration::from_millis(container.launch.stop_grace_ms),
            ..LiveContainer::default()
        };
        self.0.live.lock().insert(id.clone(), live);
        self.0.settings.groups.warm_up();
        let runtime = self.clone();
        tokio::spawn(async move {
            fault_points::pass(Point::FolderBefore);
            let accounts = &runtime.0.settings.accounts;
            let account = match accounts.choose(&container.user, &container.launch) {
                Ok(account) => account,
                Err(exit) => {
                    let refused = Event::Ended(exit);
                    return runtime.send_event(&id, incarnation, refused).await;
                }
            };
            match runtime.prepare(&container, account.as_ref()) {
                Ok(dir) => runtime.supervise(id, incarnation, dir).await,
                Err(error) => {
                    let message = format!("its directory cannot be prepared: {error}");
                    let exit = exit_for_failed_start(Stage::Setup, error.raw_os_error(), message);
                    runtime
                        .send_event(&id, incarnation, Event::Ended(exit))
                        .await;
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
            entry.stop_requested.get_or_insert_with(Instant::now);
            entry.terminate();
            entry.grace
        };
        self.kill_if_stuck(id.clone(), grace);
    }

    fn forget(&self, id: &AllocationId) {
        self.0.settings.groups.remove(id);
        if let Err(error) = fs::remove_dir_all(self.container_dir(id))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(container = %id, %error, "its directory cannot be removed");
        }
    }

    fn output(
        &self,
        id: &AllocationId,
        offset: u64,
        max_bytes: u64,
        backlog: u64,
    ) -> Option<OutputPiece> {
        let (offset, bytes) =
            log_segments::read(&self.container_dir(id), offset, max_bytes, backlog)?;
        Some(OutputPiece { offset, bytes })
    }
}
