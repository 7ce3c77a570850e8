//! Validates which failures of tasks are tried again, and how many a job may have.

use hayward_job_converter_api::submission::JobSubmission;

use super::{Faults, MAX_ATTEMPTS};

/// One day in milliseconds.
const MAX_DELAY_MS: u64 = 86_400_000;

pub fn check_retry(faults: &mut Faults, job: &JobSubmission) {
    let success_percent = job.success_percent.unwrap_or(100);
    let is_percentage = (1..=100).contains(&success_percent);
    faults.check(is_percentage, "/success_percent", || {
        "must be 1 to 100".to_owned()
    });
    let Some(retry) = &job.retry else { return };
    let attempts = retry.max_attempts.unwrap_or(1);
    let is_valid = (1..=MAX_ATTEMPTS).contains(&attempts);
    faults.check(is_valid, "/retry/max_attempts", || {
        format!("must be 1 to {MAX_ATTEMPTS}")
    });
    let is_set_twice = retry.max_attempts.is_some() && job.max_attempts.is_some();
    faults.check(!is_set_twice, "/max_attempts", || {
        "is also set in `retry`: leave one of them out".to_owned()
    });
    let delay_ms = retry.delay_ms.unwrap_or(0);
    faults.check(delay_ms <= MAX_DELAY_MS, "/retry/delay_ms", || {
        format!("must be 0 to {MAX_DELAY_MS}, which is one day")
    });
    if let Some(max_delay_ms) = retry.max_delay_ms {
        let is_valid = (delay_ms..=MAX_DELAY_MS).contains(&max_delay_ms);
        faults.check(is_valid, "/retry/max_delay_ms", || {
            format!("must be at least `delay_ms`, {delay_ms}, and at most {MAX_DELAY_MS}")
        });
    }
    let causes = retry.on.as_ref();
    faults.check(causes.is_none_or(|on| !on.is_empty()), "/retry/on", || {
        "names no cause: set `max_attempts` to 1 if nothing is tried again".to_owned()
    });
    for (pointer, codes) in [
        ("/retry/exit_codes", &retry.exit_codes),
        ("/retry/never_exit_codes", &retry.never_exit_codes),
    ] {
        let is_valid = codes.iter().all(|code| (1..=255).contains(code));
        faults.check(is_valid, pointer, || {
            "takes exit codes of failures, which are 1 to 255".to_owned()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pointers(fields: &Value) -> Vec<String> {
        let mut job = json!({ "command": ["x"] });
        let all = job.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        let mut faults = Faults::default();
        check_retry(&mut faults, &serde_json::from_value(job).unwrap());
        faults.0.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn a_policy_that_means_nothing_is_refused_at_its_pointer() {
        for (fields, pointer) in [
            (
                json!({ "retry": { "max_attempts": 0 } }),
                "/retry/max_attempts",
            ),
            (json!({ "retry": { "on": [] } }), "/retry/on"),
            (json!({ "success_percent": 0 }), "/success_percent"),
            (json!({ "success_percent": 101 }), "/success_percent"),
            (
                json!({ "retry": { "delay_ms": 86_400_001 } }),
                "/retry/delay_ms",
            ),
            (
                json!({ "retry": { "delay_ms": 9, "max_delay_ms": 8 } }),
                "/retry/max_delay_ms",
            ),
            (
                json!({ "retry": { "exit_codes": [0] } }),
                "/retry/exit_codes",
            ),
            (
                json!({ "retry": { "never_exit_codes": [256] } }),
                "/retry/never_exit_codes",
            ),
            (
                json!({ "max_attempts": 2, "retry": { "max_attempts": 2 } }),
                "/max_attempts",
            ),
        ] {
            assert_eq!(pointers(&fields), [pointer], "{fields}");
        }
        let valid = json!({
            "max_attempts": 2, "retry": { "on": ["exited"], "exit_codes": [75] },
        });
        assert_eq!(pointers(&valid), [""; 0]);
    }
}
