//! `hayward logs ID`: what a job, a service or a worker pool writes, and what tasks of a job said
//! last.
//!
//! What runs is followed in [`follow`]: everything that ran for the work, over its instances,
//! retries and nodes. The last words of tasks are read with their outcomes, which are kept as long
//! as the job.

mod follow;

use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_service::{Client, Clock as _, SystemClock};
use hayward_vocabulary::{Timestamp, WorkId};
use serde_json::json;

use crate::amounts;
use crate::commands::tasks::PAGES;
use crate::connection::pages;
use crate::connection::{Role, Service, Session};
use crate::output::print;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// A job, a service or a worker pool, or one instance or worker of it.
    #[arg(value_name = "ID")]
    pub id: WorkId,
    /// Only the last words of this task of a job.
    #[arg(long, value_name = "N", conflicts_with_all = ["tail", "since"])]
    pub task: Option<u64>,
    /// Go on until the work is over, over all its retries and nodes.
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with the last so many lines of each process, 1000 at most.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub tail: Option<u32>,
    /// Begin with what was written since then: an instant, or a time ago, as in 10m.
    #[arg(long, value_name = "WHEN", value_parser = since)]
    pub since: Option<Timestamp>,
}

fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago = amounts::duration_ms(text).map_err(|_| {
        format!("{text:?} is neither an instant, as 2026-11-21T10:42:00Z, nor a time ago, as 10m")
    })?;
    Ok(SystemClock.now().minus_ms(ago))
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let live = arguments.follow || arguments.tail.is_some() || arguments.since.is_some();
    match arguments.id.as_str().split_once('_') {
        Some(("job", _)) if arguments.task.is_some() || !live => {
            job(&session, &client, &arguments).await
        }
        Some(("svc", _)) if arguments.task.is_some() => bail!("a service has no tasks"),
        Some(("job" | "svc", _)) => follow::run(&session, &client, &arguments).await,
        _ if is_of_a_pool(&arguments.id) => match arguments.task {
            Some(_) => bail!("a worker pool has no tasks"),
            None => follow::run(&session, &client, &arguments).await,
        },
        Some(("rsv", _)) => bail!("a reservation runs nothing, so it says nothing"),
        _ => bail!(
            "{} is no id of work: those begin with job_, svc_ or wp_",
            arguments.id
        ),
    }
}

fn is_of_a_pool(id: &WorkId) -> bool {
    id.as_str().starts_with("wp_")
}

/// What tasks said last: of those that are over, or of one, which `--follow` waits for.
async fn job(session: &Session, client: &Client, arguments: &Arguments) -> anyhow::Result<()> {
    let id = &arguments.id;
    if let Some(task) = arguments.task {
        let mut found = outcome(client, id, task).await?;
        while found.is_none() && arguments.follow {
            let view: WorkView = client
                .get_within(&format!("/v1/jobs/{id}?wait=1"), Duration::from_secs(30))
                .await?;
            found = outcome(client, id, task).await?;
            if view.state.is_final() {
                break;
            }
        }
        let found = found.with_context(|| format!("task {task} of {id} has not ended"))?;
        return if session.out.json {
            session.out.json(&json!(found))
        } else {
            print(&ending(&found))
        };
    }
    let answer = pages::all(client, &format!("/v1/jobs/{id}/tasks"), PAGES).await?;
    session.out.answer(answer, |list: &TaskList, _| {
        list.tasks.iter().map(ending).collect()
    })
}

async fn outcome(client: &Client, id: &WorkId, task: u64) -> anyhow::Result<Option<TaskView>> {
    let page: TaskList = client
        .get(&format!("/v1/jobs/{id}/tasks?limit=1&cursor={task}"))
        .await?;
    Ok(page.tasks.into_iter().find(|found| found.task == task))
}

/// Output as it was written, with a line break at its end.
fn ending(task: &TaskView) -> String {
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
    fn since_is_an_instant_or_a_time_ago() {
        let at = since("2026-11-21T10:42:00Z").unwrap();
        assert_eq!(at.to_string(), "2026-11-21T10:42:00.000Z");
        let ago = SystemClock.now().ms_since(since("10m").unwrap());
        assert!((600_000..660_000).contains(&ago), "{ago}");
        assert!(since("yesterday").unwrap_err().contains("10m"));
    }
}
