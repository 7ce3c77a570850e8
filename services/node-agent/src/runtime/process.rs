//! Containers as processes of this machine, each behind its own supervisor.
//!
//! A container lives in `containers/<id>/`. The agent writes the order there and starts a
//! supervisor; from then on the supervisor's files tell the truth, and a pipe and a process handle
//! tell when to read them. An agent that comes later finds the directory and watches on.

mod watch;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayward_node_agent_domain::{Stage, Trace, refusal};
use hayward_vocabulary::{AllocationId, Exit, Program};
use parking_lot::Mutex;
use rustix::process::{Signal, pidfd_send_signal};

use super::groups::Groups;
use super::{Container, Event, Found, News, NewsSender, Piece, Runtime};
use crate::supervisor::{CLAIM, Claim, EXIT, ORDER, OUTPUT, Order, STARTED, Started};
use crate::{files, lease, tasks};

/// Variables a container gets from the agent's own environment (S17).
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// How processes are run here.
#[derive(Debug, Clone)]
pub struct Conditions {
    pub state_dir: PathBuf,
    /// How to start this program again; `supervise DIR` or `run-tasks` is appended.
    pub command: Vec<String>,
    pub job_converter_url: String,
    pub output_limit_bytes: u64,
    pub processes_limit: u64,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Groups,
}

#[derive(Clone)]
pub struct Processes(Arc<Inner>);

struct Inner {
    conditions: Conditions,
    news: NewsSender,
    live: Mutex<HashMap<AllocationId, Live>>,
}

/// A container whose supervisor is being started or runs.
#[derive(Default)]
struct Live {
    supervisor: Option<OwnedFd>,
    stop_asked: bool,
}

impl Processes {
    pub fn new(conditions: Conditions, news: NewsSender) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(conditions.state_dir.join("containers"))?;
        if let Groups::Off { reason } = &conditions.groups {
            tracing::warn!(%reason, "containers have no limits of memory, cpu and processes");
        }
        let live = Mutex::default();
        Ok(Self(Arc::new(Inner {
            conditions,
            news,
            live,
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
        std::os::unix::fs::chown(&own, conditions.uid, conditions.gid)?;
        let Container { size, launch, .. } = container;
        let groups = conditions
            .groups
            .create(&container.id, size, conditions.processes_limit)?;
        let (argv, extra) = self.program(container)?;
        let mut environment: BTreeMap<String, String> = INHERITED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect();
        environment.extend(launch.environment.clone());
        environment.extend(extra);
        let order = Order {
            id: container.id.clone(),
            incarnation: container.incarnation,
            epoch: container.epoch,
            argv,
            environment,
            working_directory: launch.working_directory.as_ref().map_or(own, PathBuf::from),
            stop_grace_ms: launch.stop_grace_ms,
            output_limit_bytes: conditions.output_limit_bytes,
            uid: conditions.uid,
            gid: conditions.gid,
            groups,
            own_program: matches!(launch.program, Program::RunTasks { .. }),
            lease: container
                .exclusive
                .then(|| lease::file(&conditions.state_dir)),
        };
        files::create_json(&dir.join(ORDER), &order)?;
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
                    url: self.0.conditions.job_converter_url.clone(),
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
        if entry.stop_asked {
            entry.terminate();
        }
    }

    fn stop_asked(&self, id: &AllocationId) -> bool {
        self.0
            .live
            .lock()
            .get(id)
            .is_some_and(|entry| entry.stop_asked)
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
        let started = files::read_json::<Started>(&dir.join(STARTED));
        let found = Found {
            incarnation: order.incarnation,
            epoch: order.epoch,
            pid: started.as_ref().map(|started| started.program.pid),
            started_at: started.map(|started| started.at),
            trace: Self::trace(dir),
        };
        match &found.trace {
            Trace::Alive => self.adopt(id.clone(), found.incarnation, dir.to_owned()),
            Trace::Lost | Trace::Begun => self.end_remains(&id, dir),
            Trace::Exited(_) | Trace::Untouched => {}
        }
        Some((id, found))
    }
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
        let limits = self.0.conditions.groups.describe();
        BTreeMap::from([("hayward.limits".to_owned(), limits)])
    }

    fn recover(&self) -> anyhow::Result<BTreeMap<AllocationId, Found>> {
        let dirs = fs::read_dir(self.0.conditions.state_dir.join("containers"))?;
        let dirs = dirs.collect::<io::Result<Vec<_>>>()?;
        Ok(dirs
            .into_iter()
            .filter_map(|entry| self.look(&entry.path()))
            .collect())
    }

    fn launch(&self, container: Container) {
        let (id, incarnation) = (container.id.clone(), container.incarnation);
        self.0.live.lock().insert(id.clone(), Live::default());
        self.0.conditions.groups.stir();
        let runtime = self.clone();
        tokio::spawn(async move {
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
        if let Some(entry) = self.0.live.lock().get_mut(id) {
            entry.stop_asked = true;
            entry.terminate();
        }
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
        Piece::read(&self.dir(id).join(OUTPUT), offset, most, backlog)
    }
}
