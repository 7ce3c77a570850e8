//! The HTTP routes of rm-scheduler. Each module has the handlers of one path, except for
//! [`publications`], [`feed`] and [`route_roles`].

mod allocations;
mod feed;
mod load;
mod occupancy;
mod planners;
mod policy;
mod policy_history;
mod publications;
mod queues;
mod round_inputs;
mod rounds;
mod route_roles;
mod shares;
mod verdicts;
mod what_if;
mod worker_pools;

pub use self::feed::FEED;

use std::sync::Arc;

use hayward_publication::{Handle, Publisher};
use hayward_service::auth::Issuer;
use hayward_service::http::authorization::authorize;
use hayward_service::http::openapi::Description;
use hayward_service::http::problem::{Code, Problem};
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;
use crate::context::Context;

pub const ABOUT: Description = Description {
    title: "Hayward rm-scheduler",
    text: "Decides which work gets how much space on which node, and publishes the reasons.",
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

/// Returns the problem for a request before the first round.
fn no_round_yet() -> Problem {
    let detail = "no round yet: not all neighbours of the scheduler have answered";
    Problem::new(Code::Unavailable, detail).retry_after_ms(1_000)
}

pub fn routes() -> OpenApiRouter<Api> {
    let routes = OpenApiRouter::new()
        .routes(routes!(policy::show_policy, policy::set_policy))
        .routes(routes!(policy_history::list_policies))
        .routes(routes!(policy_history::show_policy_version))
        .routes(routes!(shares::show_shares))
        .routes(routes!(queues::list_queues))
        .routes(routes!(planners::list_planners))
        .routes(routes!(what_if::forecast_changes))
        .routes(routes!(load::show_load))
        .routes(routes!(occupancy::list_occupancy))
        .routes(routes!(allocations::list_allocations))
        .routes(routes!(allocations::show_allocation))
        .routes(routes!(rounds::list_rounds))
        .routes(routes!(rounds::show_round))
        .routes(routes!(verdicts::show_verdict))
        .routes(routes!(round_inputs::show_round_inputs))
        .routes(routes!(publications::follow_allocations))
        .routes(routes!(publications::follow_verdicts))
        .routes(routes!(publications::follow_failures))
        .routes(routes!(publications::follow_machines))
        .routes(routes!(publications::follow_clearings))
        .routes(routes!(publications::follow_processors))
        .routes(routes!(publications::follow_closed))
        .merge(worker_pools::routes());
    authorize(routes, route_roles::TABLE)
}
