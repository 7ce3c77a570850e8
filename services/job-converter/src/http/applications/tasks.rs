//! `/v1/applications/{id}/tasks`: one process each.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::applications::{
    TaskAccepted, TaskSubmission, TaskTransition, TaskTransitionEvent, Told,
};
use hayward_job_converter_application_protocol::ids::TaskId;
use hayward_publication::committer::Committed;
use hayward_service::auth::Caller;
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};

use super::{app_id, ask, changeable, look, put_answer, readable, told_status};
use crate::applications::parse;
use crate::http::{App, revision};
use crate::work::validate;

pub fn task_id(text: &str) -> Result<TaskId, Problem> {
    TaskId::new(text).map_err(|bad| no_id(&bad.to_string()))
}

fn no_id(detail: &str) -> Problem {
    Problem::new(Code::BadRequest, "this is no id for a task").at("/path/task", detail)
}

/// Of a task that somebody adds.
///
/// # Errors
/// Why it cannot have this id.
pub fn new_task_id(text: &str) -> Result<TaskId, String> {
    let id = TaskId::new(text).map_err(|bad| bad.to_string())?;
    if id.is_reserved() {
        return Err("ids beginning tg- and tr- are those of placeholders; choose another".into());
    }
    Ok(id)
}

/// Adds a task. One that is there stays as it is.
#[utoipa::path(
    put, path = "/v1/applications/{id}/tasks/{task}", operation_id = "add_task",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
           ("task" = String, Path, description = "chosen by whoever adds it",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), DryRun),
    request_body = TaskSubmission,
    responses(
        (status = 201, description = "new", body = TaskAccepted,
            headers(("Location" = String, description = "where the task is"))),
        (status = 200, description = "it is there already, or would be with `dry_run`",
            body = TaskAccepted),
        (status = 404, description = "no such application, or not yours", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "the application is over; `failureCode` says why it failed",
            body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "it means nothing that can be done", body = Problem,
            content_type = "application/problem+json"),
        (status = 429, description = "the application has too many", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn add_task(
    State(app): State<App>,
    (caller, headers): (Caller, HeaderMap),
    Path((id, task)): Path<(String, String)>,
    Query(trial): Query<DryRun>,
    Json(given): Json<TaskSubmission>,
) -> Result<(StatusCode, HeaderMap, Json<TaskAccepted>), Problem> {
    let (id, whose) = (app_id(&id)?, changeable(&caller)?);
    let task = new_task_id(&task).map_err(|detail| no_id(&detail))?;
    let (of, owner) = (id.clone(), whose.clone());
    let of = look(&app, move |access| {
        access.applications.of_tasks(&of, &owner)
    })
    .await?;
    let traceparent = crate::http::submit::traceparent(&headers);
    let what = parse::task(&given, &of.value, traceparent).map_err(validate::problem)?;
    let place = format!("/v1/applications/{}/tasks/{}", id.as_str(), task.as_str());
    let done = ask(&app, id.clone(), move |access| {
        let applications = &mut access.applications;
        let new = applications.add_task((&id, &task), &whose, what, access.moment)?;
        Ok((new, applications.show_task((&id, &task), &whose)?))
    });
    let Committed { value, revision } = done.await?;
    let (status, headers) = put_answer(value.0 && !trial.dry_run, &place, revision);
    Ok((status, headers, Json(value.1)))
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
        (status = 404, description = "not there, or not yours to see", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(String, String)>,
) -> Result<Json<TaskAccepted>, Problem> {
    let (id, task, whose) = (app_id(&id)?, task_id(&task)?, readable(&caller)?);
    let shown = look(&app, move |access| {
        access.applications.show_task((&id, &task), &whose)
    });
    Ok(Json(shown.await?.value))
}

/// Forgets a task. What it asked for, or runs, is not given back: complete it for that.
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
        (status = 204, description = "it is not known, now or as before"),
    ),
)]
pub async fn remove_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(String, String)>,
    Query(DryRun { .. }): Query<DryRun>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let (id, task, whose) = (app_id(&id)?, task_id(&task)?, changeable(&caller)?);
    let done = ask(&app, id.clone(), move |access| {
        access.applications.remove_task((&id, &task), &whose);
        Ok(())
    });
    Ok((StatusCode::NO_CONTENT, revision(done.await?.revision)))
}

/// Tells a task that it is complete. What runs of it is ended. With the id of a placeholder its
/// place is given back, and its gang needs one less.
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
        (status = 200, description = "with `dry_run`: whether it would be done", body = Told),
        (status = 202, description = "whether it was done, and why not", body = Told),
        (status = 404, description = "not there, or not yours", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn tell_task(
    State(app): State<App>,
    caller: Caller,
    Path((id, task)): Path<(String, String)>,
    Query(trial): Query<DryRun>,
    Json(told): Json<TaskTransition>,
) -> Result<(StatusCode, HeaderMap, Json<Told>), Problem> {
    let (id, task, whose) = (app_id(&id)?, task_id(&task)?, changeable(&caller)?);
    let TaskTransitionEvent::Complete = told.event;
    let done = ask(&app, id.clone(), move |access| {
        let which = (&id, &task);
        access
            .applications
            .complete_task(which, &whose, access.moment)
    });
    let done = done.await?;
    Ok((
        told_status(trial),
        revision(done.revision),
        Json(done.value),
    ))
}
