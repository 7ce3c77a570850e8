//! `hayward tasks ID`: shows the outcome of each task, or the tasks that run.

use std::cmp::Reverse;

use hayward_job_converter_api::tasks::{EndCause, TaskEnd, TaskList, TaskState, TaskView};
use hayward_job_converter_api::usage::RunUsage;

use crate::commands::work::shorten;
use crate::connection::pages::{self, PageFields};
use crate::connection::{Role, Service, Session};
use crate::output::format::{format_bytes, format_duration};
use crate::output::{Cell, Renderer, Table, Tone, toned};

/// Maximum number of characters of the last output in the table.
const OUTPUT_WIDTH: usize = 60;
/// Field names of a page of tasks.
pub const PAGES: PageFields = PageFields {
    list: "tasks",
    next: "next_cursor",
};

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line, and they exclude each other"
)]
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Id of the job.
    #[arg(value_name = "ID")]
    pub id: hayward_vocabulary::WorkId,
    /// Show only tasks that failed.
    #[arg(long, group = "shown_state")]
    pub failed: bool,
    /// Show only tasks that were cancelled.
    #[arg(long, group = "shown_state")]
    pub cancelled: bool,
    /// Show the tasks that wait for the time of their next attempt.
    #[arg(long, group = "shown_state")]
    pub delayed: bool,
    /// Show the tasks that run now, with their nodes.
    #[arg(long, group = "shown_state")]
    pub running: bool,
    /// Show the tasks that used most first.
    #[arg(long, value_name = "AMOUNT", conflicts_with_all = ["running", "delayed"])]
    pub sort: Option<SortOrder>,
}

/// Amount by which tasks are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SortOrder {
    /// Largest memory of the run.
    Memory,
    /// Cpu time.
    Cpu,
    /// Wall time.
    Time,
}

impl Arguments {
    fn state(&self) -> Option<TaskState> {
        let flags = [
            (self.failed, TaskState::Failed),
            (self.cancelled, TaskState::Cancelled),
            (self.running, TaskState::Running),
            (self.delayed, TaskState::Delayed),
        ];
        let chosen = flags.into_iter().find(|(is_set, _)| *is_set);
        chosen.map(|(_, state)| state)
    }
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let state = arguments.state();
    let state = state.map_or_else(String::new, |state| format!("?state={}", state.name()));
    let path = format!("/v1/jobs/{}/tasks{state}", arguments.id);
    let response = pages::read_all(&client, &path, PAGES).await?;
    session
        .out
        .print_response(response, |list: &TaskList, renderer| {
            match arguments.state() {
                Some(TaskState::Running) => render_running(&list.tasks, renderer),
                Some(TaskState::Delayed) => render_delayed(&list.tasks, renderer),
                _ => render_table(&sorted(&list.tasks, arguments.sort), renderer),
            }
        })
}

fn render_running(tasks: &[TaskView], renderer: &Renderer) -> String {
    if tasks.is_empty() {
        return "no task runs\n".to_owned();
    }
    let header = ["task", "attempt", "node", "since", "runs for"];
    let mut table = Table::new(header).align_right(&[0, 1, 4]);
    for task in tasks {
        let since = task.started_at.map(|at| at.to_string());
        table.push_row([
            task.task.into(),
            task.attempt.into(),
            (&task.node).into(),
            since.unwrap_or_default().into(),
            format_duration(task.run_ms.unwrap_or(0)).into(),
        ]);
    }
    table.render(renderer)
}

fn render_delayed(tasks: &[TaskView], renderer: &Renderer) -> String {
    if tasks.is_empty() {
        return "no task is delayed\n".to_owned();
    }
    let mut table = Table::new(["task", "next attempt", "due in"]).align_right(&[0, 1, 2]);
    for task in tasks {
        table.push_row([
            task.task.into(),
            task.attempt.into(),
            format_duration(task.retry_in_ms.unwrap_or(0)).into(),
        ]);
    }
    table.render(renderer)
}

pub fn render_table(tasks: &[TaskView], renderer: &Renderer) -> String {
    if tasks.is_empty() {
        return "no task has ended\n".to_owned();
    }
    let header = [
        "task",
        "end",
        "attempt",
        "took",
        "cpu",
        "memory",
        "node",
        "last output",
    ];
    let mut table = Table::new(header).align_right(&[0, 2]);
    for task in tasks {
        let last = task
            .output
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty());
        let message = special_end(task.end.as_ref()).map(|end| end.message.as_str());
        let message = message.or(task.error.as_deref()).or(last);
        let message = message.unwrap_or_default();
        table.push_row([
            task.task.into(),
            end_cell(task),
            task.attempt.into(),
            format_duration(task.duration_us / 1000).into(),
            cpu_text(task.usage.as_ref()).into(),
            memory_text(task.usage.as_ref()).into(),
            node_cell(task),
            shorten(message, OUTPUT_WIDTH).into(),
        ]);
    }
    table.render(renderer)
}

/// Returns the cpu time of a run, or `-` if it was not measured.
pub fn cpu_text(usage: Option<&RunUsage>) -> String {
    usage.map_or("-".to_owned(), |usage| {
        format_duration(usage.cpu_us() / 1000)
    })
}

/// Returns the largest memory of a run, or `-` if it was not measured.
pub fn memory_text(usage: Option<&RunUsage>) -> String {
    usage.map_or("-".to_owned(), |usage| format_bytes(usage.memory_bytes()))
}

/// Returns the tasks in an order, the largest first. Runs that were not measured come last.
fn sorted(tasks: &[TaskView], order: Option<SortOrder>) -> Vec<TaskView> {
    let mut tasks = tasks.to_vec();
    let Some(order) = order else {
        return tasks;
    };
    tasks.sort_by_key(|task| {
        let usage = task.usage.as_ref();
        Reverse(match order {
            SortOrder::Memory => usage.map(RunUsage::memory_bytes),
            SortOrder::Cpu => usage.map(RunUsage::cpu_us),
            SortOrder::Time => Some(task.duration_us),
        })
    });
    tasks
}

/// Returns the node, or a dash for a task that never ran.
fn node_cell(task: &TaskView) -> Cell {
    if task.attempt == 0 {
        return "-".into();
    }
    (&task.node).into()
}

/// Returns the end if the exit status does not explain it.
fn special_end(end: Option<&TaskEnd>) -> Option<&TaskEnd> {
    let is_special = |cause| !matches!(cause, EndCause::Exited | EndCause::Signalled);
    end.filter(|end| is_special(end.cause))
}

/// Returns `ok`, or the text of [`end_text`].
pub fn end_cell(task: &TaskView) -> Cell {
    if task.succeeded {
        return toned("ok", Tone::Good);
    }
    let text = end_text(task.end.as_ref(), task.exit_code, task.signal);
    let is_cancelled = task.state == Some(TaskState::Cancelled);
    let tone = if is_cancelled { Tone::Plain } else { Tone::Bad };
    toned(text, tone)
}

/// Returns the cause of the end of a run, or its exit status or signal.
pub fn end_text(end: Option<&TaskEnd>, exit_code: Option<i32>, signal: Option<i32>) -> String {
    if let Some(end) = special_end(end) {
        return end.cause.name().replace('_', " ");
    }
    match (exit_code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("status {code}"),
        (None, None) => "not started".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hayward_job_converter_api::tasks::Blame;
    use hayward_job_converter_api::usage::UsageSource;
    use hayward_vocabulary::{AllocationId, NodeName, Timestamp};

    use super::*;

    const RENDERER: Renderer = Renderer {
        colour: false,
        now: Timestamp::from_unix_ms(0),
    };

    fn task_view(number: u64, exit_code: Option<i32>, output: &str) -> TaskView {
        TaskView {
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
            state: None,
            end: None,
            usage: None,
            started_at: None,
            run_ms: None,
            retry_in_ms: None,
        }
    }

    fn task_end(cause: EndCause, message: &str) -> TaskEnd {
        TaskEnd {
            cause,
            blame: Blame::User,
            message: message.to_owned(),
        }
    }

    /// Returns the row of a failed task whose output is `saved`.
    fn row_of_failed(cause: EndCause, message: &str, signal: Option<i32>) -> String {
        let task = TaskView {
            succeeded: false,
            signal,
            end: Some(task_end(cause, message)),
            ..task_view(4, Some(3), "saved")
        };
        let text = render_table(&[task], &RENDERER);
        text.lines().last().unwrap().trim_start().to_owned()
    }

    #[test]
    fn tasks_are_listed_in_a_table() {
        let tasks = [
            task_view(0, Some(0), "one\ntwo\n\n"),
            task_view(11, Some(3), "oh\u{1b}[0m"),
            task_view(12, None, ""),
        ];
        insta::assert_snapshot!(render_table(&tasks, &RENDERER));
        assert_eq!(render_table(&[], &RENDERER), "no task has ended\n");
    }

    #[test]
    fn running_tasks_are_listed_with_their_start_and_duration() {
        let running = TaskView {
            state: Some(TaskState::Running),
            attempt: 2,
            started_at: Some(Timestamp::from_unix_ms(1_500)),
            run_ms: Some(90_000),
            ..task_view(3, None, "")
        };
        assert_eq!(
            render_running(&[running], &RENDERER),
            "task  attempt  node    since                     runs for\n   \
             3        2  node-1  1970-01-01T00:00:01.500Z    1m 30s\n"
        );
        assert_eq!(render_running(&[], &RENDERER), "no task runs\n");
        let delayed = TaskView {
            attempt: 2,
            retry_in_ms: Some(1_500),
            ..task_view(3, None, "")
        };
        let text = render_delayed(&[delayed], &RENDERER);
        assert_eq!(
            text,
            "task  next attempt  due in\n   3             2    1.5s\n"
        );
    }

    #[test]
    fn an_end_that_the_exit_status_does_not_explain_has_its_cause_and_message() {
        for (cause, text) in [
            (EndCause::TimeLimit, "time limit"),
            (EndCause::OutOfMemory, "out of memory"),
            (EndCause::CannotStart, "cannot start"),
        ] {
            let row = row_of_failed(cause, "the message", None);
            let expected = format!("4  {text}        1  1.2s  -    -       node-1  the message");
            assert_eq!(row, expected);
        }
    }

    #[test]
    fn a_task_that_was_cancelled_before_it_ran_has_no_node() {
        let task = TaskView {
            state: Some(TaskState::Cancelled),
            attempt: 0,
            duration_us: 0,
            error: None,
            end: Some(task_end(EndCause::Cancelled, "cancelled by ada")),
            ..task_view(4, None, "")
        };
        let text = render_table(&[task], &RENDERER);
        let row = text.lines().last().unwrap().trim_start();
        assert_eq!(
            row,
            "4  cancelled        0  0ms   -    -       -     cancelled by ada"
        );
    }

    #[test]
    fn an_exit_and_a_signal_have_their_number_and_the_last_output() {
        let exited = row_of_failed(EndCause::Exited, "exited with status 3", None);
        assert_eq!(
            exited,
            "4  status 3        1  1.2s  -    -       node-1  saved"
        );
        let killed = row_of_failed(EndCause::Signalled, "ended by signal 9", Some(9));
        assert_eq!(
            killed,
            "4  signal 9        1  1.2s  -    -       node-1  saved"
        );
    }

    #[test]
    fn tasks_are_sorted_by_what_they_used() {
        let with_usage = |number, user_us, max_rss_bytes| TaskView {
            usage: Some(RunUsage {
                user_us,
                system_us: 0,
                max_rss_bytes,
                peak_memory_bytes: None,
                source: UsageSource::Wait4,
            }),
            ..task_view(number, Some(0), "")
        };
        let tasks = vec![
            task_view(0, Some(0), ""),
            with_usage(1, 5_000, 10 << 20),
            with_usage(2, 1_000, 30 << 20),
        ];
        let numbers = |order| {
            let tasks = sorted(&tasks, Some(order));
            tasks.iter().map(|task| task.task).collect::<Vec<_>>()
        };
        assert_eq!(numbers(SortOrder::Memory), [2, 1, 0]);
        assert_eq!(numbers(SortOrder::Cpu), [1, 2, 0]);
        let row = render_table(&tasks[1..2], &RENDERER);
        assert!(row.contains("  1.2s  5ms  10 MiB  node-1"), "{row}");
    }
}
