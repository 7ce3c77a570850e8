//! Handler of `/v1/pools/{pool}/idle`: the owner reports its idle workers.

use axum::extract::State;
use hayward_rm_scheduler_api::worker_pools::{IdleAnswer, IdleOrder};
use hayward_service::auth::Scope;
use hayward_service::http::problem::Problem;
use hayward_service::{Json, Path};
use hayward_vocabulary::WorkId;

use super::super::Api;
use super::caller_headers::CallerWithHeaders;
use super::{NoPool, NotBound, OwnerOnly, PoolStopped, send_change, validation};
use crate::command::PoolChange;

/// Reports which workers are idle. Idle workers on a blocked node do not count, and are replaced
/// elsewhere.
#[utoipa::path(
    put, path = "/v1/pools/{pool}/idle", operation_id = "report_idle_workers", tag = "pools",
    params(
        ("pool" = WorkId, Path, description = "id of the pool"),
        ("X-Owner-Epoch" = u64, Header, description = "epoch of the owner"),
        ("X-Connection" = u64, Header, description = "number of the connection"),
    ),
    request_body = IdleOrder,
    responses(
        (status = 200, description = "stored until the next report; no worker is released",
            body = IdleAnswer),
        OwnerOnly, NoPool, NotBound, PoolStopped,
    ),
)]
pub async fn report_idle_workers(
    State(api): State<Api>,
    caller_with_headers: CallerWithHeaders,
    Path(pool): Path<WorkId>,
    Json(request): Json<IdleOrder>,
) -> Result<Json<IdleAnswer>, Problem> {
    // Only the owner knows what its workers do.
    caller_with_headers
        .caller
        .require(&[Scope::Owner(pool.to_string())])?;
    let call = validation::pool_call(&caller_with_headers, pool)?;
    let idle = request.workers.into_iter().collect();
    let report = send_change(&api, call, |reply| PoolChange::ReportIdle(idle, reply));
    Ok(Json(report.await?))
}
