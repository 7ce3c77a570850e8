//! `/v1/allocations`

use axum::extract::State;
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry};
use hayward_service::problem::Problem;
use hayward_service::{Caller, Json, Path, Query, Scope};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only on this node.
    #[param(nullable = false, required = false)]
    node: Option<NodeName>,
    /// Only of this work.
    #[param(nullable = false, required = false)]
    work: Option<WorkId>,
}

impl Filter {
    fn lets_through(&self, entry: &AllocationEntry) -> bool {
        self.node.as_ref().is_none_or(|node| *node == entry.node)
            && self.work.as_ref().is_none_or(|work| *work == entry.work)
    }
}

/// Users see their own (S12); what is somebody else's does not exist for them (S7).
fn may_see(caller: &Caller, entry: &AllocationEntry) -> bool {
    let all = caller.has(&Scope::Operator) || caller.has(&Scope::Viewer);
    all || entry.user.as_str() == caller.name
}

/// Who holds which room where.
#[utoipa::path(
    get, path = "/v1/allocations", operation_id = "list_allocations", tag = "allocations",
    params(Filter),
    responses(
        (status = 200, description = "in order of id", body = AllocationList),
    ),
)]
pub async fn list_allocations(
    State(api): State<Api>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<AllocationList>, Problem> {
    api.publisher().readable()?;
    let (entries, revision) =
        api.publisher()
            .page::<AllocationEntry>(ALLOCATIONS, "", None, usize::MAX);
    let through = entries
        .iter()
        .map(|(_, entry)| entry)
        .filter(|entry| may_see(&caller, entry) && filter.lets_through(entry));
    let allocations = through.map(AllocationView::from).collect();
    Ok(Json(AllocationList {
        allocations,
        revision,
    }))
}

/// One allocation.
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
