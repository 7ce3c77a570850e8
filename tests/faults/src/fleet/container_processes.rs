//! Lists the processes that really run in the containers of the fleet, whatever services report. A
//! process of a container is found by a variable in its environment, and a supervisor by its
//! arguments.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::plan::ProcessKind;

/// Variable of every process of a container, with its folder and its incarnation.
const MARK: &str = "HAYWARD_CONTAINER=";

/// A process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerProcess {
    pub pid: i32,
    /// Start time of the process. It is unique together with the process id.
    start_ticks: u64,
    pub kind: ProcessKind,
    pub allocation: String,
    /// Arguments of the process.
    pub command_line: String,
}

/// Returns all processes of agents with folders below `dir`.
pub fn list(dir: &Path) -> Vec<ContainerProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let mut processes: Vec<ContainerProcess> =
        pids.filter_map(|pid| read_process(dir, pid)).collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

fn read_process(dir: &Path, pid: i32) -> Option<ContainerProcess> {
    let start_ticks = read_start_ticks(pid)?;
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
    let command_line = command_line.trim_end().to_owned();
    let prefix = format!("{}/", dir.display());
    let arguments: Vec<&str> = command_line.split(' ').collect();
    // A supervisor runs as `hayward … supervise FOLDER INCARNATION`.
    let (kind, folder) = if let [.., "supervise", folder, _] = arguments.as_slice() {
        (ProcessKind::Supervisor, (*folder).to_owned())
    } else {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment);
        let mut variables = environment.split('\0');
        let mark = variables.find_map(|variable| variable.strip_prefix(MARK))?;
        let (folder, _) = mark.rsplit_once('/')?;
        let is_runner = arguments.last() == Some(&"run-tasks");
        let kind = if is_runner {
            ProcessKind::Runner
        } else {
            ProcessKind::Program
        };
        (kind, folder.to_owned())
    };
    let allocation = folder.strip_prefix(&prefix)?.rsplit('/').next()?.to_owned();
    Some(ContainerProcess {
        pid,
        start_ticks,
        kind,
        allocation,
        command_line,
    })
}

/// Returns the start time in ticks since the boot. Returns `None` for a process that has ended.
fn read_start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, so fields are counted after its closing bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field is the state, where Z is a zombie. The start time is field 22 of the file
    // (proc_pid_stat(5)), which is at index 19 after the process id and the name.
    (fields.first() != Some(&"Z")).then(|| fields.get(19)?.parse().ok())?
}

impl ContainerProcess {
    /// Sends a signal to exactly this process. Returns false if it is gone.
    pub fn signal(&self, signal: Signal) -> bool {
        read_start_ticks(self.pid) == Some(self.start_ticks)
            && kill(Pid::from_raw(self.pid), signal).is_ok()
    }
}
