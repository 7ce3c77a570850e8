//! `/v1/applications`: the application protocol. Callers choose all ids, so requests are idempotent
//! without a key.

pub mod bulk_tasks;
pub mod tasks;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use hayward_job_converter_api::applications::{
    ApplicationList, ApplicationSubmission, ApplicationView, Confirmation, Transition,
    TransitionEvent, TransitionResult,
};
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_publication::committer::{Committed, Reply};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::pagination;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::UserName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::headers::revision_headers;
use super::{App, work};
use crate::applications::{
    ApplicationCommand, CommandContext, OwnerFilter, Refusal, RemovalMode, parse_submission,
};
use crate::command::Command;
use crate::work::validate;

/// Applies a command to an application and waits for its commit. A dry run applies it to a copy
/// (A10).
async fn run_command<T: Send + 'static>(
    app: &App,
    application: AppId,
    command: impl FnOnce(&mut CommandContext<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<Committed<T>, Problem> {
    flatten_result(
        app.handle
            .execute(|reply| Command::ChangeApplication(application, with_reply(command, reply)))
            .await?,
    )
}

/// Returns the status and headers of the response to a `PUT`.
fn put_response(is_new: bool, location: &str, committed_revision: u64) -> (StatusCode, HeaderMap) {
    let mut headers = revision_headers(committed_revision);
    if !is_new {
        return (StatusCode::OK, headers);
    }
    if let Ok(location) = HeaderValue::try_from(location) {
        headers.insert(header::LOCATION, location);
    }
    (StatusCode::CREATED, headers)
}

/// Returns the success status of a command or its dry run.
fn command_status(DryRun { dry_run }: DryRun) -> StatusCode {
    if dry_run {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    }
}

/// Reads applications. A dry run is permitted, because reading changes nothing (A10).
async fn read_applications<T: Send + 'static>(
    app: &App,
    command: impl FnOnce(&CommandContext<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<Committed<T>, Problem> {
    let command = |context: &mut CommandContext<'_>| command(context);
    flatten_result(
        app.handle
            .execute(|reply| Command::ReadApplications(with_reply(command, reply)))
            .await?,
    )
}

/// Wraps a command so that it sends its own response.
fn with_reply<T: Send + 'static>(
    command: impl FnOnce(&mut CommandContext<'_>) -> Result<T, Refusal> + Send + 'static,
    reply: Reply<Result<T, Refusal>>,
) -> ApplicationCommand {
    Box::new(move |mut context| {
        let result = command(&mut context);
        context.batch.answer(reply, result);
    })
}

fn flatten_result<T>(committed: Committed<Result<T, Refusal>>) -> Result<Committed<T>, Problem> {
    let Committed { value, revision } = committed;
    let value = value?;
    Ok(Committed { value, revision })
}

/// Returns the owner whose applications the caller may read.
fn readable_owner(caller: &Caller) -> Result<OwnerFilter, Problem> {
    Ok(work::readable_user(caller)?.map(str::to_owned))
}

/// Returns the owner whose applications the caller may change.
fn changeable_owner(caller: &Caller) -> Result<OwnerFilter, Problem> {
    caller.require(&[Scope::Submitter, Scope::Operator])?;
    let is_operator = caller.has(&Scope::Operator);
    Ok((!is_operator).then(|| caller.name.clone()))
}

fn parse_app_id(text: &str) -> Result<AppId, Problem> {
    AppId::new(text).map_err(|error| {
        Problem::new(Code::BadRequest, "invalid id").at("/path/id", error.to_string())
    })
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AddOptions {
    /// `false` drops a list of task groups with faults and continues without a gang.
    #[param(required = false, nullable = false)]
    strict: Option<bool>,
    /// Validates and answers without changing anything (A10).
    #[param(required = false)]
    #[serde(default)]
    dry_run: bool,
}

/// Adds an application. An existing one is not changed; the answer lists the ignored fields.
#[utoipa::path(
    put, path = "/v1/applications/{id}", operation_id = "add_application", tag = "applications",
    params(("id" = String, Path, description = "chosen by the caller"), AddOptions),
    request_body = ApplicationSubmission,
    responses(
        (status = 201, description = "new", body = ApplicationView,
            headers(("Location" = String, description = "where the application is"))),
        (status = 200, description = "it exists already; or the result of `dry_run`",
            body = ApplicationView),
        (status = 409, description = "the id is used by another user", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "validation failed; all faults of its task \
            groups", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "a limit is reached", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn add_application(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(options): Query<AddOptions>,
    Json(submission): Json<ApplicationSubmission>,
) -> Result<(StatusCode, HeaderMap, Json<ApplicationView>), Problem> {
    let (id, user) = (parse_app_id(&id)?, require_user(&caller)?);
    let parse_options = parse_submission::ParseOptions {
        strict: options.strict.unwrap_or(true),
        max_members: app.shared.settings.max_application_tasks,
    };
    let parsed =
        parse_submission::parse_application(&submission, user, &caller.groups, parse_options)
            .map_err(validate::into_problem)?;
    let location = format!("/v1/applications/{}", id.as_str());
    let committed = run_command(&app, id.clone(), move |context| {
        let (is_new, ignored_fields) =
            context
                .applications
                .add(&id, parsed, fresh_uuid(), context.moment)?;
        let mut view = context.show(&id, &None)?;
        view.ignored_fields = ignored_fields;
        Ok((is_new, view))
    });
    let Committed { value, revision } = committed.await?;
    let (is_new, view) = value;
    let (status, headers) = put_response(is_new && !options.dry_run, &location, revision);
    Ok((status, headers, Json(view)))
}

/// Returns the user that the token names (D11).
fn require_user(caller: &Caller) -> Result<UserName, Problem> {
    caller.require(&[Scope::Submitter])?;
    UserName::new(caller.name.as_str())
        .map_err(|error| Problem::forbidden(format!("this token names no user: {error}")))
}

/// One application, with its tasks, groups, placeholders and both state logs.
#[utoipa::path(
    get, path = "/v1/applications/{id}", operation_id = "show_application", tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")),
    responses(
        (status = 200, description = "the application", body = ApplicationView),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_application(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ApplicationView>, Problem> {
    let (id, owner) = (parse_app_id(&id)?, readable_owner(&caller)?);
    let view = read_applications(&app, move |context| context.show(&id, &owner)).await?;
    Ok(Json(view.value))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only applications in this state, such as `Running`.
    #[param(required = false, nullable = false)]
    state: Option<String>,
    /// Only applications of this user; operators and viewers may name any user.
    #[param(required = false, nullable = false)]
    user: Option<UserName>,
    /// Entries, at most. Default 100, maximum 1000.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `nextCursor` of the previous page.
    #[param(required = false, nullable = false)]
    cursor: Option<String>,
}

impl ListQuery {
    fn listing(&self) -> hayward_service::Listing {
        hayward_service::Listing::new("/v1/applications")
            .with("state", &self.state)
            .with("user", &self.user)
    }
}

/// Lists applications by id: one's own, or all for operators and viewers.
#[utoipa::path(
    get, path = "/v1/applications", operation_id = "list_applications", tag = "applications",
    params(ListQuery),
    responses(
        (status = 200, description = "a page", body = ApplicationList),
        (status = 422, description = "unknown state", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn list_applications(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<ApplicationList>, Problem> {
    let listing = query.listing();
    let filter = parse_filter(&caller, query)?;
    let list = read_applications(&app, move |context| Ok(context.applications.list(&filter)));
    let Committed { value, revision } = list.await?;
    let mut list = ApplicationList { revision, ..value };
    list.next_cursor = list.next_cursor.map(|last| listing.cursor(last));
    Ok(Json(list))
}

fn check_state(state: &str) -> Result<(), Problem> {
    let state_names = crate::applications::state_names();
    if state_names.iter().any(|it| it == state) {
        return Ok(());
    }
    let problem = Problem::new(Code::Invalid, "unknown state");
    Err(problem.at(
        "/query/state",
        format!("must be one of {}", state_names.join(", ")),
    ))
}

fn parse_filter(caller: &Caller, query: ListQuery) -> Result<crate::applications::Filter, Problem> {
    let invalid_cursor = || {
        let problem = Problem::new(Code::BadRequest, "invalid page parameters");
        problem.at("/query/cursor", "take it from `nextCursor`")
    };
    let limit = pagination::limit(query.limit, pagination::DEFAULT_LIMIT)?;
    if let Some(state) = &query.state {
        check_state(state)?;
    }
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| query.listing().last_key(cursor));
    let after = after.transpose()?;
    let after = after.map(AppId::new).transpose();
    let after = after.map_err(|_| invalid_cursor())?;
    let user = match (readable_owner(caller)?, query.user) {
        (Some(own), Some(user)) if user.as_str() != own => {
            let detail = "only operators and viewers may see applications of other users";
            return Err(Problem::forbidden(detail));
        }
        (own, user) => own.or(user.map(String::from)),
    };
    Ok(crate::applications::Filter {
        user,
        state: query.state,
        limit,
        after,
    })
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveOptions {
    /// Stops live tasks; without it, live tasks prevent the removal.
    #[param(required = false, nullable = false)]
    force: Option<bool>,
    /// Validates and answers without changing anything (A10).
    #[param(required = false)]
    #[serde(default)]
    #[expect(dead_code, reason = "documented here; the committer reads it")]
    dry_run: bool,
}

/// Removes an application. Its id may be used again.
#[utoipa::path(
    delete, path = "/v1/applications/{id}", operation_id = "remove_application",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), RemoveOptions),
    responses(
        (status = 204, description = "removed"),
        (status = 404, description = "not found, or owned by another user", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "live tasks prevent this; `blockingTasks` lists them",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn remove_application(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(options): Query<RemoveOptions>,
) -> Result<(StatusCode, HeaderMap), Problem> {
    let (id, owner) = (parse_app_id(&id)?, changeable_owner(&caller)?);
    let mode = if options.force.unwrap_or(false) {
        RemovalMode::Force
    } else {
        RemovalMode::Strict
    };
    let committed = run_command(&app, id.clone(), move |context| {
        context
            .applications
            .remove(&id, &owner, mode, context.batch)
    });
    Ok((
        StatusCode::NO_CONTENT,
        revision_headers(committed.await?.revision),
    ))
}

/// Completes, fails or kills an application.
#[utoipa::path(
    post, path = "/v1/applications/{id}/transitions", operation_id = "tell_application",
    tag = "applications",
    params(("id" = String, Path, description = "id of the application",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), DryRun),
    request_body = Transition,
    responses(
        (status = 200, description = "with `dry_run`: whether it would be applied",
            body = TransitionResult),
        (status = 202, description = "whether it was applied, and why not",
            body = TransitionResult),
        (status = 404, description = "not found, or owned by another user", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "the reason is too long", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn transition_application(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(options): Query<DryRun>,
    Json(transition): Json<Transition>,
) -> Result<(StatusCode, HeaderMap, Json<TransitionResult>), Problem> {
    let (id, owner) = (parse_app_id(&id)?, changeable_owner(&caller)?);
    let input = parse_transition(transition)?;
    let committed = run_command(&app, id.clone(), move |context| {
        context
            .applications
            .transition(&id, &owner, input, context.moment)
    });
    let committed = committed.await?;
    Ok((
        command_status(options),
        revision_headers(committed.revision),
        Json(committed.value),
    ))
}

fn parse_transition(transition: Transition) -> Result<frontend::Input, Problem> {
    let reason = transition.reason;
    let is_too_long = |it: &String| it.len() > validate::MAX_TEXT_LENGTH;
    if reason.as_ref().is_some_and(is_too_long) {
        let detail = format!("longer than {} bytes", validate::MAX_TEXT_LENGTH);
        return Err(Problem::new(Code::Invalid, "the reason is too long").at("/reason", detail));
    }
    Ok(match transition.event {
        TransitionEvent::Complete => frontend::Input::Complete,
        TransitionEvent::Fail => frontend::Input::Fail { reason },
        TransitionEvent::Kill => frontend::Input::Kill,
    })
}

/// Confirms that a released allocation has ended. Repeating it changes nothing.
#[utoipa::path(
    post, path = "/v1/allocations/{key}/confirmations", operation_id = "confirm_release",
    tag = "applications",
    params(("key" = String, Path, description = "id of the task",
        max_length = 128,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), DryRun),
    request_body = Confirmation,
    responses(
        (status = 200, description = "whether it was applied, and why not",
            body = TransitionResult),
        (status = 404, description = "not found, owned by another user, or removed before a \
            restart",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn confirm_release(
    State(app): State<App>,
    caller: Caller,
    Path(key): Path<String>,
    Query(DryRun { .. }): Query<DryRun>,
    Json(submission): Json<Confirmation>,
) -> Result<(HeaderMap, Json<TransitionResult>), Problem> {
    let id = AppId::new(submission.application_id).map_err(|error| {
        Problem::new(Code::Invalid, "invalid id").at("/applicationId", error.to_string())
    })?;
    let owner = changeable_owner(&caller)?;
    let task = tasks::parse_task_id(&key)?;
    let committed = run_command(&app, id.clone(), move |context| {
        context
            .applications
            .confirm(&id, &task, &owner, context.moment)
    });
    let Committed {
        value,
        revision: committed_revision,
    } = committed.await?;
    Ok((revision_headers(committed_revision), Json(value)))
}
