//! Measures what each run of a slot uses (TC-161).

use std::path::PathBuf;
use std::time::Duration;

use hayward_job_converter_api::usage::{RunUsage, UsageSource};
use wait4::ResourceUsage;

use crate::cgroups::usage::{CpuTimes, UsageFiles, Version};

pub struct UsageMeter {
    files: UsageFiles,
    at_begin: Readings,
}

/// Readings of the cgroups before a run.
#[derive(Default)]
struct Readings {
    cpu: Option<CpuTimes>,
    peak: PeakBefore,
}

/// Peak of the memory before a run.
#[derive(Default)]
enum PeakBefore {
    /// It is measured from the begin of the run.
    Reset,
    /// Peak of all earlier runs, in bytes.
    Known(u64),
    #[default]
    Unknown,
}

impl UsageMeter {
    pub fn new(groups: &[PathBuf]) -> Self {
        Self {
            files: UsageFiles::open(groups),
            at_begin: Readings::default(),
        }
    }

    pub fn begin(&mut self) {
        let peak = if self.files.reset_peak() {
            PeakBefore::Reset
        } else {
            self.files
                .peak_bytes()
                .map_or(PeakBefore::Unknown, PeakBefore::Known)
        };
        self.at_begin = Readings {
            cpu: self.files.cpu_times(),
            peak,
        };
    }

    /// Returns the usage since the begin. `waited` is that of the program and the processes that it
    /// waited for.
    pub fn end(&self, waited: &ResourceUsage) -> RunUsage {
        let peak = self.files.peak_bytes();
        let peak_memory_bytes = match self.at_begin.peak {
            PeakBefore::Reset => peak,
            // A peak that did not grow belongs to an earlier run.
            PeakBefore::Known(before) => peak.filter(|peak| *peak > before),
            PeakBefore::Unknown => None,
        };
        let cpu = self.at_begin.cpu.zip(self.files.cpu_times());
        let (user_us, system_us, source) = match cpu.zip(self.files.version()) {
            Some(((before, after), version)) => (
                after.user_us.saturating_sub(before.user_us),
                after.system_us.saturating_sub(before.system_us),
                match version {
                    Version::One => UsageSource::Cgroup1,
                    Version::Two => UsageSource::Cgroup2,
                },
            ),
            None => (
                micros(waited.utime),
                micros(waited.stime),
                UsageSource::Wait4,
            ),
        };
        RunUsage {
            user_us,
            system_us,
            max_rss_bytes: waited.maxrss,
            peak_memory_bytes,
            source,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn waited() -> ResourceUsage {
        ResourceUsage {
            utime: Duration::from_millis(3),
            stime: Duration::from_millis(4),
            maxrss: 512,
        }
    }

    #[test]
    fn without_cgroups_the_end_of_the_program_is_the_source() {
        let mut meter = UsageMeter::new(&[]);
        meter.begin();
        let usage = meter.end(&waited());
        assert_eq!((usage.user_us, usage.system_us), (3_000, 4_000));
        assert_eq!(
            (usage.memory_bytes(), usage.source),
            (512, UsageSource::Wait4)
        );
    }

    #[test]
    fn cpu_time_is_the_difference_over_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        write("cpu.stat", "user_usec 100\nsystem_usec 50\n");
        let mut meter = UsageMeter::new(&[dir.path().to_owned()]);
        meter.begin();
        write("cpu.stat", "user_usec 1100\nsystem_usec 70\n");
        let usage = meter.end(&waited());
        assert_eq!((usage.user_us, usage.system_us), (1_000, 20));
        assert_eq!(usage.source, UsageSource::Cgroup2);
        assert_eq!(usage.peak_memory_bytes, None);
    }
}
