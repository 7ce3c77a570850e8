//! Identifies, lists and signals processes of this node.
//!
//! A process is identified by its id, start time and boot. A signal goes through a handle, whose
//! identity is compared after opening. A later process with a reused id is therefore never
//! signalled (R10).

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Returns the id of the current boot, or an empty text if it is unknown.
pub fn boot_id() -> String {
    #[cfg(feature = "fault-points")]
    if let Some(boot_id) = crate::fault_points::test_boot_id() {
        return boot_id;
    }
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Identity of one process. A later process with the same id has another identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Clock ticks from the boot to the start of the process.
    pub start_ticks: u64,
    pub boot_id: String,
}

impl ProcessIdentity {
    /// Returns the identity of the process, or `None` if there is no such process.
    pub fn from_pid(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start_ticks: read_stat(pid)?.start_ticks,
            boot_id: boot_id(),
        })
    }

    pub fn current() -> Option<Self> {
        Self::from_pid(std::process::id())
    }

    /// Returns a handle on the process. Returns `None` if the process has ended.
    pub fn open(&self) -> Option<OwnedFd> {
        let handle = open_pidfd(self.pid)?;
        // The identity is compared after opening. From then on the handle cannot refer to another
        // process.
        (Self::from_pid(self.pid).as_ref() == Some(self)).then_some(handle)
    }

    /// Returns whether the process is alive and not a zombie.
    pub fn is_alive(&self) -> bool {
        let is_same_process = |stat: &Stat| !stat.is_zombie && stat.start_ticks == self.start_ticks;
        read_stat(self.pid).as_ref().is_some_and(is_same_process) && boot_id() == self.boot_id
    }

    /// Sends a signal to exactly this process. Returns true if it existed.
    pub fn signal(&self, signal: Signal) -> bool {
        self.open()
            .is_some_and(|handle| pidfd_send_signal(&handle, signal).is_ok())
    }
}

/// Returns a handle on the process that has this id now. It is safe only for own children that were
/// not yet waited for.
pub fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Number of fields between the process group and the start time in `/proc/<pid>/stat`.
const FIELDS_BEFORE_START_TICKS: usize = 16;

/// Fields of `/proc/<pid>/stat`.
pub struct Stat {
    /// Whether the process is a zombie, which has ended and was not yet waited for.
    is_zombie: bool,
    pub parent: u32,
    pub group: u32,
    start_ticks: u64,
}

fn read_stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain any characters, so the fields are parsed after its
    // parentheses.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Stat {
        is_zombie,
        parent,
        group,
        start_ticks: fields.nth(FIELDS_BEFORE_START_TICKS)?.parse().ok()?,
    })
}

/// Returns all processes, by id.
pub fn list_processes() -> impl Iterator<Item = (u32, Stat)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, read_stat(pid)?)))
}

/// Returns whether a process of the process group is alive.
pub fn has_live_member(group: u32) -> bool {
    list_processes().any(|(_, stat)| stat.group == group && !stat.is_zombie)
}

/// Returns the ids of all processes.
pub fn process_ids() -> Vec<u32> {
    list_processes().map(|(pid, _)| pid).collect()
}

/// Returns id, name and state of a process for display.
pub fn describe(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let name = text.get(text.find('(')? + 1..text.rfind(')')?)?;
    let printable: String = name.chars().filter(|c| !c.is_control()).collect();
    let state = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .next()?;
    Some(format!("process {pid} ({printable}, state {state})"))
}

/// Returns the children of this process, including adopted ones.
pub fn children() -> Vec<u32> {
    let own_pid = std::process::id();
    list_processes()
        .filter(|(_, stat)| stat.parent == own_pid)
        .map(|(pid, _)| pid)
        .collect()
}

/// Returns the live members of a process group that started no earlier than its leader. The leader
/// is not included.
pub fn group_members(leader: &ProcessIdentity) -> Vec<ProcessIdentity> {
    let boot_id = boot_id();
    if boot_id != leader.boot_id {
        return Vec::new();
    }
    list_processes()
        .filter(|(pid, stat)| {
            *pid != leader.pid
                && !stat.is_zombie
                && stat.group == leader.pid
                && stat.start_ticks >= leader.start_ticks
        })
        .map(|(pid, stat)| ProcessIdentity {
            pid,
            start_ticks: stat.start_ticks,
            boot_id: boot_id.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_process_id_is_not_signalled() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let identity = ProcessIdentity::from_pid(child.id()).unwrap();
        let earlier = ProcessIdentity {
            start_ticks: identity.start_ticks - 1,
            ..identity.clone()
        };
        let other_boot = ProcessIdentity {
            boot_id: "another".into(),
            ..identity.clone()
        };
        assert!(!earlier.signal(Signal::KILL));
        assert!(!other_boot.signal(Signal::KILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(identity.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!identity.signal(Signal::KILL));
    }
}
