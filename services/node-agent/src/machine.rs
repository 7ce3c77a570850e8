//! What this machine is, and which process is which.
//!
//! R10: a process is its id, its start time and the boot it belongs to. A signal goes through a
//! handle on the process that was opened first and compared afterwards, so a number that was used
//! again is never hit.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use hayward_node_status_api::Metrics;
use hayward_vocabulary::Size;
use hayward_vocabulary::resources::GIB;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Changes with each boot; empty where the kernel does not tell.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// One process, never another one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// Clock ticks from the boot to its start.
    pub start_ticks: u64,
    pub boot_id: String,
}

impl Identity {
    /// None when there is no such process.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start_ticks: stat(pid)?.start_ticks,
            boot_id: boot_id(),
        })
    }

    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// A handle on the process, when it is still this one.
    pub fn open(&self) -> Option<OwnedFd> {
        let handle = open(self.pid)?;
        // Compared after opening: from here on the handle cannot come to mean another process.
        (Self::of(self.pid).as_ref() == Some(self)).then_some(handle)
    }

    /// Sends a signal to this process or to nobody. True when it was there.
    pub fn signal(&self, signal: Signal) -> bool {
        self.open()
            .is_some_and(|handle| pidfd_send_signal(&handle, signal).is_ok())
    }
}

/// A handle on whatever process bears this number now: only for own children not yet waited for.
pub fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

struct Stat {
    /// Over, and not yet waited for.
    over: bool,
    parent: u32,
    group: u32,
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses and may hold anything, so read from its end.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let over = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Stat {
        over,
        parent,
        group,
        start_ticks: fields.nth(16)?.parse().ok()?,
    })
}

fn processes() -> impl Iterator<Item = (u32, Stat)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
}

/// Children of this process, adopted ones too.
pub fn children() -> Vec<u32> {
    let own = std::process::id();
    processes()
        .filter(|(_, stat)| stat.parent == own)
        .map(|(pid, _)| pid)
        .collect()
}

/// What is alive of a group and started no earlier than its leader, without the leader.
pub fn group_of(leader: &Identity) -> Vec<Identity> {
    let boot_id = boot_id();
    if boot_id != leader.boot_id {
        return Vec::new();
    }
    processes()
        .filter(|(pid, stat)| {
            *pid != leader.pid
                && !stat.over
                && stat.group == leader.pid
                && stat.start_ticks >= leader.start_ticks
        })
        .map(|(pid, stat)| Identity {
            pid,
            start_ticks: stat.start_ticks,
            boot_id: boot_id.clone(),
        })
        .collect()
}

/// What may be handed out: all but what the system itself needs, a sixteenth, at most 2 GiB.
pub fn capacity() -> Size {
    let total = meminfo().get("MemTotal").copied().unwrap_or(0);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Size {
        memory_bytes: total - (total / 16).min(2 * GIB),
        cpu_milli: cpus as u64 * 1000,
        ..Size::default()
    }
}

/// How the machine feels. What cannot be read is zero.
pub fn metrics(dir: Option<&Path>, containers: usize) -> Metrics {
    let memory = meminfo();
    let amount = |name: &str| memory.get(name).copied().unwrap_or(0);
    let disk = dir.and_then(|dir| rustix::fs::statvfs(dir).ok());
    Metrics {
        load_centi: load_centi().unwrap_or(0),
        memory_available_bytes: amount("MemAvailable"),
        swap_free_bytes: amount("SwapFree"),
        disk_free_bytes: disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        containers: containers as u64,
    }
}

/// `1.25` is 125: read as text, because nothing here needs fractions.
fn load_centi() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.replace('.', "").parse().ok()
}

fn meminfo() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let kib: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), kib * 1024))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r10_a_number_that_was_used_again_is_not_signalled() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let identity = Identity::of(child.id()).unwrap();
        let earlier = Identity {
            start_ticks: identity.start_ticks - 1,
            ..identity.clone()
        };
        let other_boot = Identity {
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

    #[test]
    fn the_machine_has_a_size() {
        assert!(capacity().memory_bytes > 0 && capacity().cpu_milli > 0);
        assert!(metrics(Some(Path::new("/")), 0).disk_free_bytes > 0);
    }
}
