//! `/v1/applications/{id}/tasks`: tasks of an application, one process each.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::applications::{
    TaskAccepted, TaskSubmission, TaskTransition, TaskTransitionEvent, TransitionResult,
};
use hayward_job_converter_application_protocol::ids::TaskId;
use hayward_publication::committer::Committed;
use hayward_service::auth::{Caller, Requester};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};

use super::{
    changeable_owner, command_status, parse_app_id, put_response, read_applications,
    readable_owner, run_command,
};
use crate::applications::{NewTask, parse_submission};
use crate::http::App;
use crate::http::headers::{revision_headers, traceparent};
use crate::work::validate;

pub fn parse_task_id(text: &str) -> Result<TaskId, Problem> {
    TaskId::new(text).map_err(|error| invalid_id(&error.to_string()))
}

fn invalid_id(detail: &str) -> Problem {
    Problem::new(Code::BadRequest, "invalid task id").at("/path/task", detail)
}

/// Parses the id of a new task.
///
/// # Errors
/// Returns the reason why the id is not allowed.
pub fn parse_new_task_id(text: &str) -> Result<TaskId, String> {
    let id = TaskId::new(text).map_err(|error| error.to_string())?;
    if id.is_reserved() {
        return Err("ids beginning tg- and tr- are those of placeholders; choose another".into());
    }
    Ok(id)
}

/// Adds a task. An existing one is not changed.
#[utoipa::path(
    put, path = "/v1/applications/{id}/tasks/{task}", operation_id = "add_task",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
           ("task" = String, Path, description = "chosen by the caller",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), DryRun),
    request_body = TaskSubmission,
    responses(
        (status = 201, description = "new", body = TaskAccepted,
            headers(("Location" = String, description = "where the task is"))),
        (status = 200, description = "it exists already; or the result of `dry_run`",
            body = TaskAccepted),
        (status = 404, description = "unknown application, or owned by another \
            user", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "the application has ended; `failureCode` has the cause",
            body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "validation failed; all faults are listed", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "the application has too many tasks", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn add_task(
    State(app): State<App>,
    Requester { caller, headers }: Requester,
    Path((id, task)): Path<(String, String)>,
    Query(options): Query<DryRun>,
    Json(submission): Json<TaskSubmission>,
) -> Result<(StatusCode, HeaderMap, Json<TaskAccepted>), Problem> {
    let (id, owner) = (parse_app_id(&id)?, changeable_owner(&caller)?);
    let task = parse_new_task_id(&task).map_err(|detail| invalid_id(&detail))?;
    let (application_id, owner_filter) = (id.clone(), owner.clone());
    let task_context = read_applications(&app, move |context| {
        context
            .applications
            .task_context(&application_id, &owner_filter)
    })
    .await?;
    let traceparent = traceparent(&headers);
    let new = NewTask {
        id: task.clone(),
        content: parse_submission::parse_task(&submission, &task_context.value, traceparent)
            .map_err(validate::into_problem)?,
    };
    let location = format!("/v1/applications/{}/tasks/{}", id.as_str(), task.as_str());
    let committed = run_command(&app, id.clone(), move |context| {
        let applications = &mut *context.applications;
        let is_new = applications.add_task(&id, &owner, new, context.moment)?;
        Ok((is_new, applications.show_task(&id, &task, &owner)?))
    });
    let Committed { value, revision } = committed.await?;
    let (is_new, task) = value;
    let (status, headers) = put_response(is_new && !options.dry_run, &location, revision);
    Ok((status, headers, Json(task)))
}

/// One task.
#[utoipa::path(
    get, path = "/v1/applications/{id}/tasks/{task}", operation_id = "show_task",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
           ("task" = String, Path, description = "id of the task",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")),
    responses(
        (status = 200, description = "the task", body = TaskAccepted),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(String, String)>,
) -> Result<Json<TaskAccepted>, Problem> {
    let (id, task, owner) = (
        parse_app_id(&id)?,
        parse_task_id(&task)?,
        readable_owner(&caller)?,
    );
    let task_view = read_applications(&app, move |context| {
        context.applications.show_task(&id, &task, &owner)
    });
    Ok(Json(task_view.await?.value))
}

/// Forgets a task. Its ask or process is not released; complete the task for that.
#[utoipa::path(
    delete, path = "/v1/applications/{id}/tasks/{task}", operation_id = "remove_task",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
           ("task" = String, Path, description = "id of the task",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), DryRun),
    responses(
        (status = 204, description = "unknown now, or unknown before"),
    ),
)]
pub async fn remove_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(String, String)>,
    Query(DryRun { .. }): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let (id, task, owner) = (
        parse_app_id(&id)?,
        parse_task_id(&task)?,
        changeable_owner(&caller)?,
    );
    let committed = run_command(&app, id.clone(), move |context| {
        context.applications.remove_task(&id, &task, &owner);
        Ok(())
    });
    Ok((
        StatusCode::NO_CONTENT,
        revision_headers(committed.await?.revision),
    ))
}

/// Completes a task and ends its process. Completing a placeholder releases its allocation, and its
/// gang needs one member less.
#[utoipa::path(
    post, path = "/v1/applications/{id}/tasks/{task}/transitions", operation_id = "tell_task",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
           ("task" = String, Path, description = "id of the task, or of a placeholder",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), DryRun),
    request_body = TaskTransition,
    responses(
        (status = 200, description = "with `dry_run`: whether it would be applied",
            body = TransitionResult),
        (status = 202, description = "whether it was applied, and why not",
            body = TransitionResult),
        (status = 404, description = "not found, or owned by another user", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn transition_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(String, String)>,
    Query(options): Query<DryRun>,
    Json(transition): Json<TaskTransition>,
) -> Result<(StatusCode, HeaderMap, Json<TransitionResult>), Problem> {
    let (id, task, owner) = (
        parse_app_id(&id)?,
        parse_task_id(&task)?,
        changeable_owner(&caller)?,
    );
    let TaskTransitionEvent::Complete = transition.event;
    let committed = run_command(&app, id.clone(), move |context| {
        context
            .applications
            .complete_task(&id, &task, &owner, context.moment)
    });
    let committed = committed.await?;
    Ok((
        command_status(options),
        revision_headers(committed.revision),
        Json(committed.value),
    ))
}
