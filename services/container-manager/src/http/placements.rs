//! `/v1/deployments/{deployment}` and `/v1/containers/{container}/moves`: moves and restarts that
//! external controllers and owners of services request.

mod validation;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_container_manager_api::placements::{
    MoveOrder, PlacementList, PlacementOrder, PlacementStatus, PlacementView, ProcessorList,
    ProcessorView, ResourceRequestList,
};
use hayward_publication::Committed;
use hayward_service::http::extract::DryRun;
use hayward_service::http::idempotency::in_memory;
use hayward_service::http::pagination;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Listing, PageQuery, Path, Query, Scope};
use hayward_vocabulary::AllocationId;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, owner_filter_for_reads};
use crate::command::{
    Command, OwnerFilter, PlacementCommand, PlacementFilter, PlacementId, PlacementReply, Refusal,
    SubmissionResult, SubmittedRequest,
};

const REVISION_HEADER: HeaderName = HeaderName::from_static("hayward-revision");

// Error responses of several routes, for the description of the API.
hayward_service::refusals! {
    OwnersOnly = 403, "only for the owner of the service and operators";
    ReadersOnly = 403, "not for agents and services";
    DeploymentNotFound = 404, "no such deployment, or not visible to you";
    PlacementNotFound = 404, "no such request, or not visible to you";
    ContainerNotFound = 404, "no such container, or not yours";
    ProcessorNotFound = 404, "no such process, or not visible to you";
    DeploymentEnded = 410, "the deployment has ended";
    RequestChanged = 412, "the request has changed since it was read";
}

pub fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(in_memory::require_keys(
            OpenApiRouter::new()
                .routes(routes!(submit_placement, list_placements))
                .routes(routes!(move_container)),
        ))
        .routes(routes!(show_placement, withdraw_placement))
        .routes(routes!(list_processors))
        .routes(routes!(show_processor))
        .routes(routes!(list_resource_requests))
}

/// Sends a command to the ledger and waits until its result is durable.
async fn execute<T: Send + 'static>(
    api: &Api,
    command: impl FnOnce(PlacementReply<T>) -> PlacementCommand,
) -> Result<Committed<T>, Problem> {
    let command = |reply| Command::Placement(Box::new(command(reply)));
    let Committed { value, revision } = api.handle.execute(command).await?;
    Ok(Committed {
        value: value?,
        revision,
    })
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::NotFound(subject) => return Self::not_found(subject),
            Refusal::NotSynced => Code::Unavailable,
            Refusal::Changed(_) => Code::PreconditionFailed,
            Refusal::DeploymentEnded(_) => Code::Gone,
            Refusal::UuidReused(_) => {
                let problem = Self::new(Code::Invalid, refusal.to_string());
                return problem.at("/uuid", "already used for another request");
            }
            Refusal::Busy(_) | Refusal::AlreadyStarted(_) => Code::Conflict,
            Refusal::NotAServiceProcess(_) => Code::Invalid,
        };
        Self::new(code, refusal.to_string())
    }
}

/// Returns the owner whose services the caller may change. `None` if the caller may change all.
fn owner_filter_for_writes(caller: &Caller) -> Result<OwnerFilter, Problem> {
    caller.require(&[Scope::Operator, Scope::Submitter])?;
    Ok((!caller.has(&Scope::Operator)).then(|| caller.name.clone()))
}

/// Request to move or restart a process of a service. A malformed request is refused at once. A
/// request that is invalid when it is served ends with status `BAD_REQUEST`.
#[utoipa::path(
    post, path = "/v1/deployments/{deployment}/placements", operation_id = "submit_placement",
    tag = "placements",
    params(
        ("deployment" = String, Path, description = "id of the deployment or of its service"),
        DryRun,
    ),
    request_body = PlacementOrder,
    responses(
        (status = 202, description = "accepted, with its current \
            status", body = PlacementView, headers(
            ("Location" = String, description = "URL of the request"),
            ("ETag" = String, description = "changes with every change of the request"),
            ("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 200, body = PlacementView,
            description = "the same request was submitted before; with `dry_run`: the expected \
            result"),
        (status = 409, description = "the deployment has ended, or the process is busy and \
            `if_busy` is `reject`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "invalid destination, or the uuid was used for another \
            request",
            body = Problem, content_type = "application/problem+json"),
        OwnersOnly, DeploymentNotFound,
    ),
)]
pub async fn submit_placement(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(dry_run): Query<DryRun>,
    Json(order): Json<PlacementOrder>,
) -> Result<Response, Problem> {
    let owner = owner_filter_for_writes(&caller)?;
    let request = validation::parse_placement_request(deployment, order, &caller)?;
    submit(&api, request, owner, dry_run).await
}

/// Move one container of a service, unless its process is busy.
#[utoipa::path(
    post, path = "/v1/containers/{container}/moves", operation_id = "move_container",
    tag = "placements",
    params(("container" = AllocationId, Path, description = "the id of its allocation"), DryRun),
    request_body = MoveOrder,
    responses(
        (status = 202, description = "accepted, with its current \
            status", body = PlacementView, headers(
            ("Location" = String, description = "URL of the request"),
            ("ETag" = String, description = "changes with every change of the request"),
            ("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 200, body = PlacementView,
            description = "the same request was submitted before; with `dry_run`: the expected \
            result"),
        (status = 409, description = "the process is busy", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid destination, or not a container of a service",
            body = Problem, content_type = "application/problem+json"),
        OwnersOnly, ContainerNotFound,
    ),
)]
pub async fn move_container(
    State(api): State<Api>,
    caller: Caller,
    Path(container): Path<AllocationId>,
    Query(dry_run): Query<DryRun>,
    Json(order): Json<MoveOrder>,
) -> Result<Response, Problem> {
    let owner = owner_filter_for_writes(&caller)?;
    let request = validation::parse_move_request(container, order, &caller)?;
    submit(&api, request, owner, dry_run).await
}

/// Submits a request and creates the response.
async fn submit(
    api: &Api,
    request: SubmittedRequest,
    owner: OwnerFilter,
    DryRun { dry_run }: DryRun,
) -> Result<Response, Problem> {
    let submitted = execute(api, |reply| PlacementCommand::Submit {
        request,
        owner,
        reply,
    });
    let submitted = submitted.await.map_err(|mut problem| {
        // An ended deployment gives 410 when it is read, and 409 when a request is submitted to it.
        if problem.code == Code::Gone {
            problem = Problem::new(Code::Conflict, problem.detail);
        }
        problem
    })?;
    let SubmissionResult { is_new, placement } = submitted.value;
    let status = if is_new && !dry_run {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let location = format!(
        "/v1/deployments/{}/placements/{}",
        placement.deployment_id, placement.uuid
    );
    let headers = [
        (header::LOCATION, location),
        (header::ETAG, validation::etag(&placement)),
        (REVISION_HEADER, submitted.revision.to_string()),
    ];
    Ok((status, headers, Json(placement)).into_response())
}

/// Show one request and its status.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/placements/{uuid}", operation_id = "show_placement",
    tag = "placements",
    params(("deployment" = String, Path, description = "id of the deployment or of its service"),
        ("uuid" = String, Path, description = "the uuid of the request")),
    responses(
        (status = 200, description = "the current state", body = PlacementView,
            headers(("ETag" = String, description = "changes with every change of the request"))),
        ReadersOnly, PlacementNotFound, DeploymentEnded,
    ),
)]
pub async fn show_placement(
    State(api): State<Api>,
    caller: Caller,
    Path((deployment, uuid)): Path<(String, String)>,
) -> Result<([(HeaderName, String); 1], Json<PlacementView>), Problem> {
    let owner = owner_filter_for_reads(&caller)?;
    let id = PlacementId { deployment, uuid };
    let show = execute(&api, |reply| PlacementCommand::Show { id, owner, reply });
    let placement = show.await?.value;
    let etag = (header::ETAG, validation::etag(&placement));
    Ok(([etag], Json(placement)))
}

/// Withdraw a queued request.
#[utoipa::path(
    delete, path = "/v1/deployments/{deployment}/placements/{uuid}",
    operation_id = "withdraw_placement", tag = "placements",
    params(("deployment" = String, Path, description = "id of the deployment or of its service"),
        ("uuid" = String, Path, description = "the uuid of the request"), DryRun,
        ("If-Match" = Option<String>, Header, description = "only if the request has not changed \
            since",
            pattern = "^(\\*|\"?[0-9]{1,19}\"?)$")),
    responses(
        (status = 204, description = "withdrawn"),
        (status = 409, description = "it has started", body = Problem,
            content_type = "application/problem+json"),
        OwnersOnly, PlacementNotFound, DeploymentEnded, RequestChanged,
    ),
)]
pub async fn withdraw_placement(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Path((deployment, uuid)): Path<(String, String)>,
    Query(DryRun { .. }): Query<DryRun>,
) -> Result<StatusCode, Problem> {
    let owner = owner_filter_for_writes(&caller)?;
    let expected_generation = validation::parse_if_match(&headers)?;
    let id = PlacementId { deployment, uuid };
    let withdraw = execute(&api, |reply| PlacementCommand::Withdraw {
        id,
        expected_generation,
        owner,
        reply,
    });
    withdraw.await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListFilter {
    /// Requests for this process.
    #[param(nullable = false, required = false)]
    processor_id: Option<String>,
    /// Requests in this status.
    #[param(nullable = false, required = false)]
    status: Option<PlacementStatus>,
    /// The `next` of the previous page.
    #[param(nullable = false, required = false)]
    after: Option<u64>,
    /// Requests on one page; default 100, at most 1000.
    #[param(nullable = false, required = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List the requests of a deployment, in order of arrival.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/placements", operation_id = "list_placements",
    tag = "placements",
    params(("deployment" = String, Path, description = "id of the deployment or of its service"),
        ListFilter),
    responses(
        (status = 200, description = "in order of arrival", body = PlacementList),
        (status = 422, description = "unknown status", body = Problem,
            content_type = "application/problem+json"),
        ReadersOnly, DeploymentNotFound, DeploymentEnded,
    ),
)]
pub async fn list_placements(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(filter): Query<ListFilter>,
) -> Result<Json<PlacementList>, Problem> {
    let owner = owner_filter_for_reads(&caller)?;
    let limit = pagination::limit(filter.limit, pagination::DEFAULT_LIMIT)?;
    if filter.status == Some(PlacementStatus::Unknown) {
        return Err(validation::unknown_status_problem());
    }
    let filter = PlacementFilter {
        processor: filter.processor_id,
        status: filter.status,
        after: filter.after.unwrap_or(0),
        limit,
    };
    let list = execute(&api, |reply| PlacementCommand::List {
        deployment,
        filter,
        owner,
        reply,
    });
    let Committed { value, revision } = list.await?;
    let next = value.last().map(|it| it.seq + 1);
    Ok(Json(PlacementList {
        next: next.filter(|_| value.len() == limit),
        placements: value,
        revision,
    }))
}

/// Describes the list that a cursor is valid for.
fn deployment_listing(list: &str, deployment: &str) -> Listing {
    Listing::new(list).with("deployment", &Some(deployment))
}

/// List the processes of a deployment, their hosts and actions in flight.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/processors", operation_id = "list_processors",
    tag = "placements",
    params(("deployment" = String, Path, description = "id of the deployment or of its service"),
        PageQuery),
    responses(
        (status = 200, description = "a page, in order of id", body = ProcessorList),
        ReadersOnly, DeploymentNotFound, DeploymentEnded,
    ),
)]
pub async fn list_processors(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ProcessorList>, Problem> {
    let owner = owner_filter_for_reads(&caller)?;
    let listing = deployment_listing("processors", &deployment);
    let processors = execute(&api, |reply| PlacementCommand::ListProcessors {
        deployment,
        owner,
        reply,
    });
    let Committed { value, revision } = processors.await?;
    let (processors, next_cursor) =
        page.page(&listing, value, |processor| processor.id.to_string())?;
    Ok(Json(ProcessorList {
        processors,
        next_cursor,
        revision,
    }))
}

/// Show one process of a deployment.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/processors/{processor}",
    operation_id = "show_processor", tag = "placements",
    params(("deployment" = String, Path, description = "id of the deployment or of its service"),
        ("processor" = String, Path, description = "`svc_….N`, or the part after the dot")),
    responses(
        (status = 200, description = "the current state", body = ProcessorView),
        ReadersOnly, ProcessorNotFound, DeploymentEnded,
    ),
)]
pub async fn show_processor(
    State(api): State<Api>,
    caller: Caller,
    Path((deployment, processor)): Path<(String, String)>,
) -> Result<Json<ProcessorView>, Problem> {
    let owner = owner_filter_for_reads(&caller)?;
    let processors = execute(&api, |reply| PlacementCommand::ListProcessors {
        deployment,
        owner,
        reply,
    });
    let mut processors = processors.await?.value.into_iter();
    let has_id = |it: &ProcessorView| {
        let id = it.id.as_str();
        id == processor
            || id
                .split_once('.')
                .is_some_and(|(_, number)| number == processor)
    };
    let not_found = || Problem::not_found(format!("processor {processor}"));
    processors.find(has_id).map(Json).ok_or_else(not_found)
}

/// List the open requests of a deployment for a further allocation.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/resource-requests",
    operation_id = "list_resource_requests", tag = "placements",
    params(("deployment" = String, Path, description = "id of the deployment or of its service"),
        PageQuery),
    responses(
        (status = 200, description = "a page of open requests", body = ResourceRequestList),
        ReadersOnly, DeploymentNotFound, DeploymentEnded,
    ),
)]
pub async fn list_resource_requests(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ResourceRequestList>, Problem> {
    let owner = owner_filter_for_reads(&caller)?;
    let listing = deployment_listing("resource-requests", &deployment);
    let requests = execute(&api, |reply| PlacementCommand::ListRequests {
        deployment,
        owner,
        reply,
    });
    let Committed { value, revision } = requests.await?;
    let (requests, next_cursor) = page.page(&listing, value, |request| request.id.clone())?;
    Ok(Json(ResourceRequestList {
        requests,
        next_cursor,
        revision,
    }))
}
