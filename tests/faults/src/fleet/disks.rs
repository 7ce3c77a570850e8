//! Small separate disks for agents and Postgres, which can be filled and emptied. Mounting a disk
//! needs root. Without root, faults of disks are reported as skipped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::plan::{Agent, Disk};

/// Size of the disk of an agent.
const AGENT_MIB: u32 = 48;
/// Size of the disk of Postgres. It has space for the journal and tables of a run, with a reserve.
const POSTGRES_MIB: u32 = 640;
/// Name of the file that fills a disk.
const FILLER: &str = "filler";

pub struct Disks {
    folders: BTreeMap<Disk, PathBuf>,
    /// Why there are no separate disks. `None` if each folder is on its own disk.
    unavailable_reason: Option<&'static str>,
}

impl Disks {
    /// Creates folders for all disks below `dir`, each on a separate disk if that is possible.
    pub fn mount(dir: &Path) -> anyhow::Result<Self> {
        let is_root = nix::unistd::geteuid().is_root();
        let agents = Agent::all().map(|agent| (Disk::Agent(agent), agent.to_string()));
        let disks_with_names = agents.chain([(Disk::Postgres, "pg".to_owned())]);
        let mut disks = Self {
            folders: BTreeMap::new(),
            unavailable_reason: (!is_root).then_some("only root can mount a small disk"),
        };
        for (disk, name) in disks_with_names {
            let folder = dir.join(name);
            fs::create_dir_all(&folder)?;
            if disks.unavailable_reason.is_none() && !mount_tmpfs(&folder, disk) {
                disks.unavailable_reason = Some("no disk can be mounted here");
            }
            disks.folders.insert(disk, folder);
        }
        Ok(disks)
    }

    pub fn folder(&self, disk: Disk) -> &Path {
        &self.folders[&disk]
    }

    /// Fills the disk.
    ///
    /// # Errors
    /// Returns the reason if this is not possible on this machine.
    pub fn fill(&self, disk: Disk) -> Result<(), &'static str> {
        if let Some(reason) = self.unavailable_reason {
            return Err(reason);
        }
        let path = self.folder(disk).join(FILLER);
        if path.exists() {
            return Err("it is full already");
        }
        let file = fs::File::create(path);
        let Ok(mut file) = file else {
            return Err("no file can be created on its disk");
        };
        for size in [1 << 20, 4 << 10] {
            let block = vec![0_u8; size];
            while file.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    pub fn empty(&self, disk: Disk) -> anyhow::Result<()> {
        match fs::remove_file(self.folder(disk).join(FILLER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Unmounts all disks. With `keep`, their contents stay in the folders.
    pub fn unmount(&self, keep: bool) -> anyhow::Result<()> {
        if self.unavailable_reason.is_some() {
            return Ok(());
        }
        for (disk, folder) in &self.folders {
            self.empty(*disk)?;
            let copy = folder.with_extension("kept");
            if keep {
                run("cp", &["-a", path_text(folder), path_text(&copy)])?;
            }
            run("umount", &["-l", path_text(folder)])?;
            if keep {
                fs::remove_dir(folder)?;
                fs::rename(&copy, folder)?;
            }
        }
        Ok(())
    }
}

fn mount_tmpfs(folder: &Path, disk: Disk) -> bool {
    let size = match disk {
        Disk::Agent(_) => AGENT_MIB,
        Disk::Postgres => POSTGRES_MIB,
    };
    let options = format!("size={size}m,mode=755");
    run(
        "mount",
        &["-t", "tmpfs", "-o", &options, "tmpfs", path_text(folder)],
    )
    .is_ok()
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let error_text = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {arguments:?}: {}", error_text.trim());
    }
    Ok(())
}
