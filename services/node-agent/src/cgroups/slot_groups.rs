//! Cgroups of a process that runs tasks: one for its supervisor and runner, and one for each slot.
//!
//! The limits of the job are on the folder `work` with all slots. The runner has limits of its own,
//! so what it needs is not taken from the user (TC-45).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hayward_vocabulary::{AllocationId, Size};
use serde::{Deserialize, Serialize};

use super::usage::PEAK_FILES;
use super::{CONTROLLERS, Cgroups, Limits, create_dir};

const MIB: u64 = 1 << 20;
/// Memory of a supervisor and its runner.
const RUNNER_MEMORY_BYTES: u64 = 96 * MIB;
/// Processes and threads of a supervisor and its runner, besides a thread for each slot.
const RUNNER_PROCESSES: u64 = 64;
/// Memory and processes for the launcher of a slot, which are added to those of the job.
const LAUNCHER_MEMORY_BYTES: u64 = 2 * MIB;
const LAUNCHER_PROCESSES: u64 = 8;

/// Limits of a process that runs tasks.
#[derive(Debug, Clone, Copy)]
pub struct SlotLimits<'a> {
    pub size: &'a Size,
    /// Maximum number of processes of all tasks.
    pub processes: u64,
    pub slots: u32,
    /// Account of the tasks, which may reset the peak of their memory.
    pub uid: Option<u32>,
}

/// Cgroups of a process that runs tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotGroups {
    pub runner: Vec<PathBuf>,
    /// Cgroups of each slot.
    pub slots: Vec<Vec<PathBuf>>,
}

impl Cgroups {
    /// Creates the cgroups of a process that runs tasks.
    pub fn create_with_slots(
        &self,
        id: &AllocationId,
        limits: &SlotLimits<'_>,
    ) -> io::Result<SlotGroups> {
        let groups = self.paths(id);
        groups.iter().try_for_each(|group| create_dir(group))?;
        let runner = self.create_below(&groups, "runner")?;
        let slot_count = u64::from(limits.slots);
        self.write_limits(
            &runner,
            &Limits {
                memory_bytes: RUNNER_MEMORY_BYTES,
                cpu_milli: 0,
                processes: RUNNER_PROCESSES + slot_count,
            },
        )?;
        let work = self.create_below(&groups, "work")?;
        let memory_bytes = match limits.size.memory_bytes {
            0 => 0,
            bytes => bytes.saturating_add(LAUNCHER_MEMORY_BYTES * slot_count),
        };
        self.write_limits(
            &work,
            &Limits {
                memory_bytes,
                cpu_milli: limits.size.cpu_milli,
                processes: limits
                    .processes
                    .saturating_add(LAUNCHER_PROCESSES * slot_count),
            },
        )?;
        let slots = (0..limits.slots).map(|slot| {
            let slot = self.create_below(&work, &format!("slot-{slot}"))?;
            slot.iter()
                .try_for_each(|group| permit_reset(group, limits.uid))?;
            Ok(slot)
        });
        let slots = slots.collect::<io::Result<_>>()?;
        Ok(SlotGroups { runner, slots })
    }

    /// Creates a cgroup below each of `parents`.
    fn create_below(&self, parents: &[PathBuf], name: &str) -> io::Result<Vec<PathBuf>> {
        if let Self::Unified(_) = self {
            let enable = CONTROLLERS.map(|controller| format!("+{controller}"));
            for parent in parents {
                fs::write(parent.join("cgroup.subtree_control"), enable.join(" "))?;
            }
        }
        let groups: Vec<PathBuf> = parents.iter().map(|parent| parent.join(name)).collect();
        groups.iter().try_for_each(|group| create_dir(group))?;
        Ok(groups)
    }
}

/// Lets the account reset the peak of the memory before each run.
fn permit_reset(group: &Path, uid: Option<u32>) -> io::Result<()> {
    for file in PEAK_FILES {
        match std::os::unix::fs::chown(group.join(file), uid, None) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SlotLimits<'static> = SlotLimits {
        size: &Size {
            memory_bytes: 100 * MIB,
            cpu_milli: 1500,
            gpu_milli: 0,
            extras: std::collections::BTreeMap::new(),
        },
        processes: 50,
        slots: 2,
        uid: None,
    };

    fn id() -> AllocationId {
        AllocationId::new("alc_1").unwrap()
    }

    fn read(group: &Path, file: &str) -> String {
        fs::read_to_string(group.join(file)).unwrap()
    }

    #[test]
    fn the_limits_of_a_job_are_on_the_folder_of_its_slots() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        let groups = Cgroups::detect(root.path().to_str(), "a");
        let created = groups.create_with_slots(&id(), &LIMITS).unwrap();
        let top = root.path().join("hayward/a.alc_1");
        let work = top.join("work");
        assert_eq!(created.runner, [top.join("runner")]);
        let slots = [vec![work.join("slot-0")], vec![work.join("slot-1")]];
        assert_eq!(created.slots, slots);
        assert_eq!(read(&work, "memory.max"), (104 * MIB).to_string());
        assert_eq!(read(&work, "cpu.max"), "150000 100000");
        assert_eq!(read(&work, "pids.max"), "66");
        assert_eq!(
            read(&top.join("runner"), "memory.max"),
            (96 * MIB).to_string()
        );
        assert_eq!(read(&work, "cgroup.subtree_control"), "+memory +cpu +pids");
        fs::write(created.slots[1][0].join("cgroup.procs"), "42\n").unwrap();
        assert_eq!(groups.members(&id()), [42]);
    }

    #[test]
    fn each_controller_of_version_1_has_its_slots() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["memory", "cpuacct"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        let groups = Cgroups::detect(root.path().to_str(), "a");
        assert_eq!(groups.describe(), "memory", "accounting is no limit");
        let created = groups.create_with_slots(&id(), &LIMITS).unwrap();
        let slot = |controller: &str| {
            let top = root.path().join(controller).join("hayward/a.alc_1");
            top.join("work/slot-1")
        };
        assert_eq!(created.slots[1], [slot("memory"), slot("cpuacct")]);
        assert!(slot("cpuacct").is_dir());
    }
}
