//! The launchers of a job's process: one for each slot, under the account of the user. Each speaks
//! to the task runner over a socket, whose other end the supervisor sends to the runner.

use std::io::{self, IoSlice, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;

use nix::unistd::Pid;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::container_files::ProcessAccount;
use super::spawn::{OwnProgram, Streams};
use super::{LaunchSpec, to_pid};
use crate::cgroups;
use crate::launcher::messages::{self, ToLauncher};
use crate::launcher::run_plan::LauncherContext;
use crate::tasks::{Assignment, is_runner_variable};

pub struct Launchers {
    argv: Vec<String>,
    /// Context of the launchers. Their slots differ.
    context: LauncherContext,
    /// Cgroups of each slot.
    groups: Vec<Vec<PathBuf>>,
    account: ProcessAccount,
    /// Socket to the runner.
    runner: UnixStream,
    /// Output of the container.
    output: PipeWriter,
    slot_count: usize,
    /// Launcher of each slot.
    slots: Vec<Child>,
}

impl Launchers {
    /// Prepares the launchers of a task runner, and starts none. `runner` is a socket to it.
    pub fn new(spec: &LaunchSpec, runner: UnixStream, output: PipeWriter) -> io::Result<Self> {
        let assignment = Assignment::from_variables(|name| spec.environment.get(name).cloned());
        let assignment = assignment.map_err(io::Error::other)?;
        let mut argv = spec.argv.clone();
        argv.pop();
        argv.push("launch".to_owned());
        let variables = spec.environment.iter();
        let environment = variables
            .filter(|(name, _)| !is_runner_variable(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let context = LauncherContext {
            node: assignment.node,
            allocation: spec.id.to_string(),
            slot: 0,
            work_dir: spec.working_directory.clone(),
            environment,
            groups: Vec::new(),
            memory_limit_bytes: spec.memory_limit_bytes,
        };
        Ok(Self {
            argv,
            context,
            groups: spec.slot_groups.clone(),
            account: spec.account(),
            runner,
            output,
            slot_count: assignment.threads as usize,
            slots: Vec::new(),
        })
    }

    /// Starts the launchers of all slots.
    pub fn start_all(&mut self) -> io::Result<()> {
        for slot in 0..self.slot_count {
            let launcher = self.start(slot)?;
            self.slots.push(launcher);
        }
        Ok(())
    }

    /// Starts another launcher for the slot of an ended process, if it was a launcher.
    pub fn replace(&mut self, ended: Pid) -> io::Result<()> {
        let is_ended = |launcher: &Child| to_pid(launcher.id()) == ended;
        let Some(slot) = self.slots.iter().position(is_ended) else {
            return Ok(());
        };
        self.slots[slot] = self.start(slot)?;
        Ok(())
    }

    fn start(&self, slot: usize) -> io::Result<Child> {
        let (near, far) = UnixStream::pair()?;
        let program = OwnProgram {
            argv: &self.argv,
            environment: &self.context.environment,
            account: self.account.clone(),
        };
        let streams = Streams {
            stdin: OwnedFd::from(far).into(),
            stdout: self.output.try_clone()?.into(),
            stderr: self.output.try_clone()?.into(),
        };
        let launcher = program.spawn(streams)?;
        let groups = self.groups.get(slot).cloned().unwrap_or_default();
        // The launcher starts no program before it got a context and the runner got its socket.
        for group in &groups {
            cgroups::join(group, launcher.id())?;
        }
        let context = LauncherContext {
            slot,
            groups,
            ..self.context.clone()
        };
        messages::send(&near, &ToLauncher::Setup(Box::new(context)))?;
        self.send_to_runner(slot, &near)?;
        Ok(launcher)
    }

    fn send_to_runner(&self, slot: usize, launcher: &UnixStream) -> io::Result<()> {
        let number = u32::try_from(slot).map_err(io::Error::other)?.to_le_bytes();
        let files = [launcher.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(
            &self.runner,
            &[IoSlice::new(&number)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}
