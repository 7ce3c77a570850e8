//! Reads facts about this node and its processes, and signals processes.
//!
//! A process is identified by its id, start time and boot. A signal goes through a handle, whose
//! identity is compared after opening. A later process with a reused id is therefore never
//! signalled (R10).

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use hayward_node_agent_domain::node_offer::allocatable_memory;
use hayward_node_status_api::{Metrics, Pressure};
use hayward_vocabulary::Size;
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

struct Stat {
    /// Whether the process is a zombie, which has ended and was not yet waited for.
    is_zombie: bool,
    parent: u32,
    group: u32,
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
        start_ticks: fields.nth(16)?.parse().ok()?,
    })
}

fn list_processes() -> impl Iterator<Item = (u32, Stat)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, read_stat(pid)?)))
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

/// Returns the capacity of the node, without inspecting processes.
pub fn capacity() -> Size {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Size {
        memory_bytes: allocatable_memory(total_memory(), 0),
        cpu_milli: cpus as u64 * 1000,
        gpu_milli: count_gpus() * 1000,
        ..Size::default()
    }
}

pub fn total_memory() -> u64 {
    read_meminfo().get("MemTotal").copied().unwrap_or(0)
}

/// Counts the GPUs that the driver lists, or else those with a device file.
fn count_gpus() -> u64 {
    let count = |dir: &str, is_gpu: fn(&str) -> bool| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_gpu(name)).count() as u64
    };
    let is_numbered_device = |name: &str| {
        let number = name.strip_prefix("nvidia").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    };
    match count("/proc/driver/nvidia/gpus", |_| true) {
        0 => count("/dev", is_numbered_device),
        listed => listed,
    }
}

/// Returns the private memory of system accounts, in bytes. Excludes the processes of containers,
/// whatever their account. Shared pages would be counted once per process, so they are excluded too
///
pub fn system_memory(uid_below: u32, containers: &[u32]) -> u64 {
    let stats: BTreeMap<u32, Stat> = list_processes().collect();
    let is_in_container = |pid: u32| {
        // The number of ancestors is bounded, because reused ids could form a cycle.
        let parents =
            std::iter::successors(Some(pid), |pid| stats.get(pid).map(|stat| stat.parent));
        let mut ancestors = parents.take(64);
        ancestors.any(|pid| {
            let group = stats.get(&pid).map(|stat| stat.group);
            containers.contains(&pid) || group.is_some_and(|group| containers.contains(&group))
        })
    };
    let memory_of = |pid: &u32| {
        let (uid, bytes) = uid_and_private_memory(*pid)?;
        (uid < uid_below && !is_in_container(*pid)).then_some(bytes)
    };
    stats.keys().filter_map(memory_of).sum()
}

/// Returns the uid and private memory of a process, or `None` for a kernel thread.
fn uid_and_private_memory(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let first_number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let uid = u32::try_from(first_number("Uid:")?).ok()?;
    Some((uid, first_number("RssAnon:")? * 1024))
}

/// Returns metrics of the node. A value that cannot be read is zero.
pub fn metrics(dir: &Path) -> Metrics {
    let memory = read_meminfo();
    let amount = |name: &str| memory.get(name).copied().unwrap_or(0);
    let disk = rustix::fs::statvfs(dir).ok();
    let disk_bytes = |blocks: fn(&rustix::fs::StatVfs) -> u64| {
        let bytes = disk
            .as_ref()
            .map(|disk| blocks(disk).saturating_mul(disk.f_frsize));
        bytes.unwrap_or(0)
    };
    Metrics {
        load_centi: read_load_centi().unwrap_or(0),
        memory_total_bytes: amount("MemTotal"),
        memory_available_bytes: amount("MemAvailable"),
        swap_total_bytes: amount("SwapTotal"),
        swap_free_bytes: amount("SwapFree"),
        disk_total_bytes: disk_bytes(|disk| disk.f_blocks),
        disk_free_bytes: disk_bytes(|disk| disk.f_bavail),
        pressure: read_pressure(),
        ..Metrics::default()
    }
}

/// Returns the pressure, or `None` if the kernel does not provide it.
fn read_pressure() -> Option<Pressure> {
    let stalled = |resource: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        parse_stalled_centi(&text)
    };
    Some(Pressure {
        cpu_centi: stalled("cpu")?,
        memory_centi: stalled("memory")?,
        io_centi: stalled("io")?,
    })
}

/// Parses a file of pressure. The line `some avg10=61.87 …` gives 6187.
fn parse_stalled_centi(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let avg10 = line
        .split(' ')
        .find_map(|field| field.strip_prefix("avg10="))?;
    avg10.replace('.', "").parse().ok()
}

/// Returns the load in hundredths. `1.25` gives 125.
fn read_load_centi() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.replace('.', "").parse().ok()
}

fn read_meminfo() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let parse_line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let kib: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), kib * 1024))
    };
    text.lines().filter_map(parse_line).collect()
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

    #[test]
    fn the_machine_has_a_capacity() {
        assert!(capacity().memory_bytes > 0 && capacity().cpu_milli > 0);
        let metrics = metrics(Path::new("/"));
        assert!(metrics.disk_total_bytes >= metrics.disk_free_bytes);
        assert!(metrics.disk_free_bytes > 0 && metrics.memory_total_bytes > 0);
    }

    #[test]
    fn pressure_is_read_in_hundredths() {
        let text = "some avg10=61.87 avg60=25.31 avg300=26.81 total=2163\n\
                    full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_stalled_centi(text), Some(6187));
        assert_eq!(parse_stalled_centi("nothing here"), None);
    }

    #[test]
    fn only_accounts_below_the_limit_count_as_system_accounts() {
        let own = std::process::id();
        let total = system_memory(u32::MAX, &[]);
        let own_memory = uid_and_private_memory(own).unwrap().1;
        // Other processes come and go, so only the memory of this one is compared.
        assert!(own_memory > 0 && total >= own_memory);
        assert_eq!(system_memory(0, &[]), 0, "no account is below uid 0");
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.unwrap();
        assert!(uid_and_private_memory(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
