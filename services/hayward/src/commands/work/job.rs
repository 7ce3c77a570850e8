//! `hayward job ID`: shows a piece of work, its processes and its failed tasks.

use std::fmt::Write as _;

use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_vocabulary::WorkKind;

use crate::commands::work::tasks;
use crate::commands::work::{self, IdArg};
use crate::connection::{Role, Service, Session};
use crate::output::{parse_response, print};

/// Maximum number of failed tasks in the output. `hayward tasks ID --failed` shows all of them.
const MAX_FAILED_TASKS: usize = 10;

pub async fn run(session: Session, arg: IdArg) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let response = work::fetch_json(&client, &arg.id).await?;
    if session.out.json {
        return session.out.json(&response);
    }
    let view: WorkView = parse_response(response)?;
    let renderer = session.out.renderer();
    let mut text = work::render_details(&view, &renderer);
    let failed = failed_tasks(&client, &view).await?;
    if !failed.is_empty() {
        let _ = write!(text, "\n{}", tasks::render_table(&failed, &renderer));
    }
    if view.state == WorkState::Waiting {
        let _ = writeln!(text, "\nWhy it waits: hayward explain {}", view.id);
    }
    print(&text)
}

/// Reads the first failed tasks of a job. Other work has no tasks.
async fn failed_tasks(client: &Client, view: &WorkView) -> anyhow::Result<Vec<TaskView>> {
    let has_failed_tasks = view.tasks.is_some_and(|tasks| tasks.failed > 0);
    if view.kind != WorkKind::Job || !has_failed_tasks {
        return Ok(Vec::new());
    }
    let path = format!(
        "/v1/jobs/{}/tasks?state=failed&limit={MAX_FAILED_TASKS}",
        view.id
    );
    let page: TaskList = client.get(&path).await?;
    Ok(page.tasks)
}
