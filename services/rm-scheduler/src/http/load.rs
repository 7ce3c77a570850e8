//! Handler of `/v1/load`: demand and supply.

use axum::extract::State;
use hayward_rm_scheduler_api::load::Load;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json};

use super::{Api, no_round_yet};
use crate::command::Command;

/// Shows demand and supply by pool and by class.
#[utoipa::path(
    get, path = "/v1/load", operation_id = "show_load", tag = "shares",
    responses(
        (status = 200, description = "as of the newest round", body = Load),
        (status = 503, description = "no round has been taken yet", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_load(State(api): State<Api>, _caller: Caller) -> Result<Json<Load>, Problem> {
    let load = api.handle.read(Command::Load).await?.value;
    load.map(Json).ok_or_else(no_round_yet)
}
