//! `/v1/blocklist/strategy`: how nodes are judged by their facts.

use axum::extract::State;
use axum::http::HeaderMap;
use hayward_blocklist_api::{StrategyOrder, StrategyView};
use hayward_service::auth::{Caller, Scope};
use hayward_service::http::extract::{DryRun, Json, Query};
use hayward_service::http::problem::Problem;
use hayward_service::http::refusal::NotOperator;

use super::{App, Disabled, revision};
use crate::command::Command;
use crate::error::Refusal;
use crate::strategy::parse;

/// The current strategy, with all its parameters.
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

/// Sets another strategy. It is refused when its name is unknown, a parameter is out of range, or
/// it would now block most of a pool.
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
pub async fn choose_strategy(
    State(app): State<App>,
    caller: Caller,
    Query(DryRun { .. }): Query<DryRun>,
    Json(order): Json<StrategyOrder>,
) -> Result<(HeaderMap, Json<StrategyView>), Problem> {
    caller.require(&[Scope::Operator])?;
    let rule = parse(&order, app.context.settings.defaults()).map_err(Refusal::Strategy)?;
    let by = caller.name.clone();
    let done = app
        .handle
        .ask(|reply| Command::SetStrategy(rule, by, reply))
        .await?;
    Ok((revision(done.revision), Json(done.value?)))
}
