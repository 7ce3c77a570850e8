//! Handlers for the owner of a worker pool. Operators may call some of them too. An owner sends its
//! epoch with each call, and the number of its connection once it is connected.
//!
//! Handlers with [`DryRun`] do not read its value. The committer reads `dry_run` from the query of
//! the request, and commits nothing. In a dry run the ledger computes only the response
//! (`worker_pools::commands`).

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use hayward_rm_scheduler_api::worker_pools::{
    CheckAnswer, JobStatus, OwnerConnected, OwnerOrder, PoolView, SizeAnswer, SizeOrder,
    StartedAnswer, StopOrder,
};
use hayward_rm_scheduler_worker_pools::Final;
use hayward_service::auth::Scope;
use hayward_service::http::extract::DryRun;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Json, Path, Query};
use hayward_vocabulary::{AllocationId, WorkId};

use super::super::Api;
use super::caller_headers::CallerWithHeaders;
use super::{
    NoPool, NotBound, OwnerAndOperators, OwnerOnly, PoolStopped, send_change, send_command,
    validation,
};
use crate::command::{PoolChange, PoolCommand, StopPool};

/// Maximum number of bytes of a final message.
const MAX_MESSAGE_LENGTH: usize = 4 * 1_024;

/// Connects an owner: binds it, takes over its workers and requests missing ones.
#[utoipa::path(
    put, path = "/v1/pools/{pool}/owner", operation_id = "connect_owner", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("X-Connection" = Option<u64>, Header,
            description = "connect again only if this is still the connection"),
    ),
    request_body = OwnerOrder,
    responses(
        (status = 200, description = "bound; an earlier owner is not bound any longer",
            body = OwnerConnected),
        OwnerOnly, NoPool,
        (status = 409, description = "stale_epoch or stale_connection", body = Problem,
            content_type = "application/problem+json"),
        PoolStopped,
        (status = 422, description = "the request is too large", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn connect_owner(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
    Json(request): Json<OwnerOrder>,
) -> Result<Json<OwnerConnected>, Problem> {
    caller_with_headers
        .caller
        .require(&[Scope::Owner(pool.to_string())])?;
    let connect = validation::validate_connect(request, &caller_with_headers.headers)?;
    let command = |reply| PoolCommand::ConnectOwner {
        pool,
        connect,
        reply,
    };
    Ok(Json(send_command(&api, command).await?.value))
}

/// Disconnects the owner. Workers stay. New ones are requested after the next owner connected.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/owner", operation_id = "disconnect_owner", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("X-Owner-Epoch" = u64, Header, description = "its epoch"),
    ),
    responses(
        (status = 204, description = "no owner is bound"),
        OwnerOnly, NoPool,
        (status = 409, description = "stale_epoch", body = Problem,
            content_type = "application/problem+json"),
        PoolStopped,
    ),
)]
pub async fn disconnect_owner(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
) -> Result<StatusCode, Problem> {
    caller_with_headers
        .caller
        .require(&[Scope::Owner(pool.to_string())])?;
    let epoch = validation::owner_epoch(&caller_with_headers.headers)?;
    send_command(&api, |reply| PoolCommand::DisconnectOwner {
        pool,
        epoch,
        reply,
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets the size. Without `release` all workers stay, whatever the size.
#[utoipa::path(
    put, path = "/v1/pools/{pool}/size", operation_id = "set_pool_size", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("X-Owner-Epoch" = Option<u64>, Header, description = "required of the owner"),
        ("X-Connection" = Option<u64>, Header, description = "required of the owner"),
        ("If-Match" = Option<String>, Header, description = "only if this is still the version",
            pattern = "^(\\*|\"?[0-9]{1,19}\"?)$"),
        DryRun,
    ),
    request_body = SizeOrder,
    responses(
        (status = 200, description = "stored, with its effects", body = SizeAnswer,
            headers(("ETag" = String, description = "the version of the size"))),
        OwnerAndOperators, NoPool, NotBound, PoolStopped,
        (status = 412, description = "the size was changed meanwhile", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "invalid size", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn set_pool_size(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
    Query(DryRun { .. }): Query<DryRun>,
    Json(request): Json<SizeOrder>,
) -> Result<([(HeaderName, String); 1], Json<SizeAnswer>), Problem> {
    let call = validation::pool_call(&caller_with_headers, pool)?;
    let size = validation::validate_size(request, &caller_with_headers.headers)?;
    let size_change = send_change(&api, call, |reply| PoolChange::SetSize(size, reply));
    let response = size_change.await?;
    Ok((
        [(header::ETAG, format!("\"{}\"", response.version))],
        Json(response),
    ))
}

/// Reports that a worker registered with the owner. The answer is for information only.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/workers/{worker}/started", operation_id = "worker_started",
    tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("worker" = AllocationId, Path, description = "id of the worker"),
        ("X-Owner-Epoch" = u64, Header, description = "epoch of the owner"),
        ("X-Connection" = u64, Header, description = "number of the connection"),
    ),
    responses(
        (status = 200, description = "received; `known: false` is no failure",
            body = StartedAnswer),
        OwnerOnly, NoPool, NotBound, PoolStopped,
    ),
)]
pub async fn worker_started(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path((pool, worker)): Path<(WorkId, AllocationId)>,
) -> Result<Json<StartedAnswer>, Problem> {
    // Only the owner knows which workers registered (W3).
    caller_with_headers
        .caller
        .require(&[Scope::Owner(pool.to_string())])?;
    let call = validation::pool_call(&caller_with_headers, pool)?;
    let started = |reply| PoolChange::WorkerStarted(worker, reply);
    let known = send_change(&api, call, started).await?;
    Ok(Json(StartedAnswer { known }))
}

/// Gives one worker back. The size stays, so it is replaced after its end.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/workers/{worker}", operation_id = "remove_worker",
    tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("worker" = AllocationId, Path, description = "id of the worker"),
        ("X-Owner-Epoch" = Option<u64>, Header, description = "required of the owner"),
        ("X-Connection" = Option<u64>, Header, description = "required of the owner"),
        DryRun,
    ),
    responses(
        (status = 202, description = "the worker was ordered to end"),
        OwnerAndOperators,
        (status = 404, description = "no such pool, or it has no such worker",
            body = Problem, content_type = "application/problem+json"),
        NotBound, PoolStopped,
    ),
)]
pub async fn remove_worker(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path((pool, worker)): Path<(WorkId, AllocationId)>,
    Query(DryRun { .. }): Query<DryRun>,
) -> Result<StatusCode, Problem> {
    let call = validation::pool_call(&caller_with_headers, pool)?;
    let remove = |reply| PoolChange::RemoveWorker(worker, reply);
    send_change(&api, call, remove).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Requests missing workers. A second call requests nothing more.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/check", operation_id = "check_pool", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("X-Owner-Epoch" = Option<u64>, Header, description = "required of the owner"),
        ("X-Connection" = Option<u64>, Header, description = "required of the owner"),
        DryRun,
    ),
    responses(
        (status = 200, description = "missing and requested workers", body = CheckAnswer),
        OwnerAndOperators, NoPool, NotBound, PoolStopped,
    ),
)]
pub async fn check_pool(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
    Query(DryRun { .. }): Query<DryRun>,
) -> Result<Json<CheckAnswer>, Problem> {
    let call = validation::pool_call(&caller_with_headers, pool)?;
    Ok(Json(send_change(&api, call, PoolChange::Check).await?))
}

/// Stops the pool: gives all its workers back and requests none.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/stop", operation_id = "stop_pool", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("X-Owner-Epoch" = Option<u64>, Header, description = "required of the owner"),
        ("X-Connection" = Option<u64>, Header, description = "required of the owner"),
        DryRun,
    ),
    request_body = StopOrder,
    responses(
        (status = 200, description = "it was stopped before; unchanged",
            body = PoolView),
        (status = 202, description = "its workers are ending", body = PoolView),
        OwnerAndOperators, NoPool, NotBound,
        (status = 422, description = "the message is too long", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn stop_pool(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
    Query(DryRun { .. }): Query<DryRun>,
    Json(request): Json<StopOrder>,
) -> Result<(StatusCode, Json<PoolView>), Problem> {
    let call = validation::pool_call(&caller_with_headers, pool)?;
    if request.message.len() > MAX_MESSAGE_LENGTH {
        let detail = format!("must be at most {MAX_MESSAGE_LENGTH} bytes");
        return Err(Problem::new(Code::Invalid, "the message is too long").at("/message", detail));
    }
    let stop = StopPool {
        status: final_status(request.status),
        message: request.message,
    };
    let stopped = send_change(&api, call, |reply| PoolChange::Stop(stop, reply)).await?;
    let status = if stopped.was_running {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(stopped.pool)))
}

/// Converts the status of the job to a final status of the pool.
fn final_status(status: JobStatus) -> Final {
    match status {
        JobStatus::Succeeded => Final::Succeeded,
        JobStatus::Failed => Final::Failed,
        JobStatus::Canceled => Final::Killed,
        JobStatus::Unknown => Final::Undefined,
    }
}
