//! `/v1/allocations`

use axum::extract::State;
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_rm_scheduler_api::{ALLOCATIONS, AllocationEntry};
use hayward_service::problem::Problem;
use hayward_service::{Caller, Json, Path, Query};
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
    _caller: Caller,
    Query(filter): Query<Filter>,
) -> Result<Json<AllocationList>, Problem> {
    api.publisher().leading()?;
    let (entries, revision) =
        api.publisher()
            .page::<AllocationEntry>(ALLOCATIONS, "", None, usize::MAX);
    let through = entries
        .iter()
        .map(|(_, entry)| entry)
        .filter(|entry| filter.lets_through(entry));
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
    _caller: Caller,
    Path(allocation): Path<AllocationId>,
) -> Result<Json<AllocationView>, Problem> {
    api.publisher().leading()?;
    let entry: Option<AllocationEntry> = api.publisher().get(ALLOCATIONS, "", allocation.as_str());
    let entry = entry.ok_or_else(|| Problem::not_found(format!("allocation {allocation}")))?;
    Ok(Json(AllocationView::from(&entry)))
}
