//! `POST /v1/applications/{id}/tasks`: adds many tasks at once. Callers choose the ids, so a
//! repeated request changes nothing.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hayward_job_converter_api::applications::{BulkTasks, BulkTasksAdded, NamedTask, TaskAdded};
use hayward_service::auth::Requester;
use hayward_service::http::extract::{Json, Path, Query};
use hayward_service::http::problem::{Code, FieldFault, Problem};

use super::tasks::parse_new_task_id;
use super::{changeable_owner, parse_app_id, read_applications, run_command};
use crate::applications::{NewTask, parse_submission};
use crate::http::App;
use crate::http::headers::{revision_headers, traceparent};
use crate::http::submit::{BulkOptions, MAX_IN_BULK};
use crate::work::validate;

/// Ids of the tasks in request order, each with the parsed task or its faults.
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
    Json(submission): Json<BulkTasks>,
) -> Result<(StatusCode, HeaderMap, Json<BulkTasksAdded>), Problem> {
    let (id, owner) = (parse_app_id(&id)?, changeable_owner(&caller)?);
    let (application_id, owner_filter) = (id.clone(), owner.clone());
    let task_context = read_applications(&app, move |context| {
        context
            .applications
            .task_context(&application_id, &owner_filter)
    });
    let items = parse_items(
        submission,
        &task_context.await?.value,
        traceparent(&headers).as_deref(),
        options,
    )?;
    let (ids_with_faults, valid_tasks) = split_valid(items);
    let committed = run_command(&app, id.clone(), move |context| {
        context
            .applications
            .add_tasks(&id, &owner, valid_tasks, context.moment)
    });
    let committed = committed.await?;
    let added = to_results(ids_with_faults, committed.value);
    Ok((
        success_status(options),
        revision_headers(committed.revision),
        Json(added),
    ))
}

fn success_status(options: BulkOptions) -> StatusCode {
    if options.dry_run {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    }
}

/// Parses all tasks. An atomic request with a fault is refused with all faults.
fn parse_items(
    submission: BulkTasks,
    context: &parse_submission::TaskContext,
    traceparent: Option<&str>,
    options: BulkOptions,
) -> Result<Items, Problem> {
    if !(1..=MAX_IN_BULK).contains(&submission.tasks.len()) {
        let detail = format!("must be 1 to {MAX_IN_BULK} tasks");
        return Err(Problem::new(Code::Invalid, "invalid bulk request").at("/tasks", detail));
    }
    let mut refusal = Problem::new(Code::Invalid, "some items cannot be accepted");
    let mut items = Items::with_capacity(submission.tasks.len());
    for (number, named_task) in submission.tasks.into_iter().enumerate() {
        let item = parse_item(&named_task, context, traceparent.map(str::to_owned));
        for fault in item.as_ref().err().into_iter().flatten() {
            let pointer = format!("/tasks/{number}{}", fault.pointer);
            refusal = refusal.at(pointer, &*fault.detail);
        }
        items.push((named_task.id, item));
    }
    let refused = options.atomic && !refusal.errors.is_empty();
    if refused { Err(refusal) } else { Ok(items) }
}

fn parse_item(
    named_task: &NamedTask,
    context: &parse_submission::TaskContext,
    traceparent: Option<String>,
) -> Result<NewTask, Vec<FieldFault>> {
    let id = parse_new_task_id(&named_task.id).map_err(|detail| {
        let pointer = "/id".to_owned();
        vec![FieldFault { pointer, detail }]
    });
    let content =
        parse_submission::parse_task(&named_task.task, context, traceparent).map_err(|faults| {
            let with_prefix = |fault: FieldFault| FieldFault {
                pointer: format!("/task{}", fault.pointer),
                ..fault
            };
            faults.into_iter().map(with_prefix).collect()
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

/// Returns the id of each task with the text of its faults, and the valid tasks.
fn split_valid(items: Items) -> (Vec<(String, Option<String>)>, Vec<NewTask>) {
    let mut ids_with_faults = Vec::with_capacity(items.len());
    let mut valid_tasks = Vec::with_capacity(items.len());
    for (id, item) in items {
        let fault_text = match item {
            Ok(task) => {
                valid_tasks.push(task);
                None
            }
            Err(faults) => Some(validate::faults_text(&faults)),
        };
        ids_with_faults.push((id, fault_text));
    }
    (ids_with_faults, valid_tasks)
}

/// Returns one result per task. `created` has one element for each valid task, in order.
fn to_results(
    ids_with_faults: Vec<(String, Option<String>)>,
    created: Vec<bool>,
) -> BulkTasksAdded {
    let mut created = created.into_iter();
    let result = |(id, error): (String, Option<String>)| TaskAdded {
        id,
        created: error.is_none() && created.next().unwrap_or_default(),
        error,
    };
    BulkTasksAdded {
        results: ids_with_faults.into_iter().map(result).collect(),
    }
}
