//! Handlers of `/v1/policy/history`: the generations of the policy.

use axum::extract::State;
use hayward_rm_scheduler_api::policy::{PolicyHistory, PolicyVersion};
use hayward_service::http::pagination;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Listing, Path, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use crate::store::policies;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// At most this many; 100 by default, 1000 at most.
    #[param(required = false, minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(required = false, nullable = false)]
    cursor: Option<String>,
}

/// Lists the policy changes. Setting an old policy again is a rollback.
#[utoipa::path(
    get, path = "/v1/policy/history", operation_id = "list_policies", tag = "policy",
    params(HistoryQuery),
    responses(
        (status = 200, description = "newest first, without documents", body = PolicyHistory),
    ),
)]
pub async fn list_policies(
    State(api): State<Api>,
    _caller: Caller,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<PolicyHistory>, Problem> {
    api.publisher().rows_readable()?;
    let limit = pagination::limit(query.limit, pagination::DEFAULT_LIMIT)?;
    let listing = Listing::new("/v1/policy/history");
    let before = query.cursor.as_deref().map(|cursor| listing.key(cursor));
    let before = before.transpose()?;
    let revision = api.publisher().revision();
    let mut versions = policies::history(&api.pool, before, limit + 1)
        .await
        .map_err(unavailable)?;
    let has_more = versions.len() > limit;
    versions.truncate(limit);
    let last = versions.last().filter(|_| has_more);
    let next_cursor = last.map(|version| listing.cursor(version.generation));
    Ok(Json(PolicyHistory {
        versions,
        next_cursor,
        revision,
    }))
}

/// Shows one generation of the policy, with its document.
#[utoipa::path(
    get, path = "/v1/policy/history/{generation}", operation_id = "show_policy_version",
    tag = "policy",
    params(("generation" = u64, Path, description = "its number")),
    responses(
        (status = 200, description = "as it was", body = PolicyVersion),
        (status = 404, description = "no such generation", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_policy_version(
    State(api): State<Api>,
    _caller: Caller,
    Path(generation): Path<u64>,
) -> Result<Json<PolicyVersion>, Problem> {
    api.publisher().rows_readable()?;
    let found = policies::version(&api.pool, generation)
        .await
        .map_err(unavailable)?;
    found
        .map(Json)
        .ok_or_else(|| Problem::not_found(format!("policy {generation}")))
}

fn unavailable(error: sqlx::Error) -> Problem {
    Problem::unavailable("the database is unavailable", error)
}
