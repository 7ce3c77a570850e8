//! `/v1/containers`: live containers, and ended ones for a while.

use axum::extract::State;
use hayward_container_manager_api::{ContainerList, ContainerState, ContainerView};
use hayward_container_manager_domain::State as LifecycleState;
use hayward_service::http::pagination;
use hayward_service::http::problem::{Code, Problem};
use hayward_service::{Caller, Json, Listing, Path, Query};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Api, database_problem, owner_filter_for_reads};
use crate::store::container::{self, Filter};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListFilter {
    /// Containers on this node.
    #[param(nullable = false, required = false)]
    node: Option<NodeName>,
    /// Containers of this work.
    #[param(nullable = false, required = false)]
    work: Option<WorkId>,
    /// Containers in this state.
    #[param(nullable = false, required = false, inline)]
    state: Option<ContainerState>,
    /// Maximum number of containers; default 100.
    #[param(nullable = false, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page, with the same filters.
    #[param(nullable = false, required = false)]
    cursor: Option<String>,
}

impl ListFilter {
    fn listing(&self) -> Listing {
        let state = self.state.map(|state| format!("{state:?}"));
        Listing::new("/v1/containers")
            .with("node", &self.node)
            .with("work", &self.work)
            .with("state", &state)
    }

    fn into_filter(self, user: Option<String>) -> Result<Filter, Problem> {
        let after = self.cursor.as_deref();
        let after = after
            .map(|cursor| self.listing().last_key(cursor))
            .transpose()?;
        let limit = pagination::limit(self.limit, pagination::DEFAULT_LIMIT)?;
        let state = match self.state {
            Some(ContainerState::Unknown) => {
                let problem = Problem::new(Code::Invalid, "unknown state");
                let names = LifecycleState::ALL.map(LifecycleState::as_str);
                return Err(problem.at(
                    "/query/state",
                    format!("must be one of {}", names.join(", ")),
                ));
            }
            state => state.and_then(|state| serde_json::to_value(state).ok()),
        };
        Ok(Filter {
            id: None,
            user,
            node: self.node.map(Into::into),
            work: self.work.map(Into::into),
            state: state.and_then(|state| state.as_str().map(str::to_owned)),
            after,
            limit,
        })
    }
}

/// List containers. Users see those of their own work.
#[utoipa::path(
    get, path = "/v1/containers", operation_id = "list_containers", tag = "containers",
    params(ListFilter),
    responses(
        (status = 200, description = "in order of id", body = ContainerList),
        (status = 403, description = "not for agents and services", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "unknown state, or invalid cursor", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn list_containers(
    State(api): State<Api>,
    caller: Caller,
    Query(filter): Query<ListFilter>,
) -> Result<Json<ContainerList>, Problem> {
    let user = owner_filter_for_reads(&caller)?;
    api.publisher().rows_readable()?;
    let listing = filter.listing();
    let filter = filter.into_filter(user)?;
    // The revision is read before the rows, so that the rows are at least as new.
    let revision = api.publisher().revision();
    let containers = container::load_page(&api.pool, &filter)
        .await
        .map_err(database_problem)?;
    let is_full = containers.len() as u64 == u64::from(filter.limit);
    let next_cursor = containers
        .last()
        .filter(|_| is_full)
        .map(|last| listing.cursor(&last.entry.id));
    Ok(Json(ContainerList {
        containers,
        revision,
        next: next_cursor.clone(),
        next_cursor,
    }))
}

/// Show one container.
#[utoipa::path(
    get, path = "/v1/containers/{container}", operation_id = "show_container", tag = "containers",
    params(("container" = AllocationId, Path, description = "the id of its allocation")),
    responses(
        (status = 200, description = "the container", body = ContainerView),
        (status = 403, description = "not for agents and services", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "no such container, or not visible to you", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn show_container(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<AllocationId>,
) -> Result<Json<ContainerView>, Problem> {
    api.publisher().rows_readable()?;
    find_container(&api, &caller, &id).await.map(Json)
}

/// Reads a container that the caller may see.
pub async fn find_container(
    api: &Api,
    caller: &Caller,
    id: &AllocationId,
) -> Result<ContainerView, Problem> {
    let user = owner_filter_for_reads(caller)?;
    api.publisher().rows_readable()?;
    let filter = Filter {
        id: Some(id.to_string()),
        user,
        limit: 1,
        ..Filter::default()
    };
    let containers = container::load_page(&api.pool, &filter)
        .await
        .map_err(database_problem)?;
    containers
        .into_iter()
        .next()
        .ok_or_else(|| Problem::not_found(format!("container {id}")))
}
