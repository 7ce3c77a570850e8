//! Handlers of `/v1/pools`: create, list and show worker pools. The handlers for owners of pools
//! are in [`owner`], [`events`] and [`idle_workers`].

mod caller_headers;
mod credentials;
mod events;
mod idle_workers;
mod owner;
mod validation;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hayward_publication::Committed;
use hayward_rm_scheduler_api::worker_pools::{
    PoolCreated, PoolList, PoolOrder, PoolView, WorkerList, WorkerState,
};
use hayward_service::auth::{Issuer, Scope};
use hayward_service::http::extract::DryRun;
use hayward_service::http::idempotency::in_memory;
use hayward_service::http::idempotency::{Key, REPLAYED, digest, digest_of};
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Listing, PageQuery, Path, Query};
use hayward_vocabulary::WorkId;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use crate::command::{Command, CreatedPool, PoolCall, PoolChange, PoolCommand, PoolReply};
use crate::error::PoolRefusal;

/// Path of the worker pools.
const ROUTE: &str = "/v1/pools";
/// Response header with the revision of a write.
const REVISION: HeaderName = HeaderName::from_static("hayward-revision");

// Refusals that several handlers document in their OpenAPI responses.
hayward_service::refusals! {
    OwnerOnly = 403, "for the owner only";
    OwnerAndOperators = 403, "for the owner and operators";
    OtherOwner = 403, "of another owner";
    NoPool = 404, "no such pool";
    NotBound = 409, "stale_epoch, not_connected or stale_connection";
    PoolStopped = 410, "the pool is stopped";
}

pub fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_pool, list_pools))
        .routes(routes!(show_pool))
        .routes(routes!(list_pool_workers))
        .routes(routes!(owner::connect_owner, owner::disconnect_owner))
        .routes(routes!(credentials::renew_pool_credentials))
        .routes(routes!(owner::set_pool_size))
        .routes(routes!(owner::worker_started))
        .routes(routes!(owner::remove_worker))
        .routes(routes!(idle_workers::report_idle_workers))
        .merge(in_memory::require_keys(
            OpenApiRouter::new()
                .routes(routes!(owner::check_pool))
                .routes(routes!(owner::stop_pool)),
        ))
        .routes(routes!(events::follow_pool_events))
}

/// Sends a command, and waits until its result is durable.
async fn send_command<T: Send + 'static>(
    api: &Api,
    command: impl FnOnce(PoolReply<T>) -> PoolCommand,
) -> Result<Committed<T>, Problem> {
    let command = |reply| Command::WorkerPools(Box::new(command(reply)));
    refusal_to_problem(api.handle.execute(command).await?)
}

/// Sends a change by the owner or an operator.
async fn send_change<T: Send + 'static>(
    api: &Api,
    call: PoolCall,
    change: impl FnOnce(PoolReply<T>) -> PoolChange,
) -> Result<T, Problem> {
    let command = |reply| PoolCommand::Change(call, change(reply));
    Ok(send_command(api, command).await?.value)
}

/// Reads from the working set. The response has the revision that it is based on (R9).
async fn read<T: Send + 'static>(
    api: &Api,
    command: impl FnOnce(PoolReply<T>) -> PoolCommand,
) -> Result<Committed<T>, Problem> {
    let command = |reply| Command::WorkerPools(Box::new(command(reply)));
    refusal_to_problem(api.handle.read(command).await?)
}

/// Converts a refusal to an HTTP problem.
fn refusal_to_problem<T>(
    committed: Committed<Result<T, PoolRefusal>>,
) -> Result<Committed<T>, Problem> {
    Ok(Committed {
        value: committed.value?,
        revision: committed.revision,
    })
}

/// Refuses a caller that may not see the pool. Operators and viewers see all pools, and an owner
/// sees its own pool.
fn require_reader(caller: &Caller, pool: &WorkId) -> Result<(), Problem> {
    let owner = Scope::Owner(pool.to_string());
    caller.require(&[Scope::Operator, Scope::Viewer, owner])
}

/// Creates a worker pool. The answer has the token of its owner.
#[utoipa::path(
    post, path = "/v1/pools", operation_id = "create_pool", tag = "pools",
    params(("Idempotency-Key" = String, Header, description = "the same key, the same pool"),
        DryRun),
    request_body = PoolOrder,
    responses(
        (status = 200, description = "with `dry_run`: the pool as it would be", body = PoolView),
        (status = 201, description = "created, without an owner", body = PoolCreated, headers(
            ("Location" = String, description = "where the pool is"),
            ("ETag" = String, description = "the version of its size"),
            ("Hayward-Revision" = u64, description = "revision of this write"),
        )),
        (status = 403, description = "for operators only", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "too many pools", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "all its faults at once, or the key was used for something \
            else", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn create_pool(
    State(api): State<Api>,
    caller: Caller,
    key: Key,
    Query(DryRun { dry_run }): Query<DryRun>,
    Json(request): Json<PoolOrder>,
) -> Result<Response, Problem> {
    caller.require(&[Scope::Operator])?;
    let key_digest = digest(&Method::POST, &caller.name, key.as_str().as_bytes());
    let request_digest = digest_of(&Method::POST, ROUTE, &request)?;
    let create = validation::validate_pool(request, &caller, key_digest, request_digest)?;
    let created = send_command(&api, |reply| PoolCommand::Create(Box::new(create), reply)).await?;
    if dry_run {
        return Ok((StatusCode::OK, Json(created.value.pool)).into_response());
    }
    created_response(&api.issuer, created.value, created.revision)
}

fn created_response(
    issuer: &Arc<Issuer>,
    created: CreatedPool,
    revision: u64,
) -> Result<Response, Problem> {
    let CreatedPool { pool, replayed } = created;
    let token = credentials::sign_token(issuer, &pool.id)?;
    let location = format!("{ROUTE}/{}", pool.id);
    let headers = [
        (header::LOCATION, location),
        (header::ETAG, format!("\"{}\"", pool.version)),
        (REVISION, revision.to_string()),
    ];
    let body = Json(PoolCreated { pool, token });
    let mut response = (StatusCode::CREATED, headers, body).into_response();
    if replayed {
        let headers = response.headers_mut();
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Lists all worker pools.
#[utoipa::path(
    get, path = "/v1/pools", operation_id = "list_pools", tag = "pools",
    params(PageQuery),
    responses(
        (status = 200, description = "a page, in order of id", body = PoolList),
        (status = 403, description = "for operators and viewers", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn list_pools(
    State(api): State<Api>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<PoolList>, Problem> {
    caller.require(&[Scope::Operator, Scope::Viewer])?;
    let Committed { value, revision } = read(&api, PoolCommand::List).await?;
    let (pools, next_cursor) =
        page.page(&Listing::new(ROUTE), value, |pool| pool.id.to_string())?;
    Ok(Json(PoolList {
        pools,
        next_cursor,
        revision,
    }))
}

/// Shows one worker pool with its size, its counts, its owner and its end.
#[utoipa::path(
    get, path = "/v1/pools/{pool}", operation_id = "show_pool", tag = "pools",
    params(("pool" = WorkId, Path, description = "id of the pool")),
    responses(
        (status = 200, description = "as it is now", body = PoolView,
            headers(("ETag" = String, description = "the version of its size"))),
        OtherOwner, NoPool,
    ),
)]
pub async fn show_pool(
    State(api): State<Api>,
    caller: Caller,
    Path(pool): Path<WorkId>,
) -> Result<([(HeaderName, String); 1], Json<PoolView>), Problem> {
    require_reader(&caller, &pool)?;
    let shown = read(&api, |reply| PoolCommand::Show(pool, reply)).await?;
    let etag = format!("\"{}\"", shown.value.version);
    Ok(([(header::ETAG, etag)], Json(shown.value)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WorkersQuery {
    /// Only in this state.
    #[param(nullable = false, required = false)]
    state: Option<WorkerState>,
    /// At most this many entries; 100 by default, 1000 at most.
    #[param(nullable = false, required = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before, with the same filter.
    #[param(nullable = false, required = false)]
    cursor: Option<String>,
}

impl WorkersQuery {
    /// Returns the page to read, and the listing that signs and checks its cursor.
    fn page_and_listing(self, pool: &WorkId) -> (PageQuery, Listing) {
        let Self {
            state,
            limit,
            cursor,
        } = self;
        let state = state.map(|state| format!("{state:?}"));
        let listing = Listing::new("/v1/pools/{pool}/workers").with("pool", &Some(pool));
        (PageQuery { limit, cursor }, listing.with("state", &state))
    }
}

/// Lists the workers of a pool.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/workers", operation_id = "list_pool_workers", tag = "pools",
    params(("pool" = WorkId, Path, description = "id of the pool"), WorkersQuery),
    responses(
        (status = 200, description = "a page, in order of id", body = WorkerList),
        OtherOwner, NoPool,
    ),
)]
pub async fn list_pool_workers(
    State(api): State<Api>,
    caller: Caller,
    Path(pool): Path<WorkId>,
    Query(query): Query<WorkersQuery>,
) -> Result<Json<WorkerList>, Problem> {
    require_reader(&caller, &pool)?;
    let state = query.state;
    if state == Some(WorkerState::Unknown) {
        return Err(validation::unknown_state());
    }
    let (page, listing) = query.page_and_listing(&pool);
    let workers = read(&api, |reply| PoolCommand::ListWorkers(pool, reply)).await?;
    let mut matching = workers.value;
    matching.retain(|worker| state.is_none_or(|state| worker.state == state));
    let (page_workers, next_cursor) =
        page.page(&listing, matching, |worker| worker.id.to_string())?;
    Ok(Json(WorkerList {
        workers: page_workers,
        next_cursor,
        revision: workers.revision,
    }))
}
