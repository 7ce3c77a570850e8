//! Usage of runs: cpu time and memory (TC-161).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Usage of one run. Its wall time is the duration of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunUsage {
    /// Cpu time of programs, in microseconds.
    pub user_us: u64,
    /// Cpu time of the kernel for the programs, in microseconds.
    pub system_us: u64,
    /// Largest memory of a single process, in bytes.
    pub max_rss_bytes: u64,
    /// Largest memory of all processes together with their page cache, in bytes. The limit applies
    /// to it. Absent where the kernel does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    pub source: UsageSource,
}

/// Source of the usage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// Control groups of version 2. All processes of the run are counted.
    Cgroup2,
    /// Control groups of version 1. All processes of the run are counted.
    Cgroup1,
    /// The end of the program. Only processes that were waited for are counted.
    Wait4,
    #[serde(other)]
    Unknown,
}

impl UsageSource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroup2 => "cgroup2",
            Self::Cgroup1 => "cgroup1",
            Self::Wait4 => "wait4",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the output of [`UsageSource::name`].
    pub fn from_name(name: &str) -> Self {
        let all = [Self::Cgroup2, Self::Cgroup1, Self::Wait4];
        let found = all.into_iter().find(|source| source.name() == name);
        found.unwrap_or(Self::Unknown)
    }
}

/// Usage of all counted runs of a job. Runs that were not measured are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageSummary {
    /// Measured runs.
    pub runs: u64,
    /// Cpu time of all runs, in microseconds.
    pub cpu_us: u64,
    /// Wall time of all runs, in microseconds.
    pub wall_us: u64,
    /// Memory of a run, in bytes.
    pub memory_bytes: AmountSummary,
    /// Wall time of a run, in microseconds.
    pub run_us: AmountSummary,
    /// Requested thousandths of a cpu for each slot. 0: not counted.
    pub requested_cpu_milli: u64,
    /// Requested memory of the process, in bytes. Its slots share it.
    pub requested_memory_bytes: u64,
}

/// Median, 95th percentile and maximum. The first two are at most 9 % too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AmountSummary {
    pub median: u64,
    pub p95: u64,
    pub max: u64,
}

impl RunUsage {
    /// Returns the cpu time in microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.user_us.saturating_add(self.system_us)
    }

    /// Returns the memory to compare with the limit, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.peak_memory_bytes.unwrap_or(self.max_rss_bytes)
    }
}
