//! Routes that change a running service: read its submission, and replace it.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use hayward_job_converter_api::submission::{ServiceChanged, ServiceSubmission};
use hayward_service::auth::{Caller, Requester, Scope};
use hayward_service::http::extract::{DryRun, Json, Path, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{WorkId, WorkKind};

use super::headers::{etag, revision_headers};
use super::submit::to_json;
use super::{App, work};
use crate::command::{ChangeService, Command};
use crate::store;
use crate::work::validate;

/// Replaces the submission of a service. Changing the number of instances starts or stops
/// processes. Changing what its processes run makes a new deployment, which replaces them a few at
/// a time.
#[utoipa::path(
    put, path = "/v1/services/{id}", operation_id = "change_service", tag = "services",
    params(("id" = WorkId, Path, description = "id of the service"),
           ("If-Match" = String, Header, description = "generation the change is based on",
               pattern = "^\"?[0-9]{1,9}\"?$"),
           DryRun),
    request_body = ServiceSubmission,
    responses(
        (status = 200, description = "accepted and durable, or unchanged",
            body = ServiceChanged, headers(("ETag" = String, description = "for If-Match"))),
        (status = 404, description = "not found, or owned by another user", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "the service has ended", body = Problem,
            content_type = "application/problem+json"),
        (status = 412, description = "the generation has changed", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "validation failed; all faults are listed", body = Problem,
            content_type = "application/problem+json"),
        (status = 428, description = "no If-Match", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn change_service(
    State(app): State<App>,
    Requester { caller, headers }: Requester,
    Path(id): Path<WorkId>,
    Query(DryRun { .. }): Query<DryRun>,
    Json(service): Json<ServiceSubmission>,
) -> Result<(HeaderMap, Json<ServiceChanged>), Problem> {
    caller.require(&[Scope::Submitter])?;
    let base_generation = if_match(&headers)?;
    validate::check_service(&service).map_err(validate::into_problem)?;
    let text = to_json(&service)?;
    let user = caller.name.clone();
    let service = Box::new(service);
    let change = Box::new(ChangeService {
        id: id.clone(),
        user,
        base_generation,
        service,
        text,
    });
    let committed = app
        .handle
        .execute(|reply| Command::ChangeService(change, reply))
        .await?;
    let result = committed.value?;
    let generation = u64::from(result.version.generation);
    let mut headers = revision_headers(committed.revision);
    headers.insert(header::ETAG, etag(generation));
    Ok((
        headers,
        Json(ServiceChanged {
            deployment: result.version.deployment(&id),
            id,
            generation,
            changed: result.changed,
            redeployed: result.redeployed,
            revision: committed.revision,
        }),
    ))
}

/// The current submission of a service, to base a change on.
#[utoipa::path(
    get, path = "/v1/services/{id}/submission", operation_id = "show_service_submission",
    tag = "services",
    params(("id" = WorkId, Path, description = "id of the service")),
    responses(
        (status = 200, description = "the submission", body = ServiceSubmission,
            headers(("ETag" = String, description = "for If-Match"))),
        (status = 404, description = "not found, or not visible to the caller", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_service_submission(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkId>,
) -> Result<(HeaderMap, Json<ServiceSubmission>), Problem> {
    // The environment may contain secrets, so viewers are excluded.
    caller.require(&[Scope::Submitter, Scope::Operator])?;
    app.publisher.readable()?;
    let (uuid, _) = work::find_readable(&app, &caller, WorkKind::Service, &id)?;
    let unavailable = |error| Problem::unavailable("the submission cannot be read now", error);
    let found = store::work::load_current_submission(&app.pool, uuid)
        .await
        .map_err(unavailable)?;
    let found = found.ok_or_else(|| Problem::not_found(&id))?;
    let service = serde_json::from_str(&found.submission).map_err(Problem::internal)?;
    let generation = u64::try_from(found.generation).unwrap_or(0);
    let headers = HeaderMap::from_iter([(header::ETAG, etag(generation))]);
    Ok((headers, Json(service)))
}

/// Returns the generation in the `If-Match` header.
fn if_match(headers: &HeaderMap) -> Result<u32, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let detail = "send the ETag of the service you changed as If-Match";
        return Err(Problem::new(Code::PreconditionRequired, detail));
    };
    let text = value.to_str().unwrap_or_default().trim_matches('"');
    text.parse().map_err(|_| {
        let detail = "If-Match is the ETag of the service, as in \"3\"";
        Problem::new(Code::BadRequest, detail)
    })
}
