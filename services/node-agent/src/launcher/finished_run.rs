//! How a run ended, and its report.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use hayward_job_converter_api::signals::TaskSignal;
use hayward_job_converter_api::tasks::{EndCause, RunEnd, TaskReport};
use hayward_job_converter_api::usage::RunUsage;
use hayward_node_agent_domain::StopReason;

/// How a run ended.
pub struct FinishedRun {
    pub status: ExitStatus,
    /// Why it was stopped. `None` if it ended by itself.
    pub stop: Option<StopReason>,
    pub is_killed: bool,
    pub trusts_exit: bool,
    pub stop_signal: TaskSignal,
    pub time_limit_ms: Option<u64>,
    /// Set if the memory limit was reached.
    pub memory_message: Option<String>,
    pub usage: RunUsage,
    pub output: String,
}

impl FinishedRun {
    /// Fills in the report. The stop wins over the exit status, because programs that end politely
    /// return 0 without having done their work (TC-115).
    pub fn write_to(self, report: &mut TaskReport) {
        report.exit_code = self.status.code();
        report.signal = self.status.signal();
        let stop = self
            .stop
            .filter(|_| !(self.trusts_exit && self.status.success()));
        let end = match (stop, &self.memory_message) {
            (Some(StopReason::TimeLimit), _) => Some((EndCause::TimeLimit, self.limit_message())),
            (Some(_), _) => {
                report.interrupted = true;
                None
            }
            (None, Some(message)) => Some((EndCause::OutOfMemory, message.clone())),
            (None, None) => None,
        };
        report.end = end.map(|(cause, message)| RunEnd {
            cause,
            message: Some(message),
        });
        report.usage = Some(self.usage);
        report.output = self.output;
    }

    fn limit_message(&self) -> String {
        let limit = self.time_limit_ms.map_or_else(String::new, format_limit);
        let kill = if self.is_killed { ", then SIGKILL" } else { "" };
        let memory = self.memory_message.as_deref();
        let memory = memory.map_or_else(String::new, |text| format!("; it was also {text}"));
        format!(
            "reached its time limit of {limit}; SIG{} was sent{kill}{memory}",
            self.stop_signal
        )
    }
}

fn format_limit(ms: u64) -> String {
    match ms {
        ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}
