//! Handlers of `/v1/rounds`: the newest rounds and their decisions.

use axum::extract::State;
use hayward_rm_scheduler_api::views::{RoundList, RoundView};
use hayward_service::http::pagination;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Path, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RoundsQuery {
    /// At most this many; 20 by default, 1000 at most.
    #[param(required = false, minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<usize>,
}

/// Lists the newest rounds that changed something.
#[utoipa::path(
    get, path = "/v1/rounds", operation_id = "list_rounds", tag = "rounds",
    params(RoundsQuery),
    responses(
        (status = 200, description = "newest first", body = RoundList),
    ),
)]
pub async fn list_rounds(
    State(api): State<Api>,
    _caller: Caller,
    Query(query): Query<RoundsQuery>,
) -> Result<Json<RoundList>, Problem> {
    api.publisher().readable()?;
    let limit = pagination::limit(query.limit, 20)?;
    let view = api.context.view.read();
    let rounds = view.newest_rounds(limit);
    Ok(Json(RoundList { rounds }))
}

/// Shows what one round decided.
#[utoipa::path(
    get, path = "/v1/rounds/{round}", operation_id = "show_round", tag = "rounds",
    params(("round" = u64, Path, description = "its number")),
    responses(
        (status = 200, description = "its decisions", body = RoundView),
        (status = 404, description = "it changed nothing, or is no longer kept", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_round(
    State(api): State<Api>,
    _caller: Caller,
    Path(round): Path<u64>,
) -> Result<Json<RoundView>, Problem> {
    api.publisher().readable()?;
    let found = api.context.view.read().round(round);
    found
        .map(Json)
        .ok_or_else(|| Problem::not_found(format!("round {round}")))
}
