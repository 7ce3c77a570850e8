//! Exit status of a command that waited for a job of one task (TC-135).

use hayward_job_converter_api::tasks::{EndCause, TaskEnd, TaskHistory, TaskView};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;

use crate::output::note;

/// Exit status after a time limit, as that of `timeout`.
const TIME_LIMIT: u8 = 124;
/// Exit status for a failure of Hayward.
const OTHER_FAILURE: u8 = 125;
const CANNOT_START: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Added to the number of a signal, as shells do.
const SIGNAL_BASE: i32 = 128;
const OUT_OF_MEMORY: u8 = 137;
const CANCELLED: u8 = 143;

/// Returns the exit status for a job that has ended and has one task. Reads the task if the state
/// of the job does not decide.
pub async fn read_exit_status(client: &Client, job: &WorkView) -> u8 {
    if job.state != WorkState::Failed {
        return exit_status(job.state, None);
    }
    let path = format!("/v1/jobs/{}/tasks/0", job.id);
    let history: Result<TaskHistory, _> = client.get(&path).await;
    match history {
        Ok(history) => exit_status(job.state, history.current.as_ref()),
        Err(error) => {
            note(&format!("cannot read how the task ended: {error}"));
            exit_status(job.state, None)
        }
    }
}

/// Returns the exit status for a job of one task. `task` is `None` if it has no outcome.
fn exit_status(state: WorkState, task: Option<&TaskView>) -> u8 {
    match (state, task) {
        (WorkState::Completed, _) => 0,
        (WorkState::Cancelled, _) => CANCELLED,
        (_, Some(task)) => failed_task_exit_status(task),
        (_, None) => OTHER_FAILURE,
    }
}

/// Returns the exit status for a task that failed, which is never 0.
fn failed_task_exit_status(task: &TaskView) -> u8 {
    match task.end.as_ref().map(|end| end.cause) {
        Some(EndCause::TimeLimit) => return TIME_LIMIT,
        Some(EndCause::OutOfMemory) => return OUT_OF_MEMORY,
        Some(EndCause::CannotStart) if is_program_missing(task.end.as_ref()) => return NOT_FOUND,
        Some(EndCause::CannotStart) => return CANNOT_START,
        _ => {}
    }
    let status = match (task.exit_code, task.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNAL_BASE.saturating_add(signal),
        (None, None) => 0,
    };
    let status = u8::try_from(status).ok().filter(|status| *status != 0);
    status.unwrap_or(OTHER_FAILURE)
}

/// Returns whether the message says that the program was not found. Only a message about a program
/// begins with its name in quotes. Others are about a directory or an interpreter.
fn is_program_missing(end: Option<&TaskEnd>) -> bool {
    let message = end.map_or("", |end| end.message.as_str());
    let is_missing = message.contains("was not found on") || message.contains("does not exist on");
    message.starts_with('"') && is_missing
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the exit status for a failed job with a task of these fields.
    fn failed_with(fields: &Value) -> u8 {
        let mut task = json!({
            "task": 0, "attempt": 1, "succeeded": false, "duration_us": 1, "node": "node-1",
            "allocation": "alc_1", "output": "",
        });
        let fields = fields.as_object().unwrap().clone();
        task.as_object_mut().unwrap().extend(fields);
        let task = serde_json::from_value(task).unwrap();
        exit_status(WorkState::Failed, Some(&task))
    }

    fn ended(cause: &str, message: &str) -> Value {
        json!({ "end": { "cause": cause, "blame": "user", "message": message } })
    }

    #[test]
    fn the_exit_status_of_a_task_or_its_signal_is_passed_on() {
        assert_eq!(failed_with(&json!({ "exit_code": 3 })), 3);
        assert_eq!(failed_with(&json!({ "exit_code": 255 })), 255);
        assert_eq!(failed_with(&json!({ "signal": 11 })), 139);
        let mut killed = ended("signalled", "ended by signal 9 (KILL)");
        killed["signal"] = json!(9);
        assert_eq!(failed_with(&killed), 137);
    }

    #[test]
    fn a_limit_has_an_exit_status_whatever_the_program_returned() {
        let mut limit = ended("time_limit", "ran for 7 s");
        limit["exit_code"] = json!(0);
        assert_eq!(failed_with(&limit), 124);
        let mut memory = ended("out_of_memory", "reached its memory limit");
        memory["exit_code"] = json!(1);
        assert_eq!(failed_with(&memory), 137);
    }

    #[test]
    fn a_program_that_is_missing_differs_from_one_that_cannot_run() {
        for (message, status) in [
            ("\"x\" was not found on node-1 in PATH (/bin)", 127),
            ("\"/no/x\" does not exist on node-1", 127),
            (
                "\"x\" is not executable on node-1: set its x permission",
                126,
            ),
            (
                "the directory /a does not exist on node-1 (/a/b it should start in)",
                126,
            ),
            (
                "the interpreter or loader of \"x\" does not exist on node-1",
                126,
            ),
        ] {
            let end = ended("cannot_start", message);
            assert_eq!(failed_with(&end), status, "{message}");
        }
    }

    #[test]
    fn a_failed_job_never_has_the_exit_status_of_success() {
        assert_eq!(failed_with(&json!({})), 125);
        for unusable in [0, -1, 256, i32::MAX] {
            let exited = json!({ "exit_code": unusable });
            assert_eq!(failed_with(&exited), 125, "{unusable}");
        }
        assert_eq!(failed_with(&json!({ "signal": i32::MAX })), 125);
    }

    #[test]
    fn the_state_of_the_job_decides_without_a_task() {
        for (state, status) in [
            (WorkState::Completed, 0),
            (WorkState::Cancelled, 143),
            (WorkState::Refused, 125),
            (WorkState::Failed, 125),
        ] {
            assert_eq!(exit_status(state, None), status, "{state:?}");
        }
    }
}
