//! Handler of `/v1/planners`: the planner of each pool.

use axum::extract::State;
use hayward_rm_scheduler_api::planners::Planners;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Scope};

use super::{Api, no_round_yet};
use crate::command::Command;

/// Lists the planner of each pool, with the result of the last answer of an external planner.
#[utoipa::path(
    get, path = "/v1/planners", operation_id = "list_planners", tag = "planners",
    responses(
        (status = 200, description = "as of now", body = Planners),
        (status = 403, description = "for operators and viewers", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "not all neighbours have answered yet", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn list_planners(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<Planners>, Problem> {
    caller.require(&[Scope::Operator, Scope::Viewer])?;
    let found = api.handle.read(Command::Planners).await?.value;
    found.map(Json).ok_or_else(no_round_yet)
}
