//! Processes that really run on this machine, whatever services report.

use std::collections::BTreeMap;
use std::path::Path;

/// Every process at one instant.
struct Look(BTreeMap<i32, Seen>);

struct Seen {
    parent: i32,
    /// Its arguments, one after the other.
    line: String,
}

impl Look {
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
        let supervises = move |it: &Seen| it.line.contains("supervise") && it.line.contains(&below);
        let found = self.0.iter().filter(move |(_, it)| supervises(it));
        found.map(|(pid, _)| *pid)
    }

    /// A process and all its descendants, parents first.
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

fn seen(pid: i32) -> Option<Seen> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, so fields are counted after its closing bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // A zombie does not run any more.
    (state != "Z").then(|| Seen {
        parent,
        line: String::from_utf8_lossy(&line).replace('\0', " "),
    })
}

/// Supervisors of the containers whose folders are below this one.
pub fn supervisors(below: &Path) -> Vec<i32> {
    Look::now().supervisors(below).collect()
}

/// These supervisors and all their descendants, parents first.
pub fn supervised(below: &Path) -> Vec<i32> {
    let look = Look::now();
    let supervisors: Vec<i32> = look.supervisors(below).collect();
    let all = supervisors.into_iter().map(|pid| look.descendants(pid));
    all.flatten().collect()
}

/// Number of processes below these supervisors that have this word in their arguments. The empty
/// word counts all of them.
pub fn count(below: &Path, word: &str) -> usize {
    let look = Look::now();
    let supervisors: Vec<i32> = look.supervisors(below).collect();
    let started = supervisors
        .into_iter()
        .flat_map(|pid| look.descendants(pid).split_off(1));
    started
        .filter(|pid| look.0[pid].line.contains(word))
        .count()
}
