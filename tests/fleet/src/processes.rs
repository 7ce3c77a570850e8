//! Processes that really run on this machine, whatever services report.

use std::collections::BTreeMap;
use std::path::Path;

/// All processes at one instant, by pid.
struct Processes(BTreeMap<i32, Process>);

struct Process {
    parent: i32,
    /// Arguments of the process, joined by spaces.
    line: String,
}

impl Processes {
    fn now() -> Self {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|it| it.file_name().to_string_lossy().parse().ok());
        Self(
            pids.filter_map(|pid: i32| Some((pid, seen(pid)?)))
                .collect(),
        )
    }

    /// Supervisors have the folder of their container in their arguments.
    fn supervisors(&self, below: &Path) -> impl Iterator<Item = i32> {
        // `node-1` must not match `node-10`.
        let below = format!("{}/", below.display());
        let supervises =
            move |it: &Process| it.line.contains("supervise") && it.line.contains(&below);
        let found = self.0.iter().filter(move |(_, it)| supervises(it));
        found.map(|(pid, _)| *pid)
    }

    /// Returns a process and all its descendants, parents first.
    fn descendants(&self, root: i32) -> Vec<i32> {
        let mut found = vec![root];
        let mut at = 0;
        while at < found.len() {
            let above = found[at];
            let children = self.0.iter().filter(|(_, it)| it.parent == above);
            found.extend(children.map(|(pid, _)| *pid));
            at += 1;
        }
        found
    }
}

fn seen(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, so fields are counted after its closing bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // A zombie does not run any more.
    (state != "Z").then(|| Process {
        parent,
        line: String::from_utf8_lossy(&line).replace('\0', " "),
    })
}

/// Returns the supervisors of the containers whose folders are below this one.
pub fn supervisors(below: &Path) -> Vec<i32> {
    Processes::now().supervisors(below).collect()
}

/// Returns these supervisors and all their descendants, parents first.
pub fn supervised(below: &Path) -> Vec<i32> {
    let processes = Processes::now();
    let supervisors: Vec<i32> = processes.supervisors(below).collect();
    let all = supervisors
        .into_iter()
        .map(|pid| processes.descendants(pid));
    all.flatten().collect()
}

/// Counts the processes below these supervisors that have this word in their arguments. The empty
/// word matches all of them.
pub fn count(below: &Path, word: &str) -> usize {
    let processes = Processes::now();
    let supervisors: Vec<i32> = processes.supervisors(below).collect();
    let started = supervisors
        .into_iter()
        .flat_map(|pid| processes.descendants(pid).split_off(1));
    started
        .filter(|pid| processes.0[pid].line.contains(word))
        .count()
}
