//! Processes that really run in the containers of the fleet, whatever services report. They are
//! found by a variable in the environment of each process of a container, and by the arguments of
//! supervisors.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::plan::Inside;

/// Variable of every process of a container, with its folder and its incarnation.
const MARK: &str = "HAYWARD_CONTAINER=";

/// A process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub pid: i32,
    /// Start time of the process. It is unique together with the process id.
    started: u64,
    pub what: Inside,
    pub allocation: String,
    /// Arguments of the process.
    pub line: String,
}

/// Returns all processes of agents with folders below `dir`.
pub fn all(dir: &Path) -> Vec<Found> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|it| it.file_name().to_string_lossy().parse().ok());
    let mut found: Vec<Found> = numbers.filter_map(|pid| read_process(dir, pid)).collect();
    found.sort_by_key(|it| it.pid);
    found
}

fn read_process(dir: &Path, pid: i32) -> Option<Found> {
    let started = started(pid)?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let line = line.trim_end().to_owned();
    let below = format!("{}/", dir.display());
    let words: Vec<&str> = line.split(' ').collect();
    let (what, folder) = if let [.., "supervise", folder, _] = words.as_slice() {
        (Inside::Supervisor, (*folder).to_owned())
    } else {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment);
        let mut variables = environment.split('\0');
        let mark = variables.find_map(|it| it.strip_prefix(MARK))?;
        let (folder, _) = mark.rsplit_once('/')?;
        let runner = words.last() == Some(&"run-tasks");
        let what = if runner {
            Inside::Runner
        } else {
            Inside::Program
        };
        (what, folder.to_owned())
    };
    let allocation = folder.strip_prefix(&below)?.rsplit('/').next()?.to_owned();
    Some(Found {
        pid,
        started,
        what,
        allocation,
        line,
    })
}

/// Returns the start time in ticks since the boot. Returns `None` for a process that has ended and
/// was not reaped.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, so fields are counted after its closing bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields.first() != Some(&"Z")).then(|| fields.get(19)?.parse().ok())?
}

impl Found {
    /// Sends a signal to exactly this process. Returns false if it is gone.
    pub fn signal(&self, signal: Signal) -> bool {
        started(self.pid) == Some(self.started) && kill(Pid::from_raw(self.pid), signal).is_ok()
    }
}
