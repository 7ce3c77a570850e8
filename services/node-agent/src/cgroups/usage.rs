//! Cpu time and peak memory of the processes in cgroups.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// Files with the peak of the memory, of version 2 and of version 1.
pub const PEAK_FILES: [&str; 2] = ["memory.peak", "memory.max_usage_in_bytes"];
/// Longest content of a file that is read here.
const MAX_CONTENT: usize = 1024;

/// Cpu time in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user_us: u64,
    pub system_us: u64,
}

/// Version of the cgroups that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// Open files of the cgroups of one slot. They are read for each run.
pub struct UsageFiles {
    cpu: Option<CpuFiles>,
    peak: Option<PeakFile>,
}

enum CpuFiles {
    /// `cpu.stat` of version 2, in microseconds.
    Stat(File),
    /// Files of version 1, in nanoseconds.
    Split { user: File, system: File },
}

struct PeakFile {
    file: File,
    can_reset: bool,
}

impl UsageFiles {
    pub fn open(groups: &[PathBuf]) -> Self {
        let open = |name: &str| {
            let mut paths = groups.iter().map(|group| group.join(name));
            paths.find_map(|path| File::open(path).ok())
        };
        let split = || {
            Some(CpuFiles::Split {
                user: open("cpuacct.usage_user")?,
                system: open("cpuacct.usage_sys")?,
            })
        };
        // The file has other fields in version 1, where the other files exist.
        let cpu = split().or_else(|| open("cpu.stat").map(CpuFiles::Stat));
        let mut peak_paths = groups
            .iter()
            .flat_map(|group| PEAK_FILES.iter().map(|name| group.join(name)));
        Self {
            cpu,
            peak: peak_paths.find_map(|path| PeakFile::open(&path)),
        }
    }

    pub fn version(&self) -> Option<Version> {
        match &self.cpu {
            Some(CpuFiles::Stat(_)) => Some(Version::Two),
            Some(CpuFiles::Split { .. }) => Some(Version::One),
            None => None,
        }
    }

    /// Returns the cpu time since the groups were created.
    pub fn cpu_times(&self) -> Option<CpuTimes> {
        match self.cpu.as_ref()? {
            CpuFiles::Stat(file) => parse_stat(&read(file)?),
            CpuFiles::Split { user, system } => Some(CpuTimes {
                user_us: read(user)?.trim().parse::<u64>().ok()? / 1_000,
                system_us: read(system)?.trim().parse::<u64>().ok()? / 1_000,
            }),
        }
    }

    /// Starts to measure the peak again. Returns false if the kernel does not support this.
    pub fn reset_peak(&mut self) -> bool {
        let Some(peak) = &mut self.peak else {
            return false;
        };
        peak.can_reset = peak.can_reset && peak.file.write_at(b"0", 0).is_ok();
        peak.can_reset
    }

    /// Returns the peak in bytes since the last reset, else since the groups were created.
    pub fn peak_bytes(&self) -> Option<u64> {
        read(&self.peak.as_ref()?.file)?.trim().parse().ok()
    }
}

impl PeakFile {
    fn open(path: &PathBuf) -> Option<Self> {
        let writable = OpenOptions::new().read(true).write(true).open(path);
        let can_reset = writable.is_ok();
        let file = writable.or_else(|_| File::open(path)).ok()?;
        Some(Self { file, can_reset })
    }
}

/// Reads a file from its beginning, as the kernel makes it at this time.
fn read(file: &File) -> Option<String> {
    let mut content = [0; MAX_CONTENT];
    let length = file.read_at(&mut content, 0).ok()?;
    String::from_utf8(content[..length].to_vec()).ok()
}

fn parse_stat(text: &str) -> Option<CpuTimes> {
    let field = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
        values.find_map(|value| value.trim().parse().ok())
    };
    Some(CpuTimes {
        user_us: field("user_usec ")?,
        system_us: field("system_usec ")?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn both_versions_give_cpu_time_and_peak() {
        let (unified, split) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let stat = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 0\n";
        fs::write(unified.path().join("cpu.stat"), stat).unwrap();
        fs::write(unified.path().join("memory.peak"), "4096\n").unwrap();
        fs::write(split.path().join("cpuacct.usage_user"), "20500\n").unwrap();
        fs::write(split.path().join("cpuacct.usage_sys"), "10999\n").unwrap();
        fs::write(split.path().join("cpu.stat"), "nr_periods 0\n").unwrap();
        fs::write(split.path().join("memory.max_usage_in_bytes"), "8192\n").unwrap();
        let expected = CpuTimes {
            user_us: 20,
            system_us: 10,
        };
        for (dir, version, peak) in [(unified, Version::Two, 4096), (split, Version::One, 8192)] {
            let mut files = UsageFiles::open(&[dir.path().to_owned()]);
            assert_eq!(files.version(), Some(version));
            assert_eq!(files.cpu_times(), Some(expected));
            assert_eq!(files.peak_bytes(), Some(peak));
            assert!(files.reset_peak());
        }
    }

    #[test]
    fn without_cgroups_nothing_is_known() {
        let mut files = UsageFiles::open(&[]);
        assert_eq!((files.cpu_times(), files.peak_bytes()), (None, None));
        assert!(!files.reset_peak() && files.version().is_none());
    }
}
