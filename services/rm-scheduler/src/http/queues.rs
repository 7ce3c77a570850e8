//! Handler of `/v1/queues`: queues with their use.

use axum::extract::State;
use hayward_rm_scheduler_api::queues::Queues;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Api, no_round_yet};
use crate::command::Command;
use crate::queries::redaction;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QueuesQuery {
    /// Only the queues of this pool.
    #[param(nullable = false, required = false)]
    pool: Option<String>,
}

/// Lists queues with their use, their limits and their waiting work.
#[utoipa::path(
    get, path = "/v1/queues", operation_id = "list_queues", tag = "queues",
    params(QueuesQuery),
    responses(
        (status = 200, description = "as of now; empty without queues", body = Queues),
        (status = 404, description = "no such pool, or it has no queues", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "not all neighbours have answered yet", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn list_queues(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<QueuesQuery>,
) -> Result<Json<Queues>, Problem> {
    let pool = query.pool.clone();
    let command = |reply| Command::Queues(pool, reply);
    let queues = api
        .handle
        .read(command)
        .await?
        .value
        .ok_or_else(no_round_yet)?;
    match query.pool.filter(|_| queues.pools.is_empty()) {
        Some(pool) => {
            let detail = format!("no pool {pool:?} with queues; name a pool without parent");
            Err(Problem::new(Code::NotFound, detail))
        }
        None if caller.sees_all_users() => Ok(Json(queues)),
        None => {
            let may_see_user = |user: &str| caller.may_see_user(user);
            let groups = caller.groups.names();
            Ok(Json(redaction::redact_queues(queues, may_see_user, groups)))
        }
    }
}
