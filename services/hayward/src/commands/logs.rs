//! `hayward logs ID`: what tasks of a job said last, or what a service writes.
//!
//! The output of tasks is read with their outcomes, so that one task can be picked, and a follower
//! prints each task once although tasks end in any order.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_container_manager_api::{ContainerList, ContainerView, Logs};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_service::Client;
use hayward_vocabulary::{AllocationId, WorkId};
use serde_json::{Value, json};

use crate::commands::tasks::PAGES;
use crate::commands::work;
use crate::connection::pages::{self, Pages};
use crate::connection::{Role, Service, Session};
use crate::output::{note, print, words};

const CONTAINERS: Pages = Pages {
    list: "containers",
    next: "next",
};
/// Seconds the service may wait for more output before an empty answer.
const WAIT: u64 = 20;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// A job or a service, or one instance of a service.
    #[arg(value_name = "ID")]
    pub id: WorkId,
    /// Only this task of a job.
    #[arg(long, value_name = "N")]
    pub task: Option<u64>,
    /// Go on until the work is over.
    #[arg(long, short)]
    pub follow: bool,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    match arguments.id.as_str().split_once('_') {
        Some(("job", _)) => job(&session, &client, &arguments).await,
        Some(("svc", _)) if arguments.task.is_some() => bail!("a service has no tasks"),
        Some(("svc", _)) => service(&session, &client, &arguments).await,
        Some(("rsv", _)) => bail!("a reservation runs nothing, so it says nothing"),
        _ => bail!(
            "{} is no id of work: those begin with job_ or svc_",
            arguments.id
        ),
    }
}

async fn job(session: &Session, client: &Client, arguments: &Arguments) -> anyhow::Result<()> {
    let id = &arguments.id;
    if arguments.follow {
        return follow_job(client, id, arguments.task).await;
    }
    if let Some(task) = arguments.task {
        let found = outcome(client, id, task).await?;
        let found = found.with_context(|| format!("task {task} of {id} has not ended"))?;
        return if session.out.json {
            session.out.json(&json!(found))
        } else {
            say(&found)
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

fn say(task: &TaskView) -> anyhow::Result<()> {
    print(&ending(task))
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

async fn follow_job(client: &Client, id: &WorkId, only: Option<u64>) -> anyhow::Result<()> {
    let mut said = Said::default();
    loop {
        // Asked before the outcomes: when it is over here, all of them are there.
        let view: WorkView = client.get(&format!("/v1/jobs/{id}?wait=1")).await?;
        let mut from = only.unwrap_or(said.floor);
        loop {
            let limit = if only.is_some() { 1 } else { 1000 };
            let path = format!("/v1/jobs/{id}/tasks?limit={limit}&cursor={from}");
            let page: TaskList = client.get(&path).await?;
            let wanted = |task: &&TaskView| only.is_none_or(|only| only == task.task);
            for task in page.tasks.iter().filter(wanted) {
                if said.first_time(task.task) {
                    say(task)?;
                }
            }
            match page.next_cursor.and_then(|cursor| cursor.parse().ok()) {
                Some(next) if only.is_none() => from = next,
                _ => break,
            }
        }
        let picked = only.is_some_and(|task| said.contains(task));
        if view.state.is_final() || picked {
            return Ok(());
        }
    }
}

/// Tasks that were printed: all below the floor, and some above it.
#[derive(Debug, Default)]
struct Said {
    floor: u64,
    above: BTreeSet<u64>,
}

impl Said {
    fn contains(&self, task: u64) -> bool {
        task < self.floor || self.above.contains(&task)
    }

    fn first_time(&mut self, task: u64) -> bool {
        if self.contains(task) {
            return false;
        }
        self.above.insert(task);
        while self.above.remove(&self.floor) {
            self.floor += 1;
        }
        true
    }
}

async fn service(session: &Session, jobs: &Client, arguments: &Arguments) -> anyhow::Result<()> {
    let containers = session.client(Service::ContainerManager, Role::User)?;
    let newest = newest_process(jobs, &containers, &arguments.id).await?;
    let newest = newest.with_context(|| format!("nothing of {} has started yet", arguments.id))?;
    let mut offset = 0;
    loop {
        let wait = if arguments.follow { WAIT } else { 0 };
        let path = format!("/v1/containers/{newest}/logs?offset={offset}&wait={wait}");
        let patience = Duration::from_secs(WAIT + 10);
        let answer: Value = containers.get_within(&path, patience).await?;
        let logs: Logs = serde_json::from_value(answer.clone())?;
        if session.out.json {
            session.out.json(&answer)?;
        } else {
            print(&logs.text)?;
        }
        let more = logs.next_offset > offset;
        offset = logs.next_offset;
        if !more && (logs.ended || !arguments.follow) {
            if logs.ended && !session.out.json {
                say_how_it_ended(&containers, &newest).await;
            }
            return Ok(());
        }
    }
}

/// Beside the output, not in it. Output is kept longer than its container, so this may be unknown.
async fn say_how_it_ended(containers: &Client, id: &AllocationId) {
    let view: Result<ContainerView, _> = containers.get(&format!("/v1/containers/{id}")).await;
    if let Some(exit) = view.ok().and_then(|view| view.entry.exit) {
        note(&format!("ended: {}", words::clean(&words::exit(&exit))));
    }
}

/// The process that started last; of one instance when an instance was named. What ended may have
/// left the view of the service, but its container is still known.
async fn newest_process(
    jobs: &Client,
    containers: &Client,
    id: &WorkId,
) -> anyhow::Result<Option<AllocationId>> {
    let whole = id.whole() == *id;
    if whole {
        let view = work::view(jobs, id).await?;
        let running = view
            .processes
            .iter()
            .filter(|process| process.exit.is_none());
        // Ids sort by age.
        if let Some(newest) = running.map(|process| &process.allocation).max() {
            return Ok(Some(newest.clone()));
        }
    }
    let answer = pages::all(containers, "/v1/containers", CONTAINERS).await?;
    let list: ContainerList = serde_json::from_value(answer)?;
    let theirs = list
        .containers
        .into_iter()
        .map(|view| view.entry)
        .filter(|entry| entry.work == *id || (whole && entry.work.whole() == *id));
    Ok(theirs.map(|entry| entry.id).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_said_once_in_whatever_order_they_end() {
        let mut said = Said::default();
        let order = [2, 0, 0, 1, 5, 2, 3, 4, 5];
        let first: Vec<bool> = order.iter().map(|task| said.first_time(*task)).collect();
        assert_eq!(
            first,
            [true, true, false, true, true, false, true, true, false]
        );
        assert_eq!(
            (said.floor, said.above.len()),
            (6, 0),
            "what is complete takes no room"
        );
    }
}
