//! `hayward logs ID`: prints the output of a job, a service, an application or a worker pool, and
//! the final output of the tasks of a job.
//!
//! [`follow`] reads the output of all processes of the work, across instances, retries and nodes.
//! The final output of a task is part of its outcome, which exists as long as the job.

mod follow;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use hayward_container_manager_api::ContainerEntry;
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_service::{Client, Clock as _, SystemClock};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId};
use serde_json::json;

use crate::commands::work::tasks::PAGES;
use crate::connection::pages;
use crate::connection::{Role, Service, Session};
use crate::output::format::sanitize_lines;
use crate::output::print;
use crate::value_parsers;

use self::follow::{EndCondition, Source};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Id of a job, service, instance, worker pool, worker, allocation or application.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Only this task. A task of a job has a number, and its final output is printed. A task of an
    /// application has an id, and all its output is printed.
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// Print new output until the work has ended, across all its retries and nodes.
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with this number of last lines of each process, at most 1000.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub tail: Option<u32>,
    /// Begin with the output since this time: an instant, or a duration before now, as 10m.
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub since: Option<Timestamp>,
}

fn parse_since(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago = value_parsers::parse_duration_ms(text).map_err(|_| {
        format!("{text:?} is neither an instant, as 2026-11-21T10:42:00Z, nor a time ago, as 10m")
    })?;
    Ok(SystemClock.now().minus_ms(ago))
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let reads_live_output =
        arguments.follow || arguments.tail.is_some() || arguments.since.is_some();
    // The prefix of the id selects the kind of work.
    let source = match (known_prefix(&arguments.id), arguments.task.as_deref()) {
        (Some("job"), task) if task.is_some() || !reads_live_output => {
            return print_task_output(&session, &client, &arguments, task).await;
        }
        (Some("svc"), Some(_)) => bail!("a service has no tasks"),
        (Some("wp"), Some(_)) => bail!("a worker pool has no tasks"),
        (Some("app" | "alc"), Some(_)) => bail!("{} is no application's id", arguments.id),
        (Some("rsv"), _) => bail!("a reservation runs nothing, so it has no output"),
        (Some("job" | "svc"), _) => Source::new(arguments.id.parse()?, EndCondition::Work),
        (Some("wp"), None) => Source::new(arguments.id.parse()?, EndCondition::Pool),
        (Some("app"), None) => Source::new(arguments.id.parse()?, EndCondition::LastProcess),
        (Some("alc"), None) => find_process(&session, arguments.id.parse()?).await?,
        (_, task) => Source::for_application(&client, &arguments.id, task).await?,
    };
    follow::run(&session, &client, &source, &arguments).await
}

/// Returns the prefix of an id that Hayward made. Returns `None` for an id that a user chose.
fn known_prefix(id: &str) -> Option<&str> {
    let (prefix, _) = id.split_once('_')?;
    let is_known = ["job", "svc", "rsv", "wp", "app", "alc"].contains(&prefix);
    (is_known && WorkId::new(id).is_ok()).then_some(prefix)
}

/// Selects one process of any kind of work.
async fn find_process(session: &Session, id: AllocationId) -> anyhow::Result<Source> {
    let containers = session.client(Service::ContainerManager, Role::User)?;
    let entry: ContainerEntry = containers.get(&format!("/v1/containers/{id}")).await?;
    Ok(Source::for_process(entry.work, id))
}

/// Prints the final output of all ended tasks, or of one task. `--follow` waits for the end of that
/// task.
async fn print_task_output(
    session: &Session,
    client: &Client,
    arguments: &Arguments,
    task: Option<&str>,
) -> anyhow::Result<()> {
    let id: &WorkId = &arguments.id.parse()?;
    if let Some(task) = task {
        let is_unfiltered = arguments.tail.is_none() && arguments.since.is_none();
        ensure!(
            is_unfiltered,
            "the output of a task of a job is printed whole: leave out --tail and --since"
        );
        let number = task.parse();
        let task = number.with_context(|| format!("{task:?} is no number of a task"))?;
        let mut task_view = task_outcome(client, id, task).await?;
        while task_view.is_none() && arguments.follow {
            let view: WorkView = client
                .get_with_timeout(&format!("/v1/jobs/{id}?wait=1"), Duration::from_secs(30))
                .await?;
            task_view = task_outcome(client, id, task).await?;
            if view.state.is_final() {
                break;
            }
        }
        let task_view = task_view.with_context(|| format!("task {task} of {id} has not ended"))?;
        return if session.out.json {
            session.out.json(&json!(task_view))
        } else {
            print(&clean_for_terminal(&final_output(&task_view)))
        };
    }
    let response = pages::read_all(client, &format!("/v1/jobs/{id}/tasks"), PAGES).await?;
    session.out.print_response(response, |list: &TaskList, _| {
        clean_for_terminal(&list.tasks.iter().map(final_output).collect::<String>())
    })
}

/// Reads the outcome of a task. Returns `None` if the task has not ended.
async fn task_outcome(client: &Client, id: &WorkId, task: u64) -> anyhow::Result<Option<TaskView>> {
    let page: TaskList = client
        .get(&format!("/v1/jobs/{id}/tasks?limit=1&cursor={task}"))
        .await?;
    Ok(page.tasks.into_iter().find(|view| view.task == task))
}

/// Removes control characters from output for a terminal. A file or a pipe gets the original bytes.
fn clean_for_terminal(text: &str) -> String {
    if std::io::stdout().is_terminal() {
        sanitize_lines(text)
    } else {
        text.to_owned()
    }
}

/// Returns the final output of a task, with a line break at its end.
fn final_output(task: &TaskView) -> String {
    let output = &task.output;
    if output.is_empty() || output.ends_with('\n') {
        output.clone()
    } else {
        format!("{output}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_a_known_prefix_is_an_application() {
        assert_eq!(known_prefix("job_0199"), Some("job"));
        assert_eq!(known_prefix("app_0199.3"), Some("app"));
        for chosen in ["train", "my_app", "job", "job_a b"] {
            assert_eq!(known_prefix(chosen), None, "{chosen}");
        }
    }

    #[test]
    fn since_is_a_timestamp_or_an_age() {
        let at = parse_since("2026-11-21T10:42:00Z").unwrap();
        assert_eq!(at.to_string(), "2026-11-21T10:42:00.000Z");
        let ago = SystemClock.now().ms_since(parse_since("10m").unwrap());
        // The system clock may be set back by a little between the two readings.
        assert!((595_000..660_000).contains(&ago), "{ago}");
        assert!(parse_since("yesterday").unwrap_err().contains("10m"));
    }
}
