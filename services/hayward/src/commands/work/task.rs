//! `hayward task JOB N`: shows one task with its failed attempts.

use std::fmt::Write as _;

use hayward_job_converter_api::tasks::{AttemptView, TaskHistory, TaskState, TaskView};
use hayward_job_converter_api::usage::RunUsage;
use serde_json::Value;

use super::tasks::{end_cell, end_text, memory_text};
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_duration, sanitize_lines};
use crate::output::{Facts, Renderer, Table, Tone, toned};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Id of the job.
    #[arg(value_name = "JOB")]
    pub job: hayward_vocabulary::WorkId,
    /// Number of the task, from 0.
    #[arg(value_name = "N")]
    pub task: u64,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let path = format!("/v1/jobs/{}/tasks/{}", arguments.job, arguments.task);
    let response: Value = client.get(&path).await?;
    session.out.print_response(response, render)
}

fn render(history: &TaskHistory, renderer: &Renderer) -> String {
    let mut text = match &history.current {
        Some(task) => render_current(task, renderer),
        None => "the task waits\n".to_owned(),
    };
    if !history.attempts.is_empty() {
        let attempts = render_attempts(&history.attempts, renderer);
        let _ = write!(text, "\n{attempts}");
    }
    let output = history.current.as_ref().map(|task| task.output.as_str());
    if let Some(output) = output.filter(|output| !output.is_empty()) {
        let _ = write!(text, "\n{}", sanitize_lines(output));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

fn render_attempts(attempts: &[AttemptView], renderer: &Renderer) -> String {
    let mut table = Table::new(["failed attempt", "end", "node", "ended", "message"]);
    for attempt in attempts {
        let end = end_text(Some(&attempt.end), attempt.exit_code, attempt.signal);
        table.push_row([
            attempt.attempt.into(),
            toned(end, Tone::Bad),
            (&attempt.node).into(),
            renderer.ago(attempt.ended_at).into(),
            attempt.end.message.as_str().into(),
        ]);
    }
    table.render(renderer)
}

fn render_current(task: &TaskView, renderer: &Renderer) -> String {
    let state = match task.state {
        Some(state) => state,
        None if task.succeeded => TaskState::Succeeded,
        None => TaskState::Failed,
    };
    let tone = match state {
        TaskState::Running | TaskState::Succeeded => Tone::Good,
        TaskState::Failed => Tone::Bad,
        TaskState::Cancelled | TaskState::Delayed => Tone::Plain,
    };
    let mut facts = Facts::default();
    facts.add("state", toned(enum_text(&state), tone));
    let end = task.end.as_ref().filter(|_| !task.succeeded);
    if task.attempt == 0 {
        // It was cancelled before it ran.
        facts.add("message", end.map_or("", |end| end.message.as_str()));
        return facts.render(renderer);
    }
    if let Some(retry_in_ms) = task.retry_in_ms {
        facts.add("next attempt", task.attempt);
        facts.add("due in", format_duration(retry_in_ms));
        return facts.render(renderer);
    }
    facts.add("attempt", task.attempt);
    facts.add("node", &task.node);
    facts.add("allocation", &task.allocation);
    if state == TaskState::Running {
        if let Some(started_at) = task.started_at {
            facts.add("since", started_at);
        }
        facts.add("runs for", format_duration(task.run_ms.unwrap_or(0)));
        return facts.render(renderer);
    }
    facts.add("took", format_duration(task.duration_us / 1000));
    if let Some(usage) = &task.usage {
        facts.add("cpu", cpu_text(usage));
        facts.add("memory", memory_text(Some(usage)));
    }
    facts.add("end", end_cell(task));
    if let Some(end) = end {
        facts.add("message", &end.message);
    }
    facts.render(renderer)
}

/// Returns the cpu time of the programs, and that of the kernel for them.
fn cpu_text(usage: &RunUsage) -> String {
    let [user, system] = [usage.user_us, usage.system_us].map(|us| format_duration(us / 1000));
    format!("{user} of programs, {system} of the kernel")
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;
    use serde_json::json;

    use super::*;

    const RENDERER: Renderer = Renderer {
        colour: false,
        now: Timestamp::from_unix_ms(60_000),
    };

    fn parse_history(history: Value) -> TaskHistory {
        serde_json::from_value(history).unwrap()
    }

    #[test]
    fn a_task_is_shown_with_its_failed_attempts_and_its_output() {
        let history = parse_history(json!({
            "current": {
                "task": 7, "state": "failed", "attempt": 2, "succeeded": false, "exit_code": 3,
                "duration_us": 1_500_000, "node": "node-2", "allocation": "alc_2",
                "output": "one\ntwo", "end": {
                    "cause": "exited", "blame": "user", "message": "exited with status 3",
                },
            },
            "attempts": [{
                "attempt": 1, "signal": 9, "node": "node-1", "allocation": "alc_1",
                "ended_at": "1970-01-01T00:00:00Z", "end": {
                    "cause": "out_of_memory", "blame": "user",
                    "message": "out of memory: limit 1 GiB",
                },
            }],
        }));
        insta::assert_snapshot!(render(&history, &RENDERER));
    }

    #[test]
    fn a_running_task_is_shown_with_its_start_and_without_an_end() {
        let history = parse_history(json!({
            "current": {
                "task": 7, "state": "running", "attempt": 1, "succeeded": false,
                "duration_us": 0, "node": "node-2", "allocation": "alc_2", "output": "",
                "started_at": "1970-01-01T00:00:01.5Z", "run_ms": 4_200,
            },
            "attempts": [],
        }));
        let expected = "state       running\n\
                        attempt     1\n\
                        node        node-2\n\
                        allocation  alc_2\n\
                        since       1970-01-01T00:00:01.500Z\n\
                        runs for    4.2s\n";
        assert_eq!(render(&history, &RENDERER), expected);
    }

    #[test]
    fn a_task_that_was_cancelled_before_it_ran_has_only_its_end() {
        let history = parse_history(json!({
            "current": {
                "task": 7, "state": "cancelled", "attempt": 0, "succeeded": false,
                "duration_us": 0, "node": "unknown", "allocation": "none", "output": "",
                "end": { "cause": "cancelled", "blame": "none", "message": "cancelled by ada" },
            },
            "attempts": [],
        }));
        let expected = "state    cancelled\nmessage  cancelled by ada\n";
        assert_eq!(render(&history, &RENDERER), expected);
    }

    #[test]
    fn a_task_that_neither_runs_nor_has_ended_waits() {
        let history = parse_history(json!({ "attempts": [] }));
        assert_eq!(render(&history, &RENDERER), "the task waits\n");
    }
}
