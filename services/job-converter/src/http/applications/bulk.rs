//! `POST /v1/applications/{id}/tasks`: adds many tasks at once. Callers choose the ids, so a
//! repeated request changes nothing.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::applications::{BulkTasks, BulkTasksAdded, NamedTask, TaskAdded};
use hayward_service::auth::Requester;
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::problem::{Code, FieldFault, Problem};

use super::tasks::new_task_id;
use super::{app_id, changeable, read_applications, run_command};
use crate::applications::{NewTask, parse};
use crate::http::App;
use crate::http::respond::{revision, traceparent};
use crate::http::submit::{BulkOptions, MAX_IN_BULK};
use crate::work::validate;

/// Tasks in request order, each valid or with its faults.
type Items = Vec<(String, Result<NewTask, Vec<FieldFault>>)>;

/// Adds up to 1,000 tasks; existing ones are not changed.
#[utoipa::path(
    post, path = "/v1/applications/{id}/tasks", operation_id = "add_tasks", tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), BulkOptions),
    request_body = BulkTasks,
    responses(
        (status = 200, description = "with `dry_run`: the same, without adding anything",
            body = BulkTasksAdded),
        (status = 201, description = "one result per task, in order", body = BulkTasksAdded),
        (status = 404, description = "unknown application, or owned by another \
            user", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "the application has ended; `failureCode` has the cause",
            body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "too many tasks, or an invalid one with `atomic`",
            body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "a limit is reached; no task was added",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn add_tasks(
    State(app): State<App>,
    Requester { caller, headers }: Requester,
    Path(id): Path<String>,
    Query(options): Query<BulkOptions>,
    Json(given): Json<BulkTasks>,
) -> Result<(StatusCode, HeaderMap, Json<BulkTasksAdded>), Problem> {
    let (id, owner) = (app_id(&id)?, changeable(&caller)?);
    let (application, filter) = (id.clone(), owner.clone());
    let known = read_applications(&app, move |access| {
        access.applications.task_context(&application, &filter)
    });
    let items = items(
        given,
        &known.await?.value,
        traceparent(&headers).as_deref(),
        options,
    )?;
    let (named, good) = parted(items);
    let done = run_command(&app, id.clone(), move |access| {
        access
            .applications
            .add_tasks(&id, &owner, good, access.moment)
    });
    let done = done.await?;
    let added = results(named, done.value);
    Ok((status(options), revision(done.revision), Json(added)))
}

fn status(options: BulkOptions) -> StatusCode {
    if options.dry_run {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    }
}

/// Parses all tasks; an atomic request fails with all faults.
fn items(
    given: BulkTasks,
    context: &parse::TaskContext,
    traceparent: Option<&str>,
    options: BulkOptions,
) -> Result<Items, Problem> {
    if !(1..=MAX_IN_BULK).contains(&given.tasks.len()) {
        let detail = format!("must be 1 to {MAX_IN_BULK} tasks");
        return Err(Problem::new(Code::Invalid, "invalid bulk request").at("/tasks", detail));
    }
    let mut refusal = Problem::new(Code::Invalid, "some items cannot be accepted");
    let mut items = Items::with_capacity(given.tasks.len());
    for (number, named) in given.tasks.into_iter().enumerate() {
        let item = item(&named, context, traceparent.map(str::to_owned));
        for fault in item.as_ref().err().into_iter().flatten() {
            let pointer = format!("/tasks/{number}{}", fault.pointer);
            refusal = refusal.at(pointer, &*fault.detail);
        }
        items.push((named.id, item));
    }
    let refused = options.atomic && !refusal.errors.is_empty();
    if refused { Err(refusal) } else { Ok(items) }
}

fn item(
    named: &NamedTask,
    context: &parse::TaskContext,
    traceparent: Option<String>,
) -> Result<NewTask, Vec<FieldFault>> {
    let id = new_task_id(&named.id).map_err(|detail| {
        let pointer = "/id".to_owned();
        vec![FieldFault { pointer, detail }]
    });
    let content = parse::task(&named.task, context, traceparent).map_err(|faults| {
        let under = |fault: FieldFault| FieldFault {
            pointer: format!("/task{}", fault.pointer),
            ..fault
        };
        faults.into_iter().map(under).collect()
    });
    match (id, content) {
        (Ok(id), Ok(content)) => Ok(NewTask { id, content }),
        (Err(mut faults), Err(more)) => {
            faults.extend::<Vec<FieldFault>>(more);
            Err(faults)
        }
        (Err(faults), _) | (_, Err(faults)) => Err(faults),
    }
}

/// Separates the valid tasks from the ids and faults.
fn parted(items: Items) -> (Vec<(String, Option<String>)>, Vec<NewTask>) {
    let mut named = Vec::with_capacity(items.len());
    let mut good = Vec::with_capacity(items.len());
    for (id, item) in items {
        let wrong = match item {
            Ok(task) => {
                good.push(task);
                None
            }
            Err(faults) => Some(validate::in_words(&faults)),
        };
        named.push((id, wrong));
    }
    (named, good)
}

fn results(named: Vec<(String, Option<String>)>, new: Vec<bool>) -> BulkTasksAdded {
    let mut new = new.into_iter();
    let result = |(id, error): (String, Option<String>)| TaskAdded {
        id,
        created: error.is_none() && new.next().unwrap_or_default(),
        error,
    };
    BulkTasksAdded {
        results: named.into_iter().map(result).collect(),
    }
}
