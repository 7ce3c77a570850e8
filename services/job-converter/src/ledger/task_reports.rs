//! Records the reports of task runners: how each run ended, and which row stores it.

use hayward_job_converter_api::tasks::{EndCause, LeaseRequest, OUTPUT_LIMIT, TaskReport};
use hayward_job_converter_api::usage::RunUsage;
use hayward_job_converter_domain::{Leased, ReportEffect, RetryPolicy, RunAmounts, RunResult};
use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::AllocationId;
use uuid::Uuid;

use super::timeline::replace_nul;
use crate::metrics;
use crate::store::Rows;
use crate::store::tasks::{AttemptRow, OutcomeRow};
use crate::work::retry_policy::reported_failure;
use crate::work::run_end::{RunFacts, describe_run_end};
use crate::work::{FailedTask, Job, Work};

/// Maximum length of the stored message about the end of a run, in bytes.
const MESSAGE_LIMIT: usize = 1_024;

/// Largest stored time or amount of one run: 285 years, or 8 PiB.
const MAX_AMOUNT: u64 = 1 << 53;

/// Changes that the reports of one request made.
#[derive(Default)]
pub struct ReportChanges {
    /// Whether a lease row must be written.
    pub lease: bool,
    /// Whether an attempt was counted.
    pub progress: bool,
    /// Whether at least one task waits again.
    pub waiting: bool,
    /// Other processes that lost the lease of a reported task.
    pub other_holders: Vec<AllocationId>,
}

/// Reports of one request about the tasks of one process.
pub struct Reports<'a> {
    holder: &'a AllocationId,
    moment: &'a Moment,
    batch: &'a mut Batch<Rows>,
    changed: ReportChanges,
}

impl Reports<'_> {
    /// Records all reports of a request.
    pub fn record_all(
        work: &mut Work,
        request: &LeaseRequest,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> ReportChanges {
        let mut reports = Reports {
            holder: &request.allocation,
            moment,
            batch,
            changed: ReportChanges::default(),
        };
        for report in &request.finished {
            reports.record(work, report);
        }
        reports.changed
    }

    fn record(&mut self, work: &mut Work, report: &TaskReport) {
        let holder = self.holder;
        let node = work.node_of(holder).map(ToString::to_string);
        let uuid = work.uuid;
        let Some(job) = work.job_mut() else { return };
        let result = run_result(report, &job.retry);
        let leased = Leased {
            task: report.task,
            attempt: report.attempt,
        };
        if result != RunResult::Interrupted {
            job.runners.record_run(holder, report.duration_us);
        }
        let cancelled_by = job.tasks.cancelled_by(report.task).cloned();
        let before = job.tasks.leased();
        let (recorded, other_holder) = job.tasks.finish(holder, leased, result, report.duration_us);
        self.changed.lease |=
            job.tasks.leased() != before || recorded == ReportEffect::FinalOutcome;
        self.changed.other_holders.extend(other_holder);
        if matches!(
            recorded,
            ReportEffect::FinalOutcome | ReportEffect::AttemptCounted
        ) {
            metrics::count_attempt(result);
            if let Some(run) = run_amounts(report) {
                job.usage.record(&run);
            }
        }
        match recorded {
            ReportEffect::FinalOutcome => {
                job.counted_attempts += 1;
                self.changed.progress = true;
                if result != RunResult::Succeeded {
                    job.example_failure
                        .get_or_insert_with(|| failed_task(report));
                }
                let row = self.outcome_row(uuid, node, report, result);
                self.batch.rows.outcomes.push(row);
            }
            ReportEffect::AttemptCounted => {
                job.counted_attempts += 1;
                self.changed.progress = true;
                let mut row = self.attempt_row(uuid, node, report);
                row.retry_at_ms = self.delay_attempt(job, report);
                self.batch.rows.attempts.push(row);
            }
            ReportEffect::Cancelled => {
                // A run that was stopped on purpose is no end without progress.
                job.counted_attempts += 1;
                self.changed.progress = true;
                let mut row = self.outcome_row(uuid, node, report, result);
                row.end_cause = Some(EndCause::Cancelled.name().to_owned());
                row.end_message = cancelled_by.map(|by| format!("cancelled by {by}"));
                self.batch.rows.outcomes.push(row);
            }
            ReportEffect::TaskReturned => self.changed.waiting = true,
            ReportEffect::Unchanged | ReportEffect::NoSuchTask => {}
        }
    }

    /// Delays the next attempt of a failed task. Returns its earliest time for the row.
    fn delay_attempt(&mut self, job: &mut Job, report: &TaskReport) -> Option<i64> {
        let delay_ms = job.retry.delay_ms(report.task, report.attempt);
        if delay_ms == 0 {
            self.changed.waiting = true;
            return None;
        }
        let due_ms = self.moment.monotonic_ms.saturating_add(delay_ms);
        job.tasks.delay(report.task, due_ms);
        Some(self.moment.now.unix_ms().saturating_add(to_i64(delay_ms)))
    }

    fn outcome_row(
        &self,
        job: Uuid,
        node: Option<String>,
        report: &TaskReport,
        result: RunResult,
    ) -> OutcomeRow {
        let (end_cause, end_message) = end_columns(report);
        let usage = UsageColumns::new(report.usage.as_ref());
        OutcomeRow {
            job,
            task: to_i64(report.task),
            attempt: i32::try_from(report.attempt).unwrap_or(i32::MAX),
            succeeded: result == RunResult::Succeeded,
            exit_code: report.exit_code,
            signal: report.signal,
            error: report.error.as_deref().map(truncate_output),
            duration_us: to_amount(report.duration_us),
            node,
            allocation: self.holder.to_string(),
            output: truncate_output(&report.output),
            ended_at_ms: self.moment.now.unix_ms(),
            end_cause,
            end_message,
            user_us: usage.user_us,
            system_us: usage.system_us,
            max_rss_bytes: usage.max_rss_bytes,
            peak_memory_bytes: usage.peak_memory_bytes,
            usage_source: usage.source,
        }
    }

    fn attempt_row(&self, job: Uuid, node: Option<String>, report: &TaskReport) -> AttemptRow {
        let (end_cause, end_message) = end_columns(report);
        let usage = UsageColumns::new(report.usage.as_ref());
        AttemptRow {
            job,
            task: to_i64(report.task),
            attempt: i32::try_from(report.attempt).unwrap_or(i32::MAX),
            exit_code: report.exit_code,
            signal: report.signal,
            error: report.error.as_deref().map(truncate_output),
            node,
            allocation: self.holder.to_string(),
            ended_at_ms: self.moment.now.unix_ms(),
            end_cause,
            end_message,
            duration_us: Some(to_amount(report.duration_us)),
            user_us: usage.user_us,
            system_us: usage.system_us,
            max_rss_bytes: usage.max_rss_bytes,
            peak_memory_bytes: usage.peak_memory_bytes,
            usage_source: usage.source,
            retry_at_ms: None,
        }
    }
}

/// Columns of the usage of a run. All are null if it was not measured.
#[derive(Default)]
struct UsageColumns {
    user_us: Option<i64>,
    system_us: Option<i64>,
    max_rss_bytes: Option<i64>,
    peak_memory_bytes: Option<i64>,
    source: Option<String>,
}

impl UsageColumns {
    fn new(usage: Option<&RunUsage>) -> Self {
        let Some(usage) = usage else {
            return Self::default();
        };
        Self {
            user_us: Some(to_amount(usage.user_us)),
            system_us: Some(to_amount(usage.system_us)),
            max_rss_bytes: Some(to_amount(usage.max_rss_bytes)),
            peak_memory_bytes: usage.peak_memory_bytes.map(to_amount),
            source: Some(usage.source.name().to_owned()),
        }
    }
}

/// Returns the run for the usage of its job.
fn run_amounts(report: &TaskReport) -> Option<RunAmounts> {
    let usage = report.usage.as_ref()?;
    Some(RunAmounts {
        cpu_us: usage.cpu_us().min(MAX_AMOUNT),
        wall_us: report.duration_us.min(MAX_AMOUNT),
        memory_bytes: usage.memory_bytes().min(MAX_AMOUNT),
    })
}

/// Returns how the run counts. The policy says which failures are tried again.
fn run_result(report: &TaskReport, policy: &RetryPolicy) -> RunResult {
    let cause = report.cause();
    if report.succeeded() {
        RunResult::Succeeded
    } else if report.interrupted || cause == EndCause::Stopped {
        RunResult::Interrupted
    } else if policy.is_tried_again(reported_failure(report)) {
        RunResult::Failed
    } else {
        RunResult::FailedForGood
    }
}

/// Returns the task with one sentence about its end.
fn failed_task(report: &TaskReport) -> FailedTask {
    let (cause, message) = end_columns(report);
    let facts = RunFacts {
        cause: cause.as_deref(),
        message: message.as_deref(),
        exit_code: report.exit_code,
        signal: report.signal,
        error: report.error.as_deref(),
    };
    FailedTask {
        task: report.task,
        message: truncate_message(&describe_run_end(&facts).message),
    }
}

/// Returns the reported cause and its message, for their columns. Most runs end with an exit status
/// that explains them, and have neither.
fn end_columns(report: &TaskReport) -> (Option<String>, Option<String>) {
    let Some(end) = &report.end else {
        return (None, None);
    };
    let message = end.message.as_deref().map(truncate_message);
    (Some(end.cause.name().to_owned()), message)
}

/// Converts a time in microseconds or an amount in bytes. A larger one than any machine has is an
/// error of the runner, and must not make sums overflow.
fn to_amount(number: u64) -> i64 {
    to_i64(number.min(MAX_AMOUNT))
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the end of a text, at most [`OUTPUT_LIMIT`] bytes.
fn truncate_output(text: &str) -> String {
    let mut start = text.len().saturating_sub(OUTPUT_LIMIT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    replace_nul(&text[start..])
}

/// Returns the beginning of a text, at most [`MESSAGE_LIMIT`] bytes.
fn truncate_message(text: &str) -> String {
    let mut message = replace_nul(text);
    let mut end = message.len().min(MESSAGE_LIMIT);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    message
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report(fields: &Value) -> TaskReport {
        let mut report = json!({ "task": 0, "attempt": 1, "duration_us": 1 });
        let all = report.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn the_cause_of_the_end_decides_whether_a_task_is_tried_again() {
        use RunResult::{Failed, FailedForGood, Interrupted, Succeeded};
        for (fields, expected) in [
            (json!({ "exit_code": 0 }), Succeeded),
            (json!({ "exit_code": 3 }), Failed),
            (json!({ "signal": 11 }), Failed),
            (json!({ "error": "no such file" }), Failed),
            (json!({ "exit_code": 0, "error": "x" }), Failed),
            (json!({ "signal": 15, "interrupted": true }), Interrupted),
            (
                json!({ "exit_code": 0, "end": { "cause": "stopped" } }),
                Interrupted,
            ),
            (
                json!({ "exit_code": 0, "end": { "cause": "exited" } }),
                Succeeded,
            ),
            (
                json!({ "exit_code": 0, "end": { "cause": "time_limit" } }),
                FailedForGood,
            ),
            (
                json!({ "signal": 9, "end": { "cause": "out_of_memory" } }),
                FailedForGood,
            ),
            (
                json!({ "signal": 9, "end": { "cause": "of_a_later_version" } }),
                Failed,
            ),
        ] {
            let result = run_result(&report(&fields), &RetryPolicy::default());
            assert_eq!(result, expected, "{fields}");
        }
    }

    #[test]
    fn only_a_reported_cause_is_stored() {
        assert_eq!(
            end_columns(&report(&json!({ "exit_code": 3 }))),
            (None, None)
        );
        let end = json!({ "end": { "cause": "time_limit", "message": "a\u{0}b" } });
        let expected = (Some("time_limit".to_owned()), Some("a\u{fffd}b".to_owned()));
        assert_eq!(end_columns(&report(&end)), expected);
    }

    #[test]
    fn a_truncated_message_has_its_beginning() {
        let long = format!("reached{}", "é".repeat(MESSAGE_LIMIT));
        let truncated = truncate_message(&long);
        assert!(truncated.starts_with("reachedé") && truncated.len() <= MESSAGE_LIMIT);
    }

    #[test]
    fn a_truncated_output_has_its_end_and_no_nul() {
        let long = format!("{}é\0z", "x".repeat(OUTPUT_LIMIT));
        let truncated = truncate_output(&long);
        assert!(truncated.ends_with("é\u{fffd}z") && truncated.len() <= OUTPUT_LIMIT + 2);
        assert_eq!(truncate_output("short"), "short");
    }
}
