//! Policy of a job about failures of its tasks.

use std::collections::BTreeSet;

use hayward_job_converter_api::retry::{RetryCause, RetrySubmission};
use hayward_job_converter_api::submission::JobSubmission;
use hayward_job_converter_api::tasks::{EndCause, TaskReport};
use hayward_job_converter_domain::{Failure, FailureCause, RetryPolicy};

use super::DEFAULT_ATTEMPTS;

/// Milliseconds before its next attempt at which a delayed task requests a process (TC-127).
pub const REQUEST_AHEAD_MS: u64 = 5_000;

/// Returns the number of attempts of a task before it has failed.
pub fn max_attempts(job: &JobSubmission) -> u32 {
    let in_retry = job.retry.as_ref().and_then(|retry| retry.max_attempts);
    job.max_attempts.or(in_retry).unwrap_or(DEFAULT_ATTEMPTS)
}

pub fn retry_policy(job: &JobSubmission) -> RetryPolicy {
    let default = RetryPolicy::default();
    let Some(RetrySubmission {
        on,
        exit_codes,
        never_exit_codes,
        delay_ms,
        max_delay_ms,
        max_attempts: _,
    }) = &job.retry
    else {
        return default;
    };
    let causes = on
        .as_ref()
        .map(|causes| causes.iter().copied().map(to_failure_cause));
    RetryPolicy {
        causes: causes.map_or(default.causes, Iterator::collect),
        exit_codes: to_codes(exit_codes),
        never_exit_codes: to_codes(never_exit_codes),
        delay_ms: delay_ms.unwrap_or(0),
        max_delay_ms: max_delay_ms.unwrap_or(default.max_delay_ms.max(delay_ms.unwrap_or(0))),
    }
}

fn to_codes(codes: &[u32]) -> BTreeSet<i32> {
    let codes = codes.iter().copied();
    codes.filter_map(|code| i32::try_from(code).ok()).collect()
}

fn to_failure_cause(cause: RetryCause) -> FailureCause {
    match cause {
        RetryCause::Exited => FailureCause::Exited,
        RetryCause::Signalled => FailureCause::Signalled,
        RetryCause::CannotStart => FailureCause::CannotStart,
        RetryCause::OutOfMemory => FailureCause::OutOfMemory,
        RetryCause::TimeLimit => FailureCause::TimeLimit,
    }
}

/// Returns the failure that a report describes.
pub fn reported_failure(report: &TaskReport) -> Failure {
    let cause = match report.cause() {
        EndCause::Exited => FailureCause::Exited,
        EndCause::Signalled => FailureCause::Signalled,
        EndCause::CannotStart => FailureCause::CannotStart,
        EndCause::OutOfMemory => FailureCause::OutOfMemory,
        EndCause::TimeLimit => FailureCause::TimeLimit,
        EndCause::Stopped | EndCause::Cancelled | EndCause::CrashedRunner | EndCause::Unknown => {
            FailureCause::Unknown
        }
    };
    Failure {
        cause,
        exit_code: report.exit_code,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(fields: &Value) -> JobSubmission {
        let mut job = json!({ "command": ["x"] });
        let all = job.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn the_short_form_and_the_field_give_the_number_of_attempts() {
        for (fields, attempts) in [
            (json!({}), DEFAULT_ATTEMPTS),
            (json!({ "max_attempts": 5 }), 5),
            (json!({ "retry": { "max_attempts": 7 } }), 7),
            (json!({ "retry": {} }), DEFAULT_ATTEMPTS),
        ] {
            assert_eq!(max_attempts(&job(&fields)), attempts, "{fields}");
        }
    }

    #[test]
    fn a_job_without_causes_has_the_default_ones() {
        let policy = retry_policy(&job(&json!({ "retry": { "never_exit_codes": [2] } })));
        assert_eq!(policy.causes, RetryPolicy::default().causes);
        assert_eq!(policy.never_exit_codes, [2].into());
        let policy = retry_policy(&job(&json!({ "retry": { "on": ["time_limit"] } })));
        assert_eq!(policy.causes, [FailureCause::TimeLimit].into());
        assert_eq!(retry_policy(&job(&json!({}))), RetryPolicy::default());
    }
}
