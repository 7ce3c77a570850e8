//! The routes of rm-scheduler.

mod admission;
mod allocations;
mod feed;
mod inputs;
mod load;
mod planners;
mod policy;
mod policy_history;
mod pools;
mod publications;
mod queues;
mod rounds;
mod shares;
mod verdicts;
mod what_if;

use std::sync::Arc;

use hayward_publication::{Handle, Publisher, audit, changes};
use hayward_service::auth::Issuer;
use hayward_service::health::Health;
use hayward_service::http::authorization::authorize;
use hayward_service::http::openapi::Description;
use hayward_service::invariants::InvariantMonitor;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;
use crate::context::Context;

pub const ABOUT: Description = Description {
    title: "Hayward rm-scheduler",
    text: "Decides who gets which room on which node, and says why.",
};

/// State of the handlers.
#[derive(Clone)]
pub struct Api {
    pub handle: Handle<Command>,
    pub context: Arc<Context>,
    pub pool: PgPool,
    /// Signs the tokens of pool owners.
    pub issuer: Arc<Issuer>,
}

impl Api {
    fn publisher(&self) -> &Publisher {
        self.handle.publisher()
    }
}

pub fn routes(api: Api, watch: InvariantMonitor) -> OpenApiRouter {
    let records = audit::routes(&api.handle, crate::NAME);
    let feed = changes::routes(api.handle.publisher(), feed::FEED);
    let records = records.merge(feed);
    let publisher = api.handle.publisher().clone();
    let standing = move || hayward_publication::status::service_state(&publisher);
    let health = Health::new(crate::NAME, Arc::new(standing))
        .schema(hayward_postgres::newest(&crate::MIGRATOR));
    let described = described().with_state(api);
    let routes = described.merge(health.routes()).merge(watch.routes());
    routes.merge(records)
}

fn described() -> OpenApiRouter<Api> {
    let routes = OpenApiRouter::new()
        .routes(routes!(policy::show_policy, policy::set_policy))
        .routes(routes!(policy_history::list_policies))
        .routes(routes!(policy_history::show_policy_version))
        .routes(routes!(shares::show_shares))
        .routes(routes!(queues::list_queues))
        .routes(routes!(planners::list_planners))
        .routes(routes!(what_if::forecast_changes))
        .routes(routes!(load::show_load))
        .routes(routes!(load::list_occupancy))
        .routes(routes!(allocations::list_allocations))
        .routes(routes!(allocations::show_allocation))
        .routes(routes!(rounds::list_rounds))
        .routes(routes!(rounds::show_round))
        .routes(routes!(verdicts::show_verdict))
        .routes(routes!(inputs::show_round_inputs))
        .routes(routes!(publications::follow_allocations))
        .routes(routes!(publications::follow_verdicts))
        .routes(routes!(publications::follow_failures))
        .routes(routes!(publications::follow_machines))
        .routes(routes!(publications::follow_clearings))
        .routes(routes!(publications::follow_processors))
        .routes(routes!(publications::follow_closed))
        .merge(pools::routes());
    authorize(routes, admission::TABLE)
}

/// The OpenAPI description, as in `openapi/rm-scheduler.json`.
pub fn golden() -> String {
    let health = Health::new(
        crate::NAME,
        Arc::new(hayward_service::ServiceState::default),
    );
    let mut document = described().into_openapi();
    document.merge(health.routes().into_openapi());
    document.merge(
        InvariantMonitor::described(crate::NAME)
            .routes()
            .into_openapi(),
    );
    document.merge(audit::described(crate::NAME).into_openapi());
    document.merge(changes::described(feed::FEED).into_openapi());
    hayward_service::http::openapi::golden(OpenApiRouter::with_openapi(document), ABOUT)
}
