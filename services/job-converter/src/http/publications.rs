//! `demand`, which rm-scheduler follows, and `jobs`, which submitters follow.

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

/// What changed of the demand since a cursor, or all of it.
#[utoipa::path(
    get, path = "/v1/demand/publication", operation_id = "follow_demand", tag = "publication",
    params(endpoint::Since),
    responses(
        (status = 200, description = "news, or nothing after the wait",
            body = Update<DemandEntry>),
        (status = 403, description = "not a service", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_demand(
    State(app): State<App>,
    caller: Caller,
    Query(since): Query<endpoint::Since>,
) -> Result<Response, Problem> {
    caller.require_service()?;
    endpoint::answer(&app.publisher, DEMAND, "", &since, true).await
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Whose {
    /// The `cursor` of the last answer; without it, or with one that is not known, everything.
    #[param(required = false, nullable = false)]
    since: Option<String>,
    /// Seconds to wait for news before an empty answer; at most 25.
    #[serde(
        default,
        deserialize_with = "hayward_service::http::limits::wait_seconds"
    )]
    #[param(required = false, maximum = 25)]
    wait: u64,
    /// Whose work; the caller's own when absent, others' for operators and viewers.
    #[param(required = false, nullable = false)]
    user: Option<UserName>,
}

/// What changed of a user's jobs, services and reservations since a cursor, or all of them.
#[utoipa::path(
    get, path = "/v1/jobs/publication", operation_id = "follow_jobs", tag = "publication",
    params(Whose),
    responses(
        (status = 200, description = "news, or nothing after the wait", body = Update<WorkView>),
        (status = 403, description = "somebody else's", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn follow_jobs(
    State(app): State<App>,
    caller: Caller,
    Query(Whose { since, wait, user }): Query<Whose>,
) -> Result<Response, Problem> {
    let only = work::only(&caller)?;
    let whose = user.as_ref().map_or(caller.name.as_str(), UserName::as_str);
    if only.is_some_and(|only| only != whose) {
        return Err(Problem::forbidden(
            "this shows other users' work to operators only",
        ));
    }
    let since = endpoint::Since { since, wait };
    endpoint::answer(&app.publisher, JOBS, whose, &since, false).await
}
