//! `/v1/deployments/{deployment}`: what outside controllers and owners of services order.

mod order;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_container_manager_api::placements::{
    MoveOrder, PlacementList, PlacementOrder, PlacementStatus, PlacementView, ProcessorList,
    ProcessorView, ResourceRequestList,
};
use hayward_publication::Committed;
use hayward_service::http::extract::Trial;
use hayward_service::http::idempotency::in_memory;
use hayward_service::http::pagination;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Listing, Paged, Path, Query, Scope};
use hayward_vocabulary::AllocationId;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, visible_owner};
use crate::command::{
    Command, OwnerFilter, PlacementCommand, PlacementFilter, PlacementId, PlacementReply, Refusal,
    SubmittedRequest,
};

const REVISION: HeaderName = HeaderName::from_static("hayward-revision");

hayward_service::refusals! {
    OwnersOnly = 403, "for the owner of the service and operators";
    NoReader = 403, "not for agents and services";
    NoDeployment = 404, "no such deployment, or not yours to see";
    NoOrder = 404, "no such order, or not yours to see";
    NoContainer = 404, "no such container, or not yours";
    NoProcess = 404, "no such process, or not yours to see";
    Over = 410, "the deployment is over";
    Changed = 412, "it changed since it was read";
}

pub fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(in_memory::keyed(
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
    let command = |reply| Command::Placements(Box::new(command(reply)));
    let Committed { value, revision } = api.handle.ask(command).await?;
    Ok(Committed {
        value: value?,
        revision,
    })
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::NotFound(what) => return Self::not_found(what),
            Refusal::NotSynced => Code::Unavailable,
            Refusal::Changed(_) => Code::PreconditionFailed,
            Refusal::DeploymentEnded(_) => Code::Gone,
            Refusal::UuidReused(_) => {
                let problem = Self::new(Code::Invalid, refusal.to_string());
                return problem.at("/uuid", "used before for another order");
            }
            Refusal::Busy(_) | Refusal::AlreadyStarted(_) => Code::Conflict,
            Refusal::NotOfAService(_) => Code::Invalid,
        };
        Self::new(code, refusal.to_string())
    }
}

/// Operators act for everybody, users for their own services.
fn changeable_owner(caller: &Caller) -> Result<OwnerFilter, Problem> {
    caller.require(&[Scope::Operator, Scope::Submitter])?;
    Ok((!caller.has(&Scope::Operator)).then(|| caller.name.clone()))
}

/// Order a process of a service to be moved or restarted. What is not valid when its turn comes
/// ends as `BAD_REQUEST`; only what cannot be an order at all is refused here.
#[utoipa::path(
    post, path = "/v1/deployments/{deployment}/placements", operation_id = "submit_placement",
    tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"), Trial),
    request_body = PlacementOrder,
    responses(
        (status = 202, description = "taken in, as it stands now", body = PlacementView, headers(
            ("Location" = String, description = "where it can be watched"),
            ("ETag" = String, description = "counts its changes"),
            ("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 200, body = PlacementView,
            description = "the same was ordered before; with `dry_run`: what would be there"),
        (status = 409, description = "the deployment is over, or the process busy and `reject` was \
            asked for", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "no such destination, or the uuid stands for another order",
            body = Problem, content_type = "application/problem+json"),
        OwnersOnly, NoDeployment,
    ),
)]
pub async fn submit_placement(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(trial): Query<Trial>,
    Json(order): Json<PlacementOrder>,
) -> Result<Response, Problem> {
    let owner = changeable_owner(&caller)?;
    let request = order::placement(deployment, order, &caller)?;
    post(&api, request, owner, trial).await
}

/// Move one container of a service, unless its process is busy.
#[utoipa::path(
    post, path = "/v1/containers/{container}/moves", operation_id = "move_container",
    tag = "placements",
    params(("container" = AllocationId, Path, description = "the id of its allocation"), Trial),
    request_body = MoveOrder,
    responses(
        (status = 202, description = "taken in, as it stands now", body = PlacementView, headers(
            ("Location" = String, description = "where it can be watched"),
            ("ETag" = String, description = "counts its changes"),
            ("Hayward-Revision" = u64, description = "revision of this write"))),
        (status = 200, body = PlacementView,
            description = "the same was ordered before; with `dry_run`: what would be there"),
        (status = 409, description = "the process is busy", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "no such destination, or no container of a service",
            body = Problem, content_type = "application/problem+json"),
        OwnersOnly, NoContainer,
    ),
)]
pub async fn move_container(
    State(api): State<Api>,
    caller: Caller,
    Path(container): Path<AllocationId>,
    Query(trial): Query<Trial>,
    Json(order): Json<MoveOrder>,
) -> Result<Response, Problem> {
    let owner = changeable_owner(&caller)?;
    let request = order::movement(container, order, &caller)?;
    post(&api, request, owner, trial).await
}

async fn post(
    api: &Api,
    request: SubmittedRequest,
    owner: OwnerFilter,
    Trial { dry_run }: Trial,
) -> Result<Response, Problem> {
    let done = execute(api, |reply| PlacementCommand::Submit {
        request,
        owner,
        reply,
    });
    let done = done.await.map_err(|mut problem| {
        // Reading an ended deployment gives 410; submitting to it gives 409.
        if problem.code == Code::Gone {
            problem = Problem::new(Code::Conflict, problem.detail);
        }
        problem
    })?;
    let (is_new, view) = done.value;
    let status = if is_new && !dry_run {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let place = format!(
        "/v1/deployments/{}/placements/{}",
        view.deployment_id, view.uuid
    );
    let headers = [
        (header::LOCATION, place),
        (header::ETAG, order::etag(&view)),
        (REVISION, done.revision.to_string()),
    ];
    Ok((status, headers, Json(view)).into_response())
}

/// One order, and what has become of it.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/placements/{uuid}", operation_id = "show_placement",
    tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"),
        ("uuid" = String, Path, description = "as ordered")),
    responses(
        (status = 200, description = "as it is now", body = PlacementView,
            headers(("ETag" = String, description = "counts its changes"))),
        NoReader, NoOrder, Over,
    ),
)]
pub async fn show_placement(
    State(api): State<Api>,
    caller: Caller,
    Path((deployment, uuid)): Path<(String, String)>,
) -> Result<([(HeaderName, String); 1], Json<PlacementView>), Problem> {
    let owner = visible_owner(&caller)?;
    let id = PlacementId { deployment, uuid };
    let show = execute(&api, |reply| PlacementCommand::Show { id, owner, reply });
    let found = show.await?;
    let tag = (header::ETAG, order::etag(&found.value));
    Ok(([tag], Json(found.value)))
}

/// Take an order back that still waits.
#[utoipa::path(
    delete, path = "/v1/deployments/{deployment}/placements/{uuid}",
    operation_id = "withdraw_placement", tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"),
        ("uuid" = String, Path, description = "as ordered"), Trial,
        ("If-Match" = Option<String>, Header, description = "only if it is still as it was read",
            pattern = "^(\\*|\"?[0-9]{1,19}\"?)$")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 409, description = "it has begun", body = Problem,
            content_type = "application/problem+json"),
        OwnersOnly, NoOrder, Over, Changed,
    ),
)]
pub async fn withdraw_placement(
    State(api): State<Api>,
    (caller, headers): (Caller, HeaderMap),
    Path((deployment, uuid)): Path<(String, String)>,
    Query(Trial { .. }): Query<Trial>,
) -> Result<StatusCode, Problem> {
    let owner = changeable_owner(&caller)?;
    let if_generation = order::if_match(&headers)?;
    let id = PlacementId { deployment, uuid };
    let withdraw = execute(&api, |reply| PlacementCommand::Withdraw {
        id,
        if_generation,
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
    /// Orders of this process.
    #[param(nullable = false, required = false)]
    processor_id: Option<String>,
    /// Orders in this status.
    #[param(nullable = false, required = false)]
    status: Option<PlacementStatus>,
    /// The `next` of the page before.
    #[param(nullable = false, required = false)]
    after: Option<u64>,
    /// Orders on one page; default 100, at most 1000.
    #[param(nullable = false, required = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List the orders of a deployment, as they came.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/placements", operation_id = "list_placements",
    tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"), ListFilter),
    responses(
        (status = 200, description = "in the order in which they came", body = PlacementList),
        (status = 422, description = "a status that there is not", body = Problem,
            content_type = "application/problem+json"),
        NoReader, NoDeployment, Over,
    ),
)]
pub async fn list_placements(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(filter): Query<ListFilter>,
) -> Result<Json<PlacementList>, Problem> {
    let owner = visible_owner(&caller)?;
    let limit = pagination::limit(filter.limit, pagination::USUAL)?;
    if filter.status == Some(PlacementStatus::Unknown) {
        return Err(order::no_such_status());
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
    let found = list.await?;
    let last = found.value.last().map(|it| it.seq + 1);
    Ok(Json(PlacementList {
        next: last.filter(|_| found.value.len() == limit),
        placements: found.value,
        revision: found.revision,
    }))
}

/// What a cursor of such a list is bound to (A6).
fn list_of(what: &str, deployment: &str) -> Listing {
    Listing::of(what).with("deployment", &Some(deployment))
}

/// List the processes of a deployment: where each is, and what is in flight.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/processors", operation_id = "list_processors",
    tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"), Paged),
    responses(
        (status = 200, description = "a page, in order of id", body = ProcessorList),
        NoReader, NoDeployment, Over,
    ),
)]
pub async fn list_processors(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(page): Query<Paged>,
) -> Result<Json<ProcessorList>, Problem> {
    let owner = visible_owner(&caller)?;
    let list = list_of("processors", &deployment);
    let found = execute(&api, |reply| PlacementCommand::Processors {
        deployment,
        owner,
        reply,
    });
    let Committed { value, revision } = found.await?;
    let (processors, next_cursor) = page.of(&list, value, |process| process.id.to_string())?;
    Ok(Json(ProcessorList {
        processors,
        next_cursor,
        revision,
    }))
}

/// One process of a deployment.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/processors/{processor}",
    operation_id = "show_processor", tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"),
        ("processor" = String, Path, description = "`svc_….N`, or what follows the dot")),
    responses(
        (status = 200, description = "as it is now", body = ProcessorView),
        NoReader, NoProcess, Over,
    ),
)]
pub async fn show_processor(
    State(api): State<Api>,
    caller: Caller,
    Path((deployment, processor)): Path<(String, String)>,
) -> Result<Json<ProcessorView>, Problem> {
    let owner = visible_owner(&caller)?;
    let found = execute(&api, |reply| PlacementCommand::Processors {
        deployment,
        owner,
        reply,
    });
    let mut all = found.await?.value.into_iter();
    let named = |it: &ProcessorView| {
        let id = it.id.as_str();
        id == processor || id.split_once('.').is_some_and(|(_, own)| own == processor)
    };
    let absent = || Problem::not_found(format!("processor {processor}"));
    all.find(named).map(Json).ok_or_else(absent)
}

/// List the places that are asked for now for processes of a deployment.
#[utoipa::path(
    get, path = "/v1/deployments/{deployment}/resource-requests",
    operation_id = "list_resource_requests", tag = "placements",
    params(("deployment" = String, Path, description = "its id, or that of its service"), Paged),
    responses(
        (status = 200, description = "a page of what is open", body = ResourceRequestList),
        NoReader, NoDeployment, Over,
    ),
)]
pub async fn list_resource_requests(
    State(api): State<Api>,
    caller: Caller,
    Path(deployment): Path<String>,
    Query(page): Query<Paged>,
) -> Result<Json<ResourceRequestList>, Problem> {
    let owner = visible_owner(&caller)?;
    let list = list_of("resource-requests", &deployment);
    let requests = execute(&api, |reply| PlacementCommand::Requests {
        deployment,
        owner,
        reply,
    });
    let found = requests.await?;
    let (requests, next_cursor) = page.of(&list, found.value, |request| request.id.clone())?;
    Ok(Json(ResourceRequestList {
        requests,
        next_cursor,
        revision: found.revision,
    }))
}
