//! Finding what belongs to this agent's containers, whatever has become of their folders.
//!
//! A supervisor has the container's folder and incarnation as its last two arguments, and all that
//! is below it has both in its environment, under [`MARK`]. Folders are this agent's alone, so a
//! mark names one agent, one allocation and one incarnation (R10); the number it was found under
//! comes with its start time and boot, and is only ever signalled through them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use hayward_vocabulary::AllocationId;
use hayward_vocabulary::launch::LEAST_ID;

use crate::machine::{self, Identity};

/// Variable of every process of a container: its folder and its incarnation.
pub const MARK: &str = "HAYWARD_CONTAINER";

pub fn mark(dir: &Path, incarnation: u64) -> String {
    format!("{}/{incarnation}", dir.display())
}

/// A process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    pub process: Identity,
    pub id: AllocationId,
    pub incarnation: u64,
    pub supervisor: bool,
}

/// Everything alive that belongs to a container in this folder of containers.
pub fn all(containers: &Path) -> Vec<Stray> {
    machine::numbers()
        .into_iter()
        .filter_map(|pid| one(containers, pid))
        .collect()
}

fn one(containers: &Path, pid: u32) -> Option<Stray> {
    // First, so that whatever is read below is compared with it by whoever sends a signal.
    let process = Identity::of(pid)?;
    let own = pid == std::process::id();
    let supervised = supervised(containers, pid);
    let supervisor = supervised.is_some();
    let (id, incarnation) = supervised.or_else(|| marked(containers, pid))?;
    (!own && process.lives()).then_some(Stray {
        process,
        id,
        incarnation,
        supervisor,
    })
}

fn supervised(containers: &Path, pid: u32) -> Option<(AllocationId, u64)> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.trim_ascii_end().split(|byte| *byte == 0).rev();
    let mut next = || loop {
        let word = std::str::from_utf8(words.next()?).ok()?;
        if !word.is_empty() {
            return Some(word);
        }
    };
    let incarnation = next()?;
    let dir = next()?;
    (next()? == "supervise").then(|| parsed(containers, dir, incarnation))?
}

/// Never one of root's: work is nobody's of the machine, so who carries our mark there has it from
/// somewhere else, as an operator who looks into a container.
fn marked(containers: &Path, pid: u32) -> Option<(AllocationId, u64)> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let own = nix::unistd::geteuid().as_raw();
    if uid == 0 || (uid < LEAST_ID && uid != own) {
        return None;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let text = std::str::from_utf8(variable).ok()?;
        text.strip_prefix(MARK)?.strip_prefix('=')
    })?;
    let (dir, incarnation) = value.rsplit_once('/')?;
    parsed(containers, dir, incarnation)
}

fn parsed(containers: &Path, dir: &str, incarnation: &str) -> Option<(AllocationId, u64)> {
    let name = Path::new(dir).strip_prefix(containers).ok()?;
    let id = AllocationId::new(name.to_str()?).ok()?;
    Some((id, incarnation.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r10_a_mark_is_one_agents_and_nobody_elses() {
        let ours = Path::new("/var/lib/a/containers");
        let found = |dir: &str, incarnation: &str| parsed(ours, dir, incarnation);
        let id = AllocationId::new("alc_1").unwrap();
        assert_eq!(
            found("/var/lib/a/containers/alc_1", "3"),
            Some((id.clone(), 3))
        );
        assert_eq!(found("/var/lib/b/containers/alc_1", "3"), None);
        assert_eq!(found("/var/lib/a/containers/alc_1/work", "3"), None);
        assert_eq!(found("/var/lib/a/containers/alc_1", "x"), None);
        assert_eq!(
            mark(&ours.join("alc_1"), 3),
            "/var/lib/a/containers/alc_1/3"
        );
    }

    #[test]
    fn r10_what_root_carries_is_spared() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(MARK, mark(&dir.path().join("alc_1"), 1))
            .spawn()
            .unwrap();
        let spared = nix::unistd::geteuid().as_raw() < LEAST_ID;
        assert_eq!(all(dir.path()).is_empty(), spared);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
