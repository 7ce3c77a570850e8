//! Control groups by plain file writes, of either version (S18).
//!
//! They are made below a root: the agent's own group, or one that is set. What limits there are
//! not, is said in [`Groups::describe`], which becomes a label of the node; nothing is limited or
//! left unlimited in silence.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hayward_vocabulary::{AllocationId, Size};

use crate::files::checksum;

const MOUNT: &str = "/sys/fs/cgroup";
/// The folder below the root, so that ours are told from others.
const FOLDER: &str = "hayward";
const PERIOD_US: u64 = 100_000;
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// Whose groups they are: agents may share a root, and each ends only what is its own. Named after
/// the agent's directory.
pub fn owner(state_dir: &Path) -> String {
    let name = state_dir.as_os_str().as_encoded_bytes();
    format!("{:016x}", checksum(name))
}

/// The folder for groups of one controller, below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    folder: PathBuf,
    owner: String,
}

impl Place {
    fn below(root: &Path, owner: &str) -> Self {
        Self {
            folder: root.join(FOLDER),
            owner: owner.to_owned(),
        }
    }

    fn of(&self, id: &AllocationId) -> PathBuf {
        self.folder.join(format!("{}.{id}", self.owner))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// One tree.
    Unified(Place),
    /// A tree per controller.
    Split(Vec<(&'static str, Place)>),
    Off {
        reason: String,
    },
}

impl Groups {
    /// Looks at what the machine allows. `root`: absent for the agent's own group, `none` for no
    /// groups, else a directory: a version 2 group, or a folder with one folder per controller.
    /// `owner` is who makes them.
    pub fn detect(root: Option<&str>, owner: &str) -> Self {
        let found = match root {
            Some("none") => return Self::off("switched off"),
            Some(root) if !root.is_empty() => Self::at(Path::new(root), owner),
            _ => Self::own(Path::new(MOUNT), &read("/proc/self/cgroup"), owner),
        };
        found
            .prepared()
            .unwrap_or_else(|error| Self::off(format!("not available: {error}")))
    }

    fn off(reason: impl Into<String>) -> Self {
        Self::Off {
            reason: reason.into(),
        }
    }

    fn at(root: &Path, owner: &str) -> Self {
        if root.join("cgroup.controllers").exists() {
            return Self::Unified(Place::below(root, owner));
        }
        Self::split(owner, |controller| Some(root.join(controller)))
    }

    /// `membership` is what the kernel says of this process: `4:memory:/some/group`.
    fn own(mount: &Path, membership: &str, owner: &str) -> Self {
        let group = |wanted: &str| {
            membership.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let ours = controllers
                    .split(',')
                    .any(|controller| controller == wanted);
                ours.then(|| path.trim_start_matches('/').to_owned())
            })
        };
        if mount.join("cgroup.controllers").exists() {
            let root = mount.join(group("").unwrap_or_default());
            return Self::Unified(Place::below(&root, owner));
        }
        Self::split(owner, |controller| {
            Some(mount.join(controller).join(group(controller)?))
        })
    }

    fn split(owner: &str, root: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let places = CONTROLLERS.iter().filter_map(|controller| {
            let root = root(controller)?;
            root.is_dir()
                .then(|| (*controller, Place::below(&root, owner)))
        });
        Self::Split(places.collect())
    }

    /// Makes the folders, or says why they cannot be made.
    fn prepared(self) -> io::Result<Self> {
        match &self {
            Self::Unified(Place { folder, .. }) => {
                // Controllers must be handed down level by level.
                let enable = CONTROLLERS
                    .map(|controller| format!("+{controller}"))
                    .join(" ");
                if let Some(parent) = folder.parent() {
                    fs::write(parent.join("cgroup.subtree_control"), &enable)?;
                }
                make(folder)?;
                fs::write(folder.join("cgroup.subtree_control"), &enable)?;
            }
            Self::Split(places) if places.is_empty() => {
                return Err(io::Error::other("no controller is mounted"));
            }
            Self::Split(places) => places
                .iter()
                .try_for_each(|(_, place)| make(&place.folder))?,
            Self::Off { .. } => {}
        }
        Ok(self)
    }

    /// For people: which limits hold.
    pub fn describe(&self) -> String {
        match self {
            Self::Unified(_) => CONTROLLERS.join("-"),
            Self::Split(places) => places
                .iter()
                .map(|(controller, _)| *controller)
                .collect::<Vec<_>>()
                .join("-"),
            Self::Off { .. } => "none".to_owned(),
        }
    }

    /// Moves the agent to where it is already, in the background.
    ///
    /// The first move into a group after a while waits until every processor was seen idle, about
    /// 10 ms; asked for when a launch begins, that wait is over when the supervisor moves in.
    pub fn stir(&self) {
        let Some(place) = self.first() else {
            return;
        };
        let Some(home) = place.folder.parent().map(Path::to_owned) else {
            return;
        };
        let pid = std::process::id();
        std::thread::spawn(move || {
            let members = read(home.join("cgroup.procs"));
            // A root that was set is not where the agent is, and stays so.
            if members.lines().any(|member| member.parse() == Ok(pid)) {
                let _ = join(&home, pid);
            }
        });
    }

    /// The groups of one container, whether or not they are there.
    pub fn of(&self, id: &AllocationId) -> Vec<PathBuf> {
        match self {
            Self::Unified(place) => vec![place.of(id)],
            Self::Split(places) => places.iter().map(|(_, place)| place.of(id)).collect(),
            Self::Off { .. } => Vec::new(),
        }
    }

    /// Makes the groups of a container with its limits.
    pub fn create(&self, id: &AllocationId, size: &Size, pids: u64) -> io::Result<Vec<PathBuf>> {
        let groups = self.of(id);
        groups.iter().try_for_each(|group| make(group))?;
        let quota = size.cpu_milli * PERIOD_US / 1000;
        match self {
            Self::Unified(_) => {
                let group = &groups[0];
                limit(group, "memory.max", size.memory_bytes)?;
                fs::write(group.join("pids.max"), pids.to_string())?;
                if quota > 0 {
                    fs::write(group.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
                }
            }
            Self::Split(places) => {
                for ((controller, _), group) in places.iter().zip(&groups) {
                    match *controller {
                        "memory" => limit(group, "memory.limit_in_bytes", size.memory_bytes)?,
                        "pids" => limit(group, "pids.max", pids)?,
                        _ => limit(group, "cpu.cfs_quota_us", quota)?,
                    }
                }
            }
            Self::Off { .. } => {}
        }
        Ok(groups)
    }

    /// Whether anything counts the processes of a container.
    pub fn counts_processes(&self) -> bool {
        match self {
            Self::Unified(_) => true,
            Self::Split(places) => places.iter().any(|(controller, _)| *controller == "pids"),
            Self::Off { .. } => false,
        }
    }

    fn first(&self) -> Option<&Place> {
        match self {
            Self::Unified(place) => Some(place),
            Self::Split(places) => places.first().map(|(_, place)| place),
            Self::Off { .. } => None,
        }
    }

    /// Containers of this owner that have a group here.
    pub fn containers(&self) -> Vec<AllocationId> {
        let Some(place) = self.first() else {
            return Vec::new();
        };
        let names = fs::read_dir(&place.folder).into_iter().flatten().flatten();
        let id = |name: &str| {
            let (owner, id) = name.split_once('.')?;
            AllocationId::new(id).ok().filter(|_| owner == place.owner)
        };
        names
            .filter_map(|entry| id(entry.file_name().to_str()?))
            .collect()
    }

    pub fn remove(&self, id: &AllocationId) {
        for group in self.of(id) {
            // A group that still holds somebody stays; the next agent tries again.
            let _ = fs::remove_dir(group);
        }
    }

    /// Members of a container's groups: whoever is in there belongs to it (R10).
    pub fn members(&self, id: &AllocationId) -> Vec<u32> {
        let files = self
            .of(id)
            .into_iter()
            .map(|group| read(group.join("cgroup.procs")));
        let mut members: Vec<u32> = files
            .flat_map(|text| text.lines().flat_map(str::parse).collect::<Vec<_>>())
            .collect();
        members.sort_unstable();
        members.dedup();
        members
    }
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Zero means without limit.
fn limit(group: &Path, file: &str, amount: u64) -> io::Result<()> {
    if amount == 0 {
        Ok(())
    } else {
        fs::write(group.join(file), amount.to_string())
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Puts a process into a group.
pub fn join(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

/// Whether the kernel ended something in this group for its memory.
pub fn ran_out_of_memory(group: &Path) -> bool {
    ["memory.events", "memory.oom_control"].iter().any(|file| {
        let text = read(group.join(file));
        text.lines().any(|line| {
            line.strip_prefix("oom_kill ")
                .is_some_and(|count| count.trim() != "0")
        })
    })
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
    fn version_2_is_one_tree() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        let groups = Groups::detect(root.path().to_str(), "a");
        assert_eq!(groups.describe(), "memory-cpu-pids");
        let made = groups.create(&id(), &size(), 7).unwrap();
        let folder = root.path().join("hayward");
        assert_eq!(made, [folder.join("a.alc_1")]);
        assert_eq!(read(made[0].join("memory.max")), "4096");
        assert_eq!(read(made[0].join("cpu.max")), "150000 100000");
        assert_eq!(read(made[0].join("pids.max")), "7");
        assert_eq!(
            read(folder.join("cgroup.subtree_control")),
            "+memory +cpu +pids"
        );
        join(&made[0], 42).unwrap();
        assert_eq!(groups.members(&id()), [42]);
        assert_eq!(groups.containers(), [id()]);
        let other = Groups::detect(root.path().to_str(), "b");
        assert!(
            other.containers().is_empty() && other.members(&id()).is_empty(),
            "R10"
        );
    }

    #[test]
    fn version_1_is_a_tree_per_controller() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["memory", "pids"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        let groups = Groups::detect(root.path().to_str(), "a");
        assert_eq!(groups.describe(), "memory-pids");
        let made = groups.create(&id(), &size(), 7).unwrap();
        assert_eq!(read(made[0].join("memory.limit_in_bytes")), "4096");
        assert_eq!(read(made[1].join("pids.max")), "7");
        fs::write(
            made[0].join("memory.oom_control"),
            "under_oom 0\noom_kill 2\n",
        )
        .unwrap();
        assert!(ran_out_of_memory(&made[0]) && !ran_out_of_memory(&made[1]));
    }

    #[test]
    fn the_own_group_is_read_from_the_kernel() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("memory/a/b")).unwrap();
        let groups = Groups::own(mount.path(), "4:memory:/a/b\n1:cpu,cpuacct:/\n", "a");
        let place = Place::below(&mount.path().join("memory/a/b"), "a");
        assert_eq!(groups, Groups::Split(vec![("memory", place)]));
        fs::write(mount.path().join("cgroup.controllers"), "").unwrap();
        let groups = Groups::own(mount.path(), "0::/x\n", "a");
        assert_eq!(
            groups,
            Groups::Unified(Place::below(&mount.path().join("x"), "a"))
        );
    }

    #[test]
    fn where_nothing_can_be_made_it_is_said() {
        let groups = Groups::detect(Some("/nonexistent"), "a");
        assert!(matches!(&groups, Groups::Off { reason } if reason.contains("no controller")));
        assert_eq!(groups.describe(), "none");
    }
}
