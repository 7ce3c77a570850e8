//! `GET /v1/audit`: the audit records of one service in the order of the chain.

use std::sync::Arc;

use axum::extract::State;
use hayward_service::http::authorization::{Role, RouteRoles, authorize};
use hayward_service::http::extract::{Json, Query};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{AuditRecord, Auditor, Link, queries};
use crate::Handle;

const DEFAULT_PAGE: u16 = 100;
const MAX_PAGE: u16 = 1_000;

/// Only these roles may read the records, because the records name all users (S12).
const ROUTE_ROLES: RouteRoles = &[("list_audit", &[Role::Operator, Role::Auditor])];

/// Consecutive records, and the positions that their verification needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub service: String,
    /// Position from which the chain continues after the pruned records.
    pub anchor: Link,
    /// Position in the chain before the first of these records.
    pub after: Link,
    pub records: Vec<AuditRecord>,
    /// Revision of the state. The last record of the service has the same revision.
    pub revision: u64,
    /// Cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// The `next_cursor` of the last page.
    #[param(required = false, nullable = false, pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
    /// Begins with the first record since this instant; not together with a cursor.
    #[param(required = false, nullable = false)]
    since: Option<Timestamp>,
    /// At most 1,000; 100 if absent.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<u16>,
}

#[derive(Clone)]
struct AuditState {
    service: &'static str,
    /// `None` if the route is only described.
    auditor: Option<Arc<Auditor>>,
}

/// Returns the route for the router of the service.
pub fn routes<C: Send + 'static>(handle: &Handle<C>, service: &'static str) -> OpenApiRouter {
    let auditor = Some(Arc::clone(handle.auditor()));
    router(AuditState { service, auditor })
}

/// Returns the route for the description of the API only.
pub fn openapi_routes(service: &'static str) -> OpenApiRouter {
    let auditor = None;
    router(AuditState { service, auditor })
}

fn router(state: AuditState) -> OpenApiRouter {
    let routes = OpenApiRouter::default().routes(routes!(list_audit));
    authorize(routes, ROUTE_ROLES).with_state(state)
}

/// Audit records of this service, oldest first: changes with their actors, and refused requests.
///
/// Each record contains a hash of itself and of the previous record; `hayward audit verify` checks
/// them. Records are stored for 400 days.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_audit", tag = "audit", params(AuditQuery),
    responses(
        (status = 200, description = "records that follow each other", body = AuditPage),
        (status = 400, description = "a query that cannot be understood", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "no acceptable token", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "this takes the scope operator or auditor", body = Problem,
            content_type = "application/problem+json"),
        (status = 410, description = "records after this cursor were pruned", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "an invalid parameter, a cursor that no page returned, or a \
            cursor together with `since`", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "the database is unavailable", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
async fn list_audit(
    State(state): State<AuditState>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditPage>, Problem> {
    let auditor = state.auditor.ok_or_else(Problem::standby)?;
    let unavailable = |error| Problem::unavailable("the records cannot be read", error);
    let mut tx = auditor.pool.begin().await.map_err(unavailable)?;
    sqlx::query!("set transaction isolation level repeatable read")
        .execute(&mut *tx)
        .await
        .map_err(unavailable)?;
    read_page(&mut tx, state.service, &query).await.map(Json)
}

async fn read_page(
    tx: &mut PgConnection,
    service: &str,
    query: &AuditQuery,
) -> Result<AuditPage, Problem> {
    let unavailable = |error| Problem::unavailable("the records cannot be read", error);
    let limit = usize::from(query.limit.unwrap_or(DEFAULT_PAGE));
    if !(1..=usize::from(MAX_PAGE)).contains(&limit) {
        return Err(invalid_query("limit", "takes 1 to 1000"));
    }
    let anchor = queries::anchor(tx).await.map_err(unavailable)?;
    let start = match (query.cursor.as_deref(), query.since) {
        (Some(_), Some(_)) => {
            return Err(invalid_query("since", "does not go together with a cursor"));
        }
        (Some(cursor), None) => {
            let number = cursor.parse().ok();
            number.ok_or_else(|| invalid_query("cursor", "is not a cursor of this route"))?
        }
        (None, Some(since)) => match queries::last_number_before(tx, since)
            .await
            .map_err(unavailable)?
        {
            Some(number) => number,
            None => queries::head(tx).await.map_err(unavailable)?.number,
        },
        (None, None) => anchor.number,
    };
    let after = match start {
        number if number == anchor.number => anchor,
        number if number < anchor.number => {
            let detail = "records after this cursor were pruned; begin without one";
            return Err(Problem::new(Code::Gone, detail));
        }
        number => {
            let link = queries::link_after(tx, number).await.map_err(unavailable)?;
            link.ok_or_else(|| invalid_query("cursor", "names no record"))?
        }
    };
    // One more record shows whether there is another page.
    let limit_and_one = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let mut records = queries::records_after(tx, start, limit_and_one)
        .await
        .map_err(unavailable)?;
    let has_more = records.len() > limit;
    records.truncate(limit);
    let last = records.last().filter(|_| has_more);
    Ok(AuditPage {
        service: service.to_owned(),
        anchor,
        after,
        next_cursor: last.map(|record| record.number.to_string()),
        revision: queries::revision(tx).await.map_err(unavailable)?,
        records,
    })
}

fn invalid_query(field: &str, detail: &str) -> Problem {
    Problem::new(Code::Invalid, "invalid page of audit records")
        .at(format!("/query/{field}"), detail)
}
