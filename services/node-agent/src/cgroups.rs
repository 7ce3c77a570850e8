//! Cgroups of version 1 or 2, managed by plain file writes (S18).
//!
//! The cgroups of containers are created below a root: the cgroup of the agent, or a configured
//! one. They limit memory, cpu and the number of processes of each container.

pub mod memory_limit;
mod probe;
pub mod slot_groups;
pub mod usage;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hayward_vocabulary::{AllocationId, Size};

use crate::checksum::checksum;

const MOUNT: &str = "/sys/fs/cgroup";
/// Folder below the root for the groups of all agents.
const AGENTS_FOLDER: &str = "hayward";
/// Period of a cpu limit, in microseconds: the default of the kernel.
const PERIOD_US: u64 = 100_000;
/// Controllers that enforce limits.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
/// Controller of version 1 that only counts cpu time.
const CPU_ACCOUNTING: &str = "cpuacct";

/// Returns the prefix of the cgroups of one agent: a hash of the agent's state directory. The
/// prefix is needed because agents may share a root.
pub fn owner_prefix(state_dir: &Path) -> String {
    let name = state_dir.as_os_str().as_encoded_bytes();
    format!("{:016x}", checksum(name))
}

/// The folder for groups of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFolder {
    folder: PathBuf,
    owner: String,
}

impl CgroupFolder {
    fn new(root: &Path, owner: &str) -> Self {
        Self {
            folder: root.join(AGENTS_FOLDER),
            owner: owner.to_owned(),
        }
    }

    fn path(&self, id: &AllocationId) -> PathBuf {
        self.folder.join(format!("{}.{id}", self.owner))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroups {
    /// One tree for all controllers, as in version 2.
    Unified(CgroupFolder),
    /// One tree per controller, as in version 1.
    Split(Vec<(&'static str, CgroupFolder)>),
    Off {
        reason: String,
    },
}

impl Cgroups {
    /// Detects what the node supports. `None` as `root` selects the cgroup of the agent, and `none`
    /// disables cgroups. Any other value is the path of a version 2 cgroup, or of a folder with one
    /// folder per version 1 controller.
    pub fn detect(root: Option<&str>, owner: &str) -> Self {
        let cgroups = match root {
            Some("none") => return Self::disabled("switched off"),
            Some(root) if !root.is_empty() => Self::for_root(Path::new(root), owner),
            _ => Self::for_agent(Path::new(MOUNT), &read("/proc/self/cgroup"), owner),
        };
        cgroups
            .prepare()
            .unwrap_or_else(|error| Self::disabled(format!("not available: {error}")))
            .that_work()
    }

    fn disabled(reason: impl Into<String>) -> Self {
        Self::Off {
            reason: reason.into(),
        }
    }

    fn for_root(root: &Path, owner: &str) -> Self {
        if root.join("cgroup.controllers").exists() {
            return Self::Unified(CgroupFolder::new(root, owner));
        }
        Self::for_controllers(owner, |controller| Some(root.join(controller)))
    }

    /// Returns the cgroups of the agent. `membership` is the text of `/proc/self/cgroup`. A line of
    /// version 1 is `4:memory:/some/group`. The line of version 2 names no controller: `0::/group`.
    fn for_agent(mount: &Path, membership: &str, owner: &str) -> Self {
        let group_of = |controller_name: &str| {
            membership.lines().find_map(|line| {
                let (_, fields) = line.split_once(':')?;
                let (controllers, path) = fields.split_once(':')?;
                let matches = controllers
                    .split(',')
                    .any(|controller| controller == controller_name);
                matches.then(|| path.trim_start_matches('/').to_owned())
            })
        };
        if mount.join("cgroup.controllers").exists() {
            let root = mount.join(group_of("").unwrap_or_default());
            return Self::Unified(CgroupFolder::new(&root, owner));
        }
        Self::for_controllers(owner, |controller| {
            Some(mount.join(controller).join(group_of(controller)?))
        })
    }

    fn for_controllers(owner: &str, root: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let folder = |controller: &'static str| {
            let root = root(controller)?;
            root.is_dir()
                .then(|| (controller, CgroupFolder::new(&root, owner)))
        };
        let mut folders: Vec<_> = CONTROLLERS.into_iter().filter_map(folder).collect();
        if !folders.is_empty() {
            folders.extend(folder(CPU_ACCOUNTING));
        }
        Self::Split(folders)
    }

    /// Creates the folders and enables the controllers.
    fn prepare(self) -> io::Result<Self> {
        match &self {
            Self::Unified(CgroupFolder { folder, .. }) => {
                // Controllers must be enabled level by level.
                let enable = CONTROLLERS
                    .map(|controller| format!("+{controller}"))
                    .join(" ");
                if let Some(parent) = folder.parent() {
                    fs::write(parent.join("cgroup.subtree_control"), &enable)?;
                }
                create_dir(folder)?;
                fs::write(folder.join("cgroup.subtree_control"), &enable)?;
            }
            Self::Split(folders) if folders.is_empty() => {
                return Err(io::Error::other("no controller is mounted"));
            }
            Self::Split(folders) => {
                for (_, folder) in folders {
                    // The probe finds a folder that could not be made.
                    let _ = create_dir(&folder.folder);
                }
            }
            Self::Off { .. } => {}
        }
        Ok(self)
    }

    /// Returns the controllers whose limits are in force, as a node label: `memory-cpu-pids`.
    pub fn describe(&self) -> String {
        match self {
            Self::Unified(_) => CONTROLLERS.join("-"),
            Self::Split(folders) => folders
                .iter()
                .map(|(controller, _)| *controller)
                .filter(|controller| *controller != CPU_ACCOUNTING)
                .collect::<Vec<_>>()
                .join("-"),
            Self::Off { .. } => "none".to_owned(),
        }
    }

    /// Moves the agent into its current cgroup, in the background.
    ///
    /// The first move after a while waits about 10 ms for an RCU grace period of the kernel. A
    /// launch calls this function first, so that the wait is over when the supervisor joins its
    /// cgroup.
    pub fn warm_up(&self) {
        let Some(folder) = self.first_folder() else {
            return;
        };
        let Some(current) = folder.folder.parent().map(Path::to_owned) else {
            return;
        };
        let pid = std::process::id();
        std::thread::spawn(move || {
            let members = read(current.join("cgroup.procs"));
            // With a configured root, the agent may be elsewhere and is not moved.
            if members.lines().any(|member| member.parse() == Ok(pid)) {
                let _ = join(&current, pid);
            }
        });
    }

    /// Returns the paths of the cgroups of one container.
    pub fn paths(&self, id: &AllocationId) -> Vec<PathBuf> {
        match self {
            Self::Unified(folder) => vec![folder.path(id)],
            Self::Split(folders) => folders.iter().map(|(_, folder)| folder.path(id)).collect(),
            Self::Off { .. } => Vec::new(),
        }
    }

    /// Creates the cgroups of a container with its limits.
    pub fn create(&self, id: &AllocationId, size: &Size, pids: u64) -> io::Result<Vec<PathBuf>> {
        let groups = self.paths(id);
        groups.iter().try_for_each(|group| create_dir(group))?;
        self.write_limits(
            &groups,
            &Limits {
                memory_bytes: size.memory_bytes,
                cpu_milli: size.cpu_milli,
                processes: pids,
            },
        )?;
        Ok(groups)
    }

    /// Writes limits into groups that [`Cgroups::paths`] returned, or into groups below them.
    fn write_limits(&self, groups: &[PathBuf], limits: &Limits) -> io::Result<()> {
        let quota = limits.cpu_milli * PERIOD_US / 1000;
        match self {
            Self::Unified(_) => {
                let group = &groups[0];
                write_limit(group, "memory.max", limits.memory_bytes)?;
                fs::write(group.join("pids.max"), limits.processes.to_string())?;
                if quota > 0 {
                    fs::write(group.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
                }
            }
            Self::Split(folders) => {
                for ((controller, _), group) in folders.iter().zip(groups) {
                    match *controller {
                        "memory" => {
                            write_limit(group, "memory.limit_in_bytes", limits.memory_bytes)?;
                        }
                        "pids" => write_limit(group, "pids.max", limits.processes)?,
                        "cpu" => write_limit(group, "cpu.cfs_quota_us", quota)?,
                        _ => {}
                    }
                }
            }
            Self::Off { .. } => {}
        }
        Ok(())
    }

    /// Returns whether a cgroup limits the number of processes.
    pub fn limits_processes(&self) -> bool {
        match self {
            Self::Unified(_) => true,
            Self::Split(folders) => folders.iter().any(|(controller, _)| *controller == "pids"),
            Self::Off { .. } => false,
        }
    }

    fn first_folder(&self) -> Option<&CgroupFolder> {
        match self {
            Self::Unified(folder) => Some(folder),
            Self::Split(folders) => folders.first().map(|(_, folder)| folder),
            Self::Off { .. } => None,
        }
    }

    /// Returns the containers of this agent that have a cgroup.
    pub fn containers(&self) -> Vec<AllocationId> {
        let Some(folder) = self.first_folder() else {
            return Vec::new();
        };
        let entries = fs::read_dir(&folder.folder).into_iter().flatten().flatten();
        let parse_id = |name: &str| {
            let (prefix, id) = name.split_once('.')?;
            AllocationId::new(id)
                .ok()
                .filter(|_| prefix == folder.owner)
        };
        entries
            .filter_map(|entry| parse_id(entry.file_name().to_str()?))
            .collect()
    }

    pub fn remove(&self, id: &AllocationId) {
        for group in self.paths(id) {
            remove_tree(&group);
        }
    }

    /// Returns the processes in the cgroups of a container (R10).
    pub fn members(&self, id: &AllocationId) -> Vec<u32> {
        let mut members = Vec::new();
        for group in self.paths(id) {
            add_members(&group, &mut members);
        }
        members.sort_unstable();
        members.dedup();
        members
    }
}

/// Limits of a cgroup. Zero means unlimited.
struct Limits {
    memory_bytes: u64,
    cpu_milli: u64,
    processes: u64,
}

/// Returns the cgroups directly below a cgroup.
fn subgroups(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

fn add_members(group: &Path, members: &mut Vec<u32>) {
    let text = read(group.join("cgroup.procs"));
    members.extend(text.lines().flat_map(str::parse::<u32>));
    for subgroup in subgroups(group) {
        add_members(&subgroup, members);
    }
}

fn remove_tree(group: &Path) {
    for subgroup in subgroups(group) {
        remove_tree(&subgroup);
    }
    // The removal fails while the cgroup has members. The next agent retries it.
    let _ = fs::remove_dir(group);
}

fn create_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Writes a limit. Zero means unlimited.
fn write_limit(group: &Path, file: &str, amount: u64) -> io::Result<()> {
    if amount == 0 {
        Ok(())
    } else {
        fs::write(group.join(file), amount.to_string())
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Moves a process into a cgroup.
pub fn join(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> AllocationId {
        AllocationId::new("alc_1").unwrap()
    }

    fn size() -> Size {
        Size {
            memory_bytes: 4096,
            cpu_milli: 1500,
            ..Size::default()
        }
    }

    #[test]
    fn version_2_uses_one_tree() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        let groups = Cgroups::detect(root.path().to_str(), "a");
        assert_eq!(groups.describe(), "memory-cpu-pids");
        let created = groups.create(&id(), &size(), 7).unwrap();
        let folder = root.path().join("hayward");
        assert_eq!(created, [folder.join("a.alc_1")]);
        assert_eq!(read(created[0].join("memory.max")), "4096");
        assert_eq!(read(created[0].join("cpu.max")), "150000 100000");
        assert_eq!(read(created[0].join("pids.max")), "7");
        assert_eq!(
            read(folder.join("cgroup.subtree_control")),
            "+memory +cpu +pids"
        );
        join(&created[0], 42).unwrap();
        assert_eq!(groups.members(&id()), [42]);
        assert_eq!(groups.containers(), [id()]);
        let other = Cgroups::detect(root.path().to_str(), "b");
        assert!(
            other.containers().is_empty() && other.members(&id()).is_empty(),
            "cgroups of another agent are not listed (R10)"
        );
    }

    #[test]
    fn version_1_uses_a_tree_per_controller() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["memory", "pids"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        let groups = Cgroups::detect(root.path().to_str(), "a");
        assert_eq!(groups.describe(), "memory-pids");
        let created = groups.create(&id(), &size(), 7).unwrap();
        assert_eq!(read(created[0].join("memory.limit_in_bytes")), "4096");
        assert_eq!(read(created[1].join("pids.max")), "7");
    }

    #[test]
    fn the_cgroup_of_the_agent_is_read_from_proc() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("memory/a/b")).unwrap();
        let groups = Cgroups::for_agent(mount.path(), "4:memory:/a/b\n1:cpu,cpuacct:/\n", "a");
        let folder = CgroupFolder::new(&mount.path().join("memory/a/b"), "a");
        assert_eq!(groups, Cgroups::Split(vec![("memory", folder)]));
        fs::write(mount.path().join("cgroup.controllers"), "").unwrap();
        let groups = Cgroups::for_agent(mount.path(), "0::/x\n", "a");
        assert_eq!(
            groups,
            Cgroups::Unified(CgroupFolder::new(&mount.path().join("x"), "a"))
        );
    }

    #[test]
    fn an_unusable_root_disables_limits_with_a_reason() {
        let groups = Cgroups::detect(Some("/nonexistent"), "a");
        assert!(matches!(&groups, Cgroups::Off { reason } if reason.contains("no controller")));
        assert_eq!(groups.describe(), "none");
    }
}
