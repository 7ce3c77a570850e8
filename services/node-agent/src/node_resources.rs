//! Measures the node: its capacity, the memory of system accounts, and the metrics of heartbeats.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hayward_node_agent_domain::node_offer::allocatable_memory;
use hayward_node_status_api::{Metrics, Pressure};
use hayward_vocabulary::Size;

use crate::process_identity::{Stat, list_processes};

/// Maximum number of ancestors of a process that are checked. Reused ids could form a cycle.
const MAX_ANCESTORS: usize = 64;

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
        let parents =
            std::iter::successors(Some(pid), |pid| stats.get(pid).map(|stat| stat.parent));
        let mut ancestors = parents.take(MAX_ANCESTORS);
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
    fn the_node_has_a_capacity() {
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
