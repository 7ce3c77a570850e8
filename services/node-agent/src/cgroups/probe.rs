//! Tries the limits when the agent starts, so that a controller that refuses them is not offered.
//! Otherwise each later launch would fail (TC-46).

use std::fs;
use std::io;
use std::path::Path;

use hayward_vocabulary::{AllocationId, Size};

use super::slot_groups::{SlotGroups, SlotLimits};
use super::{CPU_ACCOUNTING, Cgroups};

const MEMORY_BYTES: u64 = 64 << 20;
const CPU_MILLI: u64 = 500;
const PROCESSES: u64 = 100;
/// Files of limits, and a value that the kernel gives back as it was written. The memory and the
/// processes have those of a launcher added.
const EXPECTED: [(&str, &str); 5] = [
    ("memory.max", "69206016"),
    ("memory.limit_in_bytes", "69206016"),
    ("cpu.max", "50000 100000"),
    ("cpu.cfs_quota_us", "50000"),
    ("pids.max", "108"),
];

impl Cgroups {
    /// Makes cgroups as for a container with one slot, reads the limits back, and removes them.
    /// Returns the controllers that passed.
    pub(super) fn that_work(self) -> Self {
        let Self::Split(folders) = self else {
            return match self.try_limits() {
                Ok(()) => self,
                Err(error) => Self::disabled(format!("not usable: {error}")),
            };
        };
        let mut reasons = Vec::new();
        let mut working = Vec::new();
        for (controller, folder) in folders {
            let alone = Self::Split(vec![(controller, folder.clone())]);
            match alone.try_limits() {
                Ok(()) => working.push((controller, folder)),
                Err(error) => reasons.push(format!("{controller}: {error}")),
            }
        }
        let has_limit = working.iter().any(|(name, _)| *name != CPU_ACCOUNTING);
        if !reasons.is_empty() {
            let reason = reasons.join("; ");
            tracing::warn!(%reason, "some limits of containers cannot be set");
        }
        if has_limit {
            Self::Split(working)
        } else {
            Self::disabled(format!("not usable: {}", reasons.join("; ")))
        }
    }

    fn try_limits(&self) -> io::Result<()> {
        if matches!(self, Self::Off { .. }) {
            return Ok(());
        }
        let id = AllocationId::new("probe").map_err(io::Error::other)?;
        let size = Size {
            memory_bytes: MEMORY_BYTES,
            cpu_milli: CPU_MILLI,
            ..Size::default()
        };
        let limits = SlotLimits {
            size: &size,
            processes: PROCESSES,
            slots: 1,
            uid: None,
        };
        let result = self
            .create_with_slots(&id, &limits)
            .and_then(|groups| check(&groups));
        self.remove(&id);
        for group in self.paths(&id) {
            // A pretended group has files, and is no group of the kernel.
            let _ = fs::remove_dir_all(group);
        }
        result
    }
}

/// Compares the limits of the group with all slots.
fn check(groups: &SlotGroups) -> io::Result<()> {
    for slot in groups.slots.iter().flatten() {
        let Some(work) = slot.parent() else {
            continue;
        };
        for (file, expected) in EXPECTED {
            check_file(&work.join(file), expected)?;
        }
    }
    Ok(())
}

/// Compares a limit, if the group has the file.
fn check_file(path: &Path, expected: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim() == expected => Ok(()),
        Ok(text) => Err(io::Error::other(format!(
            "{} is {:?} where {expected:?} was written",
            path.display(),
            text.trim()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_refuses_its_limit_is_not_offered() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["memory", "pids"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        // No group can be made below a file.
        fs::write(root.path().join("pids/hayward"), "").unwrap();
        let groups = Cgroups::detect(root.path().to_str(), "a");
        assert_eq!(groups.describe(), "memory");
        assert!(groups.containers().is_empty(), "the probe leaves nothing");
        fs::remove_dir_all(root.path().join("memory/hayward")).unwrap();
        fs::write(root.path().join("memory/hayward"), "").unwrap();
        let groups = Cgroups::detect(root.path().to_str(), "a");
        let Cgroups::Off { reason } = groups else {
            panic!("{groups:?}");
        };
        assert!(
            reason.contains("memory: ") && reason.contains("pids: "),
            "{reason}"
        );
    }

    #[test]
    fn a_limit_that_reads_back_as_another_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pids.max");
        assert!(
            check_file(&file, "108").is_ok(),
            "another version has no such file"
        );
        fs::write(&file, "108\n").unwrap();
        assert!(check_file(&file, "108").is_ok());
        fs::write(&file, "max\n").unwrap();
        let message = check_file(&file, "108").unwrap_err().to_string();
        assert!(
            message.contains("is \"max\" where \"108\" was written"),
            "{message}"
        );
    }
}
