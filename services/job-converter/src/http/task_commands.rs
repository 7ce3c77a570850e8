//! Routes of commands about single tasks: users cancel them, and runners follow their commands.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_job_converter_api::task_commands::{
    CancelTasks as CancelRequest, CommandKind, CommandList, RunnerCommand,
    SignalTasks as SignalRequest, SignalsSent, TasksCancelled,
};
use hayward_job_converter_domain::NumberedCommand;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::Problem;
use hayward_vocabulary::{AllocationId, WorkId, WorkKind};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use super::App;
use super::headers::revision_headers;
use super::work::{change_target, stop_speed};
use crate::command::{CancelTasks, CancelledTasks, Command, RunnerCommandsQuery, SignalTasks};
use crate::work::task_numbers::parse_task_numbers;
use crate::work::{StopSpeed, TaskAction, TaskCommand};

/// Cancels single tasks of a job.
///
/// Waiting tasks are cancelled at once. Running ones get the stop signal.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/tasks/cancel", operation_id = "cancel_tasks", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"), DryRun),
    request_body = CancelRequest,
    responses(
        (status = 200, description = "how many tasks are cancelled, stopped, and had ended; with \
            `dry_run`: the same, without cancelling any", body = TasksCancelled),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "no numbers of tasks of this job", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_tasks(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(_options): Query<DryRun>,
    Json(request): Json<CancelRequest>,
) -> Result<(HeaderMap, Json<TasksCancelled>), Problem> {
    let command = CancelTasks {
        target: change_target(&caller, WorkKind::Job, &id)?,
        tasks: parse_task_numbers(&request.tasks)?,
        speed: stop_speed(request.now),
    };
    let committed = app
        .handle
        .execute(|reply| Command::CancelTasks(command, reply));
    let committed = committed.await?;
    let answer = to_answer(committed.value?, committed.revision);
    Ok((revision_headers(committed.revision), Json(answer)))
}

fn to_answer(cancelled: CancelledTasks, revision: u64) -> TasksCancelled {
    TasksCancelled {
        cancelled: cancelled.cancelled,
        stopping: cancelled.stopping,
        ended: cancelled.ended,
        revision,
    }
}

/// Sends a signal to all running tasks of a job.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/tasks/signals", operation_id = "signal_tasks", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"), DryRun),
    request_body = SignalRequest,
    responses(
        (status = 200, description = "how many tasks it was sent to; with `dry_run`: would be \
            sent to", body = SignalsSent),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn signal_tasks(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
    Query(_options): Query<DryRun>,
    Json(request): Json<SignalRequest>,
) -> Result<(HeaderMap, Json<SignalsSent>), Problem> {
    let target = change_target(&caller, WorkKind::Job, &id)?;
    let command = SignalTasks {
        target,
        task: None,
        signal: request.signal,
    };
    send_signal(&app, command).await
}

/// Sends a signal to one running task.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/tasks/{task}/signals", operation_id = "signal_job_task",
    tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"),
           ("task" = u64, Path, description = "number of the task, from 0"), DryRun),
    request_body = SignalRequest,
    responses(
        (status = 200, description = "1, or 0 if the task does not run", body = SignalsSent),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "the job has no such task", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn signal_job_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(WorkId, u64)>,
    Query(_options): Query<DryRun>,
    Json(request): Json<SignalRequest>,
) -> Result<(HeaderMap, Json<SignalsSent>), Problem> {
    let target = change_target(&caller, WorkKind::Job, &id)?;
    let command = SignalTasks {
        target,
        task: Some(task),
        signal: request.signal,
    };
    send_signal(&app, command).await
}

async fn send_signal(
    app: &App,
    command: SignalTasks,
) -> Result<(HeaderMap, Json<SignalsSent>), Problem> {
    let committed = app
        .handle
        .execute(|reply| Command::SignalTasks(command, reply))
        .await?;
    let sent = SignalsSent {
        tasks: committed.value?,
        revision: committed.revision,
    };
    Ok((revision_headers(committed.revision), Json(sent)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CommandsQuery {
    /// Allocation of the runner.
    allocation: AllocationId,
    /// Number of the last command that the runner has carried out. Default 0.
    #[serde(default)]
    #[param(required = false)]
    after: u64,
    /// Seconds to wait for a command before an empty answer; at most 25.
    #[serde(
        default,
        deserialize_with = "hayward_service::http::limits::wait_seconds"
    )]
    #[param(required = false, maximum = 25)]
    wait: u64,
}

/// Commands to a runner about its tasks.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/tasks/commands", operation_id = "follow_commands", tag = "tasks",
    params(("id" = WorkId, Path, description = "id of the job"), CommandsQuery),
    responses(
        (status = 200, description = "the commands, or none after the wait", body = CommandList),
        (status = 403, description = "a token for another job", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "no such job", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_commands(
    State(app): State<App>,
    caller: Caller,
    Path(job): Path<WorkId>,
    Query(query): Query<CommandsQuery>,
) -> Result<Json<CommandList>, Problem> {
    let deadline = Instant::now() + Duration::from_secs(query.wait);
    let mut changes = app.shared.commands.subscribe(query.allocation.clone());
    let commands = loop {
        let commands = read_commands(&app, &caller, &job, &query).await?;
        if !commands.is_empty() || Instant::now() >= deadline {
            break commands;
        }
        // After a timeout the commands are read once more.
        let _ = timeout_at(deadline, changes.changed()).await;
    };
    let commands = commands.into_iter().map(to_wire).collect();
    Ok(Json(CommandList { commands }))
}

async fn read_commands(
    app: &App,
    caller: &Caller,
    job: &WorkId,
    query: &CommandsQuery,
) -> Result<Vec<NumberedCommand<TaskCommand>>, Problem> {
    let runner = caller.runner().cloned();
    let query = RunnerCommandsQuery {
        job: job.clone(),
        runner: runner.ok_or_else(|| Problem::forbidden("only task runners may do this"))?,
        allocation: query.allocation.clone(),
        after: query.after,
    };
    let read = app
        .handle
        .read(|reply| Command::RunnerCommands(query, reply));
    Ok(read.await?.value?)
}

fn to_wire(NumberedCommand { number, command }: NumberedCommand<TaskCommand>) -> RunnerCommand {
    let (kind, grace_ms, signal) = match command.action {
        TaskAction::Stop(StopSpeed::Graceful) => (CommandKind::StopTask, None, None),
        TaskAction::Stop(StopSpeed::AtOnce) => (CommandKind::StopTask, Some(0), None),
        TaskAction::Signal(signal) => (CommandKind::SignalTask, None, Some(signal.to_string())),
    };
    RunnerCommand {
        number,
        kind,
        task: command.task,
        attempt: command.attempt,
        grace_ms,
        signal,
    }
}
