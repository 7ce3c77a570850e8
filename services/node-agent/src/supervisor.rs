//! `supervise DIR`: the tiny process around one container. It outlives the agent (D9).
//!
//! It starts the program once, keeps its output within a limit, ends it when asked, ends whatever
//! the program leaves behind, and writes down how it went. It uses no runtime and no network.
//!
//! Invariants: a directory is claimed by one supervisor at most, so its program starts at most once
//! (I3); `exit.json` appears only when nothing of the container is alive any more (I17); being
//! asked to end before the program started means it does not start; exclusive work neither starts
//! nor goes on without a lease of the node, whatever has become of the agent (I4).

mod kill;
mod lease;
mod output;
mod sandbox;
mod signals;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hayward_node_agent_domain::{Stage, Step, Trouble, refusal};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Timestamp};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::fault_points::{self, Point};
use crate::files;
use crate::lease::boottime_ms;
use crate::machine::{self, Identity};
use crate::runtime::cgroups;
use kill::Force;
use lease::Watched;
use output::Output;
use signals::Signals;

pub const ORDER: &str = "order.json";
pub const CLAIM: &str = "claim.json";
pub const STARTED: &str = "started.json";
pub const EXIT: &str = "exit.json";

pub use kill::{STUCK, Stuck, reason};

/// What to run. Written by the agent, for its owner's eyes only: it may hold tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub id: AllocationId,
    pub incarnation: u64,
    pub epoch: u64,
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited (S17).
    pub environment: BTreeMap<String, String>,
    pub working_directory: PathBuf,
    pub stop_grace_ms: u64,
    pub output_limit_bytes: u64,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Control groups to be in.
    pub groups: Vec<PathBuf>,
    /// Most processes of its account, where no control group counts them.
    #[serde(default)]
    pub processes_limit: Option<u64>,
    /// Boot it was ordered under; empty from agents before this field.
    #[serde(default)]
    pub boot_id: String,
    /// The working directory is the one made for it: entered before its rights are given away,
    /// since they may not reach that far.
    #[serde(default)]
    pub own_directory: bool,
    /// The program is Hayward's own: that it does not start is never its user's fault.
    #[serde(default)]
    pub own_program: bool,
    /// Where the lease of the node is, for exclusive work.
    #[serde(default)]
    pub lease: Option<PathBuf>,
}

/// Written once the program runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    pub program: Identity,
    pub at: Timestamp,
}

/// Who supervises; an agent that makes sure nobody will has no identity to leave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    pub supervisor: Option<Identity>,
}

pub fn main(dir: &Path) -> ExitCode {
    match begin(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => ExitCode::from(3),
        Err(error) => {
            eprintln!("cannot supervise {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn begin(dir: &Path) -> io::Result<()> {
    sandbox::close_inherited();
    // Before anything else: from here on a request to end waits until it can be obeyed.
    let signals = Signals::listen()?;
    // The terminal's signals are for the agent alone. It fails for one who leads already.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    let claim = Claim {
        supervisor: Identity::own(),
    };
    fault_points::pass(Point::ClaimBefore);
    if let Err(error) = files::create_json(&dir.join(CLAIM), &claim) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            say(&refused(
                Stage::Own,
                "its directory cannot be claimed",
                &error,
            ));
        }
        return Err(error);
    }
    fault_points::pass(Point::ClaimAfter);
    let exit = match files::read_json::<Order>(&dir.join(ORDER)) {
        Some(order) => Supervisor {
            dir,
            order,
            signals,
            lease: None,
            stop: None,
            force: None,
        }
        .run(),
        None => Trouble::RuntimeDown.exit("its order cannot be read"),
    };
    let exit = Exit {
        ended_at: Some(SystemClock.now()),
        ..exit
    };
    fault_points::pass(Point::ExitBefore);
    let kept = files::replace_json(&dir.join(EXIT), &exit);
    fault_points::pass(Point::ExitAfter);
    if kept.is_err() {
        // I6: a disk that takes nothing loses no outcome while an agent listens.
        say(&exit);
    }
    kept
}

/// Tells the agent, which may be waiting at the pipe; or be gone.
fn say<T: Serialize>(what: &T) {
    if let Ok(mut line) = serde_json::to_vec(what) {
        line.push(b'\n');
        let _ = io::stdout()
            .write_all(&line)
            .and_then(|()| io::stdout().flush());
    }
}

fn refused(stage: Stage, what: &str, error: &io::Error) -> Exit {
    refusal(stage, error.raw_os_error(), format!("{what}: {error}"))
}

struct Supervisor<'a> {
    dir: &'a Path,
    order: Order,
    signals: Signals,
    /// Only of exclusive work.
    lease: Option<Watched>,
    stop: Option<Stop>,
    /// Its processes are being killed.
    force: Option<Force>,
}

/// A request to end.
struct Stop {
    /// The program has heard of it.
    told: bool,
    /// When the grace is over; none once it was forced.
    force_at: Option<Instant>,
    why: Why,
}

enum Why {
    Asked,
    LeaseOver(String),
}

impl Supervisor<'_> {
    fn run(mut self) -> Exit {
        match self.begin() {
            Ok((mut child, mut output)) => {
                self.tell(&child);
                let status = self.watch(&mut child, &mut output);
                self.clear(&mut output);
                output.finish();
                self.explain(status)
            }
            Err(exit) => exit,
        }
    }

    /// Starts the program, unless it must not be started or cannot be.
    fn begin(&mut self) -> Result<(Child, Output), Exit> {
        let own = |what: &'static str| move |error| refused(Stage::Own, what, &error);
        let mut output = Output::open(self.dir, self.order.output_limit_bytes)
            .map_err(own("its output cannot be kept"))?;
        for group in &self.order.groups {
            cgroups::join(group, std::process::id())
                .map_err(own("its control group refuses it"))?;
        }
        if let Some(file) = self.order.lease.take() {
            let watched = Watched::new(file).map_err(own("its lease cannot be watched"))?;
            self.lease = Some(watched);
        }
        self.hear();
        match &self.stop {
            Some(Stop {
                why: Why::LeaseOver(why),
                ..
            }) => {
                return Err(Exit::of(
                    ExitCause::Node,
                    format!("it was not started: {why}"),
                ));
            }
            Some(_) => {
                let why = "it was asked to end before it started";
                return Err(Exit::of(ExitCause::Intended, why));
            }
            None => {}
        }
        sandbox::confine(&self.order).map_err(own("it cannot be confined"))?;
        if !self.order.working_directory.is_absolute() {
            let why = "its working directory is not an absolute path";
            return Err(Exit::of(ExitCause::LaunchFailed, why));
        }
        fault_points::pass(Point::ProgramBefore);
        let spawned = self.spawn(&mut output);
        fault_points::pass(Point::ProgramAfter);
        match spawned {
            Ok(child) => Ok((child, output)),
            Err(error) => {
                let program = self.order.argv.first().map_or("", String::as_str);
                let what = format!("{program:?} cannot be started");
                let stage = if self.order.own_program {
                    Stage::Own
                } else {
                    Stage::Program
                };
                Err(refused(stage, &what, &error))
            }
        }
    }

    fn spawn(&self, output: &mut Output) -> io::Result<Child> {
        let [program, arguments @ ..] = self.order.argv.as_slice() else {
            return Err(io::Error::other("the argument vector is empty"));
        };
        let (stdout, stderr) = output.ends()?;
        // Our own program may lie where the account cannot go: it is opened by us and run by its
        // handle. A user's program is looked for with the user's rights.
        let ours = self.order.own_program && self.order.uid.is_some();
        let opened = ours.then(|| std::fs::File::open(program)).transpose()?;
        let mut command = match &opened {
            Some(file) => Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => Command::new(program),
        };
        if self.order.own_directory {
            std::env::set_current_dir(&self.order.working_directory)?;
        } else {
            command.current_dir(&self.order.working_directory);
        }
        command
            .arg0(program)
            .args(arguments)
            .env_clear()
            .envs(&self.order.environment)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        if let Some(gid) = self.order.gid {
            command.gid(gid);
        }
        if let Some(uid) = self.order.uid {
            command.uid(uid);
        }
        command.spawn()
    }

    /// The agent first, by the pipe it may be waiting at; then the disk.
    fn tell(&self, child: &Child) {
        let Some(program) = Identity::of(child.id()) else {
            return;
        };
        let started = Started {
            program,
            at: SystemClock.now(),
        };
        say(&started);
        // Without it a later agent says `launch_unknown`, which is true enough.
        let _ = files::replace_json(&self.dir.join(STARTED), &started);
        fault_points::pass(Point::StartedAfter);
    }

    fn watch(&mut self, child: &mut Child, output: &mut Output) -> io::Result<ExitStatus> {
        let leader = pid(child.id());
        loop {
            let force_at = self.stop.as_ref().and_then(|stop| stop.force_at);
            let again_at = self.force.as_ref().map(Force::next);
            let next = [force_at, again_at].into_iter().flatten().min();
            self.wait(output, next);
            self.hear();
            if let Some(stop) = &mut self.stop {
                if !stop.told {
                    stop.told = true;
                    let _ = killpg(leader, Signal::SIGTERM);
                } else if stop.force_at.is_some_and(|at| at <= Instant::now()) {
                    stop.force_at = None;
                    self.force = Some(Force::begin(Instant::now()));
                }
            }
            if ended(leader) {
                // Not yet waited for, so the number of the group cannot be anybody else's.
                let _ = killpg(leader, Signal::SIGKILL);
                return child.wait();
            }
            self.kill_on(Some(leader));
        }
    }

    /// Kills what is left when that is due, and says so when it does not help.
    fn kill_on(&mut self, leader: Option<Pid>) {
        let now = Instant::now();
        let Some(force) = &mut self.force else {
            return;
        };
        if force.due(now) {
            if let Some(leader) = leader {
                let _ = killpg(leader, Signal::SIGKILL);
            }
            kill_children();
        }
        if force.is_news(now) {
            say(&kill::stuck(self.dir));
        }
    }

    /// Ends all that is left. What cannot be killed keeps the container, and so its room (W16).
    fn clear(&mut self, output: &mut Output) {
        self.force = Some(Force::begin(Instant::now()));
        loop {
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
                Err(Errno::ECHILD) => return,
                Ok(WaitStatus::StillAlive) => {
                    self.kill_on(None);
                    let next = self.force.as_ref().map(Force::next);
                    self.wait(output, next);
                    self.hear();
                }
                _ => {}
            }
        }
    }

    /// Until a signal or output came, or that moment.
    fn wait(&self, output: &mut Output, next: Option<Instant>) {
        let limit = next.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let ready = {
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.signals.as_fd(),
                PollFlags::IN,
            )];
            let lease = self.lease.as_ref().map(AsFd::as_fd);
            let pipe = output.pipe();
            let others = [lease, pipe].into_iter().flatten();
            fds.extend(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let _ = poll(&mut fds, limit.as_ref());
            let last = fds.last().is_some_and(|fd| !fd.revents().is_empty());
            output.pipe().is_some() && last
        };
        if ready {
            output.take();
        }
    }

    /// Takes in the signals that came, and what has become of the lease.
    fn hear(&mut self) {
        let now = Instant::now();
        let force_at = now.checked_add(Duration::from_millis(self.order.stop_grace_ms));
        if self.signals.asked_to_end() && self.stop.is_none() {
            self.stop = Some(Stop {
                told: false,
                force_at,
                why: Why::Asked,
            });
        }
        let Some(lease) = &mut self.lease else {
            return;
        };
        // A clock that cannot be set is no clock to run by.
        let left = match lease.step().unwrap_or(Step::Force) {
            Step::Run { .. } => return,
            Step::End { force_at_ms } => force_at_ms.saturating_sub(boottime_ms()),
            Step::Force => 0,
        };
        let end = now.checked_add(Duration::from_millis(left));
        let stop = self.stop.get_or_insert_with(|| Stop {
            told: left == 0,
            force_at,
            why: Why::LeaseOver(lease.why()),
        });
        // The grace ends with the lease; what was forced stays so.
        stop.force_at = stop
            .force_at
            .zip(end)
            .map(|(force_at, end)| force_at.min(end));
    }

    fn explain(&self, status: io::Result<ExitStatus>) -> Exit {
        let status = match status {
            Ok(status) => status,
            Err(error) => return Exit::of(ExitCause::Node, format!("its end was lost: {error}")),
        };
        let out_of_memory = self
            .order
            .groups
            .iter()
            .any(|group| cgroups::ran_out_of_memory(group));
        let (cause, message) = match &self.stop {
            Some(Stop {
                why: Why::LeaseOver(why),
                ..
            }) => (ExitCause::Node, Some(why.as_str())),
            Some(Stop {
                force_at: Some(_), ..
            }) => (ExitCause::Intended, Some("asked to end")),
            Some(_) => (ExitCause::Intended, Some("asked to end, then forced")),
            None if !status.success() && out_of_memory => (
                ExitCause::UserLimit,
                Some("it used more memory than it was granted"),
            ),
            None if status.success() => (ExitCause::Success, None),
            None => (ExitCause::UserError, None),
        };
        let message = message.map(str::to_owned);
        Exit {
            cause,
            cause_code: None,
            code: status.code(),
            signal: status.signal(),
            message,
            ended_at: None,
        }
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Whether the program is over; it stays waitable. Orphans it left are waited for on the way.
fn ended(leader: Pid) -> bool {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::All, peek).map(|status| status.pid()) {
            Ok(Some(pid)) if pid == leader => return true,
            Ok(Some(orphan)) => {
                let _ = waitpid(orphan, Some(WaitPidFlag::WNOHANG));
            }
            Ok(None) | Err(_) => return false,
        }
    }
}

/// Children not waited for keep their numbers, so these are nobody else's.
fn kill_children() {
    for child in machine::children() {
        let _ = kill(pid(child), Signal::SIGKILL);
    }
}
