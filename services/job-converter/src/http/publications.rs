//! Routes of the publications `demand`, which rm-scheduler follows, and `jobs`, which users follow.

use axum::extract::State;
use axum::response::Response;
use hayward_job_converter_api::{DEMAND, DemandEntry, JOBS, WorkView};
use hayward_publication::{Update, endpoint};
use hayward_service::auth::Caller;
use hayward_service::http::extract::Query;
use hayward_service::http::problem::Problem;
use hayward_vocabulary::UserName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{App, work};

/// Demand: all entries, or the changes since a cursor.
#[utoipa::path(
    get, path = "/v1/demand/publication", operation_id = "follow_demand", tag = "publication",
    params(endpoint::SinceQuery),
    responses(
        (status = 200, description = "changes, or none after the wait",
            body = Update<DemandEntry>),
        (status = 403, description = "not a service", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_demand(
    State(app): State<App>,
    caller: Caller,
    Query(since): Query<endpoint::SinceQuery>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    endpoint::respond(&app.publisher, DEMAND, "", &since, true).await
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FollowQuery {
    /// The `cursor` of the last answer. Without it, or with an unknown one, the answer has all
    /// entries.
    #[param(required = false, nullable = false)]
    since: Option<String>,
    /// Seconds to wait for a change before an empty answer; at most 25.
    #[serde(
        default,
        deserialize_with = "hayward_service::http::limits::wait_seconds"
    )]
    #[param(required = false, maximum = 25)]
    wait: u64,
    /// Owner of the work. Default: the caller. Operators and viewers may name any user.
    #[param(required = false, nullable = false)]
    user: Option<UserName>,
}

/// Jobs, services and reservations of a user: all entries, or the changes since a cursor.
#[utoipa::path(
    get, path = "/v1/jobs/publication", operation_id = "follow_jobs", tag = "publication",
    params(FollowQuery),
    responses(
        (status = 200, description = "changes, or none after the wait", body = Update<WorkView>),
        (status = 403, description = "owned by another user", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_jobs(
    State(app): State<App>,
    caller: Caller,
    Query(FollowQuery { since, wait, user }): Query<FollowQuery>,
) -> Result<Response, Problem> {
    let readable_user = work::readable_user(&caller)?;
    let owner = user.as_ref().map_or(caller.name.as_str(), UserName::as_str);
    if readable_user.is_some_and(|readable_user| readable_user != owner) {
        return Err(Problem::forbidden(
            "only operators and viewers may see work of other users",
        ));
    }
    let since = endpoint::SinceQuery { since, wait };
    endpoint::respond(&app.publisher, JOBS, owner, &since, false).await
}
