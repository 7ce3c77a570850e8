//! `/v1/blocklist/strategy`: the strategy of automatic blocks.

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_blocklist_api::{StrategyOrder, StrategyView};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Query};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal_responses::NotOperator;

use super::{App, Disabled, revision_header};
use crate::command::Command;
use crate::error::Refusal;
use crate::strategy::parse;

/// Show the current strategy with all its parameters.
#[utoipa::path(
    get, path = "/v1/blocklist/strategy", operation_id = "show_strategy", tag = "strategy",
    responses(
        (status = 200, description = "the strategy", body = StrategyView),
    ),
)]
pub async fn show_strategy(
    State(app): State<App>,
    _caller: Caller,
) -> Result<Json<StrategyView>, Problem> {
    app.publisher.readable()?;
    Ok(Json(app.context.strategy.read().clone()))
}

/// Set another strategy. It is refused if its name is unknown, if a parameter is out of range, or
/// if it would block most of a pool now.
#[utoipa::path(
    put, path = "/v1/blocklist/strategy", operation_id = "choose_strategy", tag = "strategy",
    params(DryRun), request_body = StrategyOrder,
    responses(
        (status = 200, description = "the new strategy", body = StrategyView,
            headers(("Hayward-Revision" = u64, description = "revision of this write"))),
        NotOperator, Disabled,
        (status = 422, description = "invalid strategy; all faults are listed",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn set_strategy(
    State(app): State<App>,
    caller: Caller,
    Query(DryRun { .. }): Query<DryRun>,
    Json(request): Json<StrategyOrder>,
) -> Result<(HeaderMap, Json<StrategyView>), Problem> {
    caller.require(&[Scope::Operator])?;
    let strategy = parse(&request, app.context.settings.strategy_defaults())
        .map_err(Refusal::InvalidStrategy)?;
    let caller_name = caller.name.clone();
    let committed = app
        .handle
        .execute(|reply| Command::SetStrategy {
            strategy,
            caller_name,
            reply,
        })
        .await?;
    Ok((revision_header(committed.revision), Json(committed.value?)))
}
