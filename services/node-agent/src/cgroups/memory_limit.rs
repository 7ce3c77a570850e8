//! Memory of the cgroups of a container: the limit, the peak, and the number of processes that the
//! kernel killed because of the limit.

use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Returns the number of processes in the groups that the kernel killed for the memory limit.
pub fn count_kills(groups: &[PathBuf]) -> u64 {
    let files = ["memory.events", "memory.oom_control"];
    let counts = groups.iter().flat_map(|group| {
        files.iter().filter_map(|file| {
            let text = std::fs::read_to_string(group.join(file)).ok()?;
            let count = text
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "))?;
            count.trim().parse::<u64>().ok()
        })
    });
    counts.sum()
}

/// Describes that the memory limit was reached (TC-123). `limit` is the limit in bytes if the
/// groups have none of their own.
pub fn describe(groups: &[PathBuf], limit: Option<u64>) -> String {
    let limit = limit.or_else(|| read_any(groups, &["memory.max", "memory.limit_in_bytes"]));
    let peak = read_any(groups, &["memory.peak", "memory.max_usage_in_bytes"]);
    let amounts = [("limit", limit), ("peak", peak)].map(|(name, amount)| {
        let amount = amount.map(format_bytes)?;
        Some(format!("{name} {amount}"))
    });
    let amounts: Vec<String> = amounts.into_iter().flatten().collect();
    if limit.is_none() {
        "out of memory".to_owned()
    } else {
        format!("out of memory: {}", amounts.join(", "))
    }
}

fn read_any(groups: &[PathBuf], files: &[&str]) -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    let mut paths = groups
        .iter()
        .flat_map(|group| files.iter().map(|file| group.join(file)));
    paths.find_map(|path| read(&path))
}

fn format_bytes(bytes: u64) -> String {
    if bytes >= GIB && bytes.is_multiple_of(GIB) {
        format!("{} GiB", bytes / GIB)
    } else {
        format!("{} MiB", bytes / MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let (unified, split) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |dir: &tempfile::TempDir, file: &str, text: &str| {
            std::fs::write(dir.path().join(file), text).unwrap();
        };
        write(
            &unified,
            "memory.events",
            "oom 3\noom_kill 2\noom_group_kill 0\n",
        );
        write(&unified, "memory.max", "1073741824\n");
        write(&split, "memory.oom_control", "under_oom 0\noom_kill 5\n");
        write(&split, "memory.limit_in_bytes", "67108864\n");
        write(&split, "memory.max_usage_in_bytes", "67108000\n");
        let unified = [unified.path().to_owned()];
        let split = [PathBuf::from("/nonexistent"), split.path().to_owned()];
        assert_eq!((count_kills(&unified), count_kills(&split)), (2, 5));
        assert_eq!(describe(&unified, None), "out of memory: limit 1 GiB");
        assert_eq!(
            describe(&split, None),
            "out of memory: limit 64 MiB, peak 63 MiB"
        );
        assert_eq!(
            (count_kills(&[]), describe(&[], None).as_str()),
            (0, "out of memory")
        );
    }
}
