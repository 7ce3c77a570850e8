//! Processes that really run on this machine, whatever services report.

use std::collections::BTreeMap;
use std::path::Path;

/// All processes at one instant, by pid.
struct Processes(BTreeMap<i32, Process>);

struct Process {
    parent: i32,
    /// Arguments of the process, joined by spaces.
    arguments: String,
}

impl Processes {
    fn read_all() -> Self {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|it| it.file_name().to_string_lossy().parse().ok());
        Self(
            pids.filter_map(|pid: i32| Some((pid, read_process(pid)?)))
                .collect(),
        )
    }

    /// Returns the supervisors of the containers below this folder. A supervisor has the folder of
    /// its container in its arguments.
    fn supervisors(&self, folder: &Path) -> impl Iterator<Item = i32> {
        // `node-1` must not match `node-10`.
        let folder = format!("{}/", folder.display());
        let is_supervisor = move |it: &Process| {
            it.arguments.contains("supervise") && it.arguments.contains(&folder)
        };
        let supervisors = self.0.iter().filter(move |(_, it)| is_supervisor(it));
        supervisors.map(|(pid, _)| *pid)
    }

    /// Returns a process and all its descendants, parents first.
    fn descendants(&self, root: i32) -> Vec<i32> {
        let mut descendants = vec![root];
        let mut next = 0;
        while next < descendants.len() {
            let parent = descendants[next];
            let children = self.0.iter().filter(|(_, it)| it.parent == parent);
            descendants.extend(children.map(|(pid, _)| *pid));
            next += 1;
        }
        descendants
    }
}

fn read_process(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, so fields are counted after its closing bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // A zombie does not run any more.
    (state != "Z").then(|| Process {
        parent,
        arguments: String::from_utf8_lossy(&arguments).replace('\0', " "),
    })
}

/// Returns the supervisors of the containers below this folder.
pub fn supervisors(folder: &Path) -> Vec<i32> {
    Processes::read_all().supervisors(folder).collect()
}

/// Returns the supervisors of the containers below this folder, and all their descendants. Parents
/// come before their children.
pub fn supervised_processes(folder: &Path) -> Vec<i32> {
    let processes = Processes::read_all();
    let supervisors: Vec<i32> = processes.supervisors(folder).collect();
    let descendants = supervisors
        .into_iter()
        .map(|pid| processes.descendants(pid));
    descendants.flatten().collect()
}

/// Counts the processes in the containers below this folder that have this text in their arguments.
/// The empty text matches all of them.
pub fn count_processes(folder: &Path, text: &str) -> usize {
    let processes = Processes::read_all();
    let supervisors: Vec<i32> = processes.supervisors(folder).collect();
    let started = supervisors
        .into_iter()
        .flat_map(|pid| processes.descendants(pid).split_off(1));
    started
        .filter(|pid| processes.0[pid].arguments.contains(text))
        .count()
}
