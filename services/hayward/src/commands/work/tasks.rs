//! `hayward tasks ID`: shows the outcome of each task.

use hayward_job_converter_api::tasks::{TaskList, TaskView};
use serde_json::Value;

use crate::commands::work::shorten;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::format_duration;
use crate::output::{Cell, Renderer, Table, Tone, toned};

/// Maximum number of characters of the last output in the table.
const OUTPUT_WIDTH: usize = 60;
/// Field names of a page of tasks.
pub const PAGES: PageFields = PageFields {
    list: "tasks",
    next: "next_cursor",
};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Id of the job.
    #[arg(value_name = "ID")]
    pub id: hayward_vocabulary::WorkId,
    /// Show only tasks that failed.
    #[arg(long)]
    pub failed: bool,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let path = format!("/v1/jobs/{}/tasks", arguments.id);
    let mut response = pages::read_all(&client, &path, PAGES).await?;
    if arguments.failed
        && let Some(tasks) = response.get_mut(PAGES.list).and_then(Value::as_array_mut)
    {
        tasks.retain(|task| task.get("succeeded") == Some(&Value::Bool(false)));
    }
    session
        .out
        .print_response(response, |list: &TaskList, renderer| {
            render_table(&list.tasks, renderer)
        })
}

pub fn render_table(tasks: &[TaskView], renderer: &Renderer) -> String {
    if tasks.is_empty() {
        return "no task has ended\n".to_owned();
    }
    let header = ["task", "end", "attempt", "took", "node", "last output"];
    let mut table = Table::new(header).align_right(&[0, 2]);
    for task in tasks {
        let last = task
            .output
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty());
        let message = task.error.as_deref().or(last).unwrap_or_default();
        table.push_row([
            task.task.into(),
            end_cell(task),
            task.attempt.into(),
            format_duration(task.duration_us / 1000).into(),
            (&task.node).into(),
            shorten(message, OUTPUT_WIDTH).into(),
        ]);
    }
    table.render(renderer)
}

/// Returns the exit status or signal of a task.
fn end_cell(task: &TaskView) -> Cell {
    let text = match (task.exit_code, task.signal) {
        _ if task.succeeded => return toned("ok", Tone::Good),
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("status {code}"),
        (None, None) => "not started".to_owned(),
    };
    toned(text, Tone::Bad)
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{AllocationId, NodeName, Timestamp};

    use super::*;

    #[test]
    fn tasks_are_listed_in_a_table() {
        let task = |number, exit_code, output: &str| TaskView {
            task: number,
            attempt: 1,
            succeeded: exit_code == Some(0),
            exit_code,
            signal: None,
            error: exit_code.is_none().then(|| "no such program".to_owned()),
            duration_us: 1_250_000,
            node: NodeName::new("node-1").unwrap(),
            allocation: AllocationId::new("alc_1").unwrap(),
            output: output.to_owned(),
        };
        let tasks = [
            task(0, Some(0), "one\ntwo\n\n"),
            task(11, Some(3), "oh\u{1b}[0m"),
            task(12, None, ""),
        ];
        let renderer = Renderer {
            colour: false,
            now: Timestamp::default(),
        };
        insta::assert_snapshot!(render_table(&tasks, &renderer));
        assert_eq!(render_table(&[], &renderer), "no task has ended\n");
    }
}
