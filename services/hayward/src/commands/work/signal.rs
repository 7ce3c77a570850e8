//! `hayward signal JOB SIGNAL`: sends a signal to running tasks of a job.

use hayward_job_converter_api::signals::SentSignal;
use hayward_job_converter_api::task_commands::{SignalTasks, SignalsSent};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::WorkId;
use serde_json::Value;

use crate::connection::{Role, Service, Session};
use crate::output::Renderer;
use crate::output::format::format_count;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Id of the job.
    #[arg(value_name = "JOB")]
    pub job: WorkId,
    /// TERM, INT, HUP, QUIT, USR1, USR2, ALRM, CONT, STOP or KILL.
    #[arg(value_name = "SIGNAL")]
    pub signal: SentSignal,
    /// Number of the only task that gets it. Default: all running tasks.
    #[arg(long, value_name = "N")]
    pub task: Option<u64>,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    let task = arguments.task.map(|task| format!("/{task}"));
    let task = task.unwrap_or_default();
    let path = format!("/v1/jobs/{}/tasks{task}/signals", arguments.job);
    let request = SignalTasks {
        signal: arguments.signal,
    };
    let key = fresh_uuid().to_string();
    let response: Value = client.post(&path, &request, Some(&key)).await?;
    session.out.print_response(response, render)
}

fn render(sent: &SignalsSent, _: &Renderer) -> String {
    match sent.tasks {
        0 => "no task runs that could take it\n".to_owned(),
        tasks => format!("sent to {}\n", format_count(tasks, "task")),
    }
}
