//! Finds processes of this agent's containers, even without their folders.
//!
//! A supervisor has the folder and incarnation of its container as last arguments. All its
//! descendants have both in their environment, under [`MARK`]. Folders belong to one agent, so a
//! mark identifies an agent, an allocation and an incarnation (R10).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use hayward_vocabulary::AllocationId;
use hayward_vocabulary::launch::MIN_USER_ID;

use crate::process_identity::{self, ProcessIdentity};

/// Environment variable of every process of a container, with its folder and its incarnation.
pub const MARK: &str = "HAYWARD_CONTAINER";

pub fn mark_value(dir: &Path, incarnation: u64) -> String {
    format!("{}/{incarnation}", dir.display())
}

/// A process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerProcess {
    pub process: ProcessIdentity,
    pub id: AllocationId,
    pub incarnation: u64,
    pub is_supervisor: bool,
}

/// Returns all live processes of containers whose folders are below `containers_dir`.
pub fn find_all(containers_dir: &Path) -> Vec<ContainerProcess> {
    process_identity::process_ids()
        .into_iter()
        .filter_map(|pid| inspect_process(containers_dir, pid))
        .collect()
}

fn inspect_process(containers_dir: &Path, pid: u32) -> Option<ContainerProcess> {
    // The identity is read first. A later signal then verifies that all data below is of the same
    // process.
    let process = ProcessIdentity::from_pid(pid)?;
    let is_this_process = pid == std::process::id();
    let from_arguments = parse_supervisor_arguments(containers_dir, pid);
    let is_supervisor = from_arguments.is_some();
    let (id, incarnation) = from_arguments.or_else(|| parse_mark(containers_dir, pid))?;
    (!is_this_process && process.is_alive()).then_some(ContainerProcess {
        process,
        id,
        incarnation,
        is_supervisor,
    })
}

fn parse_supervisor_arguments(containers_dir: &Path, pid: u32) -> Option<(AllocationId, u64)> {
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut arguments = command_line.trim_ascii_end().split(|byte| *byte == 0).rev();
    let mut next = || loop {
        let argument = std::str::from_utf8(arguments.next()?).ok()?;
        if !argument.is_empty() {
            return Some(argument);
        }
    };
    let incarnation = next()?;
    let dir = next()?;
    (next()? == "supervise").then(|| parse_container(containers_dir, dir, incarnation))?
}

/// Returns the container that a process is marked with. Skips processes of system accounts, because
/// work never runs under them. Such a process inherited the mark in another way, like the shell of
/// an operator inside a container.
fn parse_mark(containers_dir: &Path, pid: u32) -> Option<(AllocationId, u64)> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let own_uid = nix::unistd::geteuid().as_raw();
    if uid == 0 || (uid < MIN_USER_ID && uid != own_uid) {
        return None;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let text = std::str::from_utf8(variable).ok()?;
        text.strip_prefix(MARK)?.strip_prefix('=')
    })?;
    let (dir, incarnation) = value.rsplit_once('/')?;
    parse_container(containers_dir, dir, incarnation)
}

fn parse_container(
    containers_dir: &Path,
    dir: &str,
    incarnation: &str,
) -> Option<(AllocationId, u64)> {
    let name = Path::new(dir).strip_prefix(containers_dir).ok()?;
    let id = AllocationId::new(name.to_str()?).ok()?;
    Some((id, incarnation.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_identifies_one_agent() {
        let containers_dir = Path::new("/var/lib/a/containers");
        let parse =
            |dir: &str, incarnation: &str| parse_container(containers_dir, dir, incarnation);
        let id = AllocationId::new("alc_1").unwrap();
        assert_eq!(
            parse("/var/lib/a/containers/alc_1", "3"),
            Some((id.clone(), 3))
        );
        assert_eq!(parse("/var/lib/b/containers/alc_1", "3"), None);
        assert_eq!(parse("/var/lib/a/containers/alc_1/work", "3"), None);
        assert_eq!(parse("/var/lib/a/containers/alc_1", "x"), None);
        assert_eq!(
            mark_value(&containers_dir.join("alc_1"), 3),
            "/var/lib/a/containers/alc_1/3"
        );
    }

    #[test]
    fn processes_of_root_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(MARK, mark_value(&dir.path().join("alc_1"), 1))
            .spawn()
            .unwrap();
        let skipped = nix::unistd::geteuid().as_raw() < MIN_USER_ID;
        assert_eq!(find_all(dir.path()).is_empty(), skipped);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
