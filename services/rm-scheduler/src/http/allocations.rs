//! Handlers of `/v1/allocations`: list and show allocations.

use axum::extract::State;
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry};
use hayward_service::http::pagination;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Listing, Path, Query, Scope};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AllocationsQuery {
    /// Only on this node.
    #[param(nullable = false, required = false)]
    node: Option<NodeName>,
    /// Only of this work.
    #[param(nullable = false, required = false)]
    work: Option<WorkId>,
    /// At most this many entries; 100 by default, 1000 at most. A page may have fewer and still
    /// have a next page.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before, with the same filters.
    #[param(required = false, nullable = false)]
    cursor: Option<String>,
}

/// Maximum number of entries read for one request. A page that reaches it ends early, with a
/// cursor.
const MAX_EXAMINED: usize = 5_000;

impl AllocationsQuery {
    fn listing(&self) -> Listing {
        Listing::new("/v1/allocations")
            .with("node", &self.node)
            .with("work", &self.work)
    }

    fn limit(&self) -> Result<usize, Problem> {
        pagination::limit(self.limit, pagination::DEFAULT_LIMIT)
    }

    fn matches(&self, entry: &AllocationEntry) -> bool {
        self.node.as_ref().is_none_or(|node| *node == entry.node)
            && self.work.as_ref().is_none_or(|work| *work == entry.work)
    }
}

/// Returns true for the own allocations of a user, and for all if the caller is an operator or a
/// viewer (S12).
fn may_see(caller: &Caller, entry: &AllocationEntry) -> bool {
    let all = caller.has(&Scope::Operator) || caller.has(&Scope::Viewer);
    all || entry.user.as_str() == caller.name
}

/// Lists allocations: how many quanta each work holds on which node.
#[utoipa::path(
    get, path = "/v1/allocations", operation_id = "list_allocations", tag = "allocations",
    params(AllocationsQuery),
    responses(
        (status = 200, description = "a page, in order of id", body = AllocationList),
    ),
)]
pub async fn list_allocations(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<AllocationsQuery>,
) -> Result<Json<AllocationList>, Problem> {
    let (limit, listing) = (query.limit()?, query.listing());
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| listing.last_key(cursor));
    let after = after.transpose()?;
    api.publisher().readable()?;
    let after = after.as_deref();
    let (entries, revision) =
        api.publisher()
            .page::<AllocationEntry>(ALLOCATIONS, "", after, MAX_EXAMINED + 1);
    let is_listed = |entry: &AllocationEntry| may_see(&caller, entry) && query.matches(entry);
    let (allocations, last) = page(&entries, limit, is_listed);
    Ok(Json(AllocationList {
        allocations,
        revision,
        next_cursor: last.map(|last| listing.cursor(last)),
    }))
}

/// Returns the entries of the page, and the last key that was read if there are more.
fn page(
    entries: &[(String, AllocationEntry)],
    limit: usize,
    is_listed: impl Fn(&AllocationEntry) -> bool,
) -> (Vec<AllocationView>, Option<&str>) {
    let mut found = Vec::new();
    let mut last = None;
    for (index, (key, entry)) in entries.iter().enumerate() {
        let is_listed = is_listed(entry);
        if index == MAX_EXAMINED || (is_listed && found.len() == limit) {
            return (found, last);
        }
        if is_listed {
            found.push(AllocationView::from(entry));
        }
        last = Some(key.as_str());
    }
    (found, None)
}

/// Shows one allocation.
#[utoipa::path(
    get, path = "/v1/allocations/{allocation}", operation_id = "show_allocation",
    tag = "allocations",
    params(("allocation" = AllocationId, Path, description = "its id")),
    responses(
        (status = 200, description = "as it is now", body = AllocationView),
        (status = 404, description = "no such allocation", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_allocation(
    State(api): State<Api>,
    caller: Caller,
    Path(allocation): Path<AllocationId>,
) -> Result<Json<AllocationView>, Problem> {
    api.publisher().readable()?;
    let entry: Option<AllocationEntry> = api.publisher().get(ALLOCATIONS, "", allocation.as_str());
    let entry = entry.filter(|entry| may_see(&caller, entry));
    let entry = entry.ok_or_else(|| Problem::not_found(format!("allocation {allocation}")))?;
    Ok(Json(AllocationView::from(&entry)))
}
