//! Handler of `/v1/occupancy`: nodes with their allocations and their free space.

use axum::extract::State;
use hayward_publication::Committed;
use hayward_rm_scheduler_api::occupancy::Occupancy;
use hayward_service::http::pagination;
use hayward_service::http::problem::Problem;
use hayward_service::{Caller, Json, Listing, Query};
use hayward_vocabulary::NodeName;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use crate::command::{Command, NodeFilter};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OccupancyQuery {
    /// Only this node.
    #[param(nullable = false, required = false)]
    node: Option<NodeName>,
    /// Only nodes of this pool, without those of its children.
    #[param(nullable = false, required = false)]
    pool: Option<String>,
    /// At most this many nodes; 100 by default, 1000 at most.
    #[param(required = false, nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    #[param(required = false, nullable = false)]
    cursor: Option<String>,
}

impl OccupancyQuery {
    fn listing(&self) -> Listing {
        Listing::new("/v1/occupancy")
            .with("node", &self.node)
            .with("pool", &self.pool)
    }

    fn into_filter(self) -> Result<NodeFilter, Problem> {
        let limit = pagination::limit(self.limit, pagination::DEFAULT_LIMIT)?;
        let after = self.cursor.as_deref();
        let after = after.map(|cursor| self.listing().key(cursor)).transpose()?;
        Ok(NodeFilter {
            node: self.node,
            pool: self.pool,
            after,
            limit,
        })
    }
}

/// Lists nodes with their allocations and their free space.
#[utoipa::path(
    get, path = "/v1/occupancy", operation_id = "list_occupancy", tag = "shares",
    params(OccupancyQuery),
    responses(
        (status = 200, description = "in order of name", body = Occupancy),
    ),
)]
pub async fn list_occupancy(
    State(api): State<Api>,
    _caller: Caller,
    Query(query): Query<OccupancyQuery>,
) -> Result<Json<Occupancy>, Problem> {
    let listing = query.listing();
    let filter = query.into_filter()?;
    let command = |reply| Command::NodeContents(Box::new(filter), reply);
    let Committed { value, revision } = api.handle.read(command).await?;
    let mut page = Occupancy { revision, ..value };
    page.next_cursor = page.next_cursor.map(|last_node| listing.cursor(last_node));
    Ok(Json(page))
}
