//! `hayward cancel ID…`: cancels pieces of work, or single tasks of a job.

use anyhow::Context as _;
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::task_commands::{CancelTasks, TasksCancelled};
use hayward_service::Client;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::WorkId;
use serde_json::Value;

use crate::commands::work;
use crate::connection::{Role, Service, Session};
use crate::output::Renderer;
use crate::output::format::{enum_text, format_count};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Jobs, services or reservations.
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<WorkId>,
    /// Cancel only these tasks of one job: numbers from 0, and ranges of them, as 5-9,12.
    #[arg(long = "task", value_name = "NUMBERS", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// End running tasks of jobs with SIGKILL, without the stop signal and its grace.
    #[arg(long)]
    pub now: bool,
}

/// Cancels each piece of work. The first error ends the command, and previous cancellations stay in
/// force.
pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    if !arguments.tasks.is_empty() {
        let [job] = arguments.ids.as_slice() else {
            anyhow::bail!("--task names tasks of one job: name one id")
        };
        let request = CancelTasks {
            tasks: arguments.tasks,
            now: arguments.now,
        };
        let response = cancel_tasks(&client, job, &request).await?;
        return session.out.print_response(response, render_tasks);
    }
    for id in &arguments.ids {
        let response = if arguments.now {
            cancel_now(&client, id).await?
        } else {
            work::cancel(&client, id).await?
        };
        session.out.print_response(response, |view: &WorkView, _| {
            format!("{} is {}\n", view.id, enum_text(&view.state))
        })?;
    }
    Ok(())
}

/// Cancels a job, and ends its running tasks without a grace.
async fn cancel_now(client: &Client, id: &WorkId) -> anyhow::Result<Value> {
    anyhow::ensure!(
        id.as_str().starts_with("job_"),
        "--now is for jobs, and {id} is none"
    );
    let cancelled = client.delete(&format!("/v1/jobs/{id}?now=true")).await;
    cancelled.with_context(|| format!("cannot cancel {id}"))
}

async fn cancel_tasks(
    client: &Client,
    job: &WorkId,
    request: &CancelTasks,
) -> anyhow::Result<Value> {
    let key = fresh_uuid().to_string();
    let path = format!("/v1/jobs/{job}/tasks/cancel");
    Ok(client.post(&path, request, Some(&key)).await?)
}

fn render_tasks(effect: &TasksCancelled, _: &Renderer) -> String {
    let parts = [
        (effect.cancelled, "cancelled"),
        (effect.stopping, "being stopped"),
        (effect.ended, "ended before"),
    ];
    let texts = parts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = texts
        .map(|(count, text)| format!("{} {text}", format_count(count, "task")))
        .collect();
    format!("{}\n", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Timestamp;

    use super::*;

    #[test]
    fn the_effect_on_tasks_names_only_what_happened() {
        let renderer = Renderer {
            colour: false,
            now: Timestamp::from_unix_ms(0),
        };
        let effect = |cancelled, stopping, ended| TasksCancelled {
            cancelled,
            stopping,
            ended,
            revision: 1,
        };
        let text = render_tasks(&effect(3, 2, 1), &renderer);
        let expected = "3 tasks cancelled, 2 tasks being stopped, 1 task ended before\n";
        assert_eq!(text, expected);
        let text = render_tasks(&effect(0, 1, 0), &renderer);
        assert_eq!(text, "1 task being stopped\n");
    }
}
