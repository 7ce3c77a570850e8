//! The routes of container-manager.

mod agent_reports;
mod container_logs;
mod containers;
mod feed;
mod placements;
mod publications;
mod route_roles;
mod work_logs;

pub use self::feed::FEED;

use std::sync::Arc;

use hayward_publication::keyed_notify::KeyedNotify;
use hayward_publication::{Handle, Publisher};
use hayward_service::http::authorization::authorize;
use hayward_service::http::openapi::Description;
use hayward_service::{Caller, Problem, Scope};
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;

pub const ABOUT: Description = Description {
    title: "Hayward container-manager",
    text: "Owns containers: orders nodes to run them, and shows their state.",
};

/// State of the handlers.
#[derive(Clone)]
pub struct Api {
    pub handle: Handle<Command>,
    pub pool: PgPool,
    /// Notifies readers of new output. The keys are ids of containers and of whole work items.
    pub output_changed: Arc<KeyedNotify<String>>,
}

impl Api {
    fn publisher(&self) -> &Publisher {
        self.handle.publisher()
    }
}

pub fn routes() -> OpenApiRouter<Api> {
    let routes = OpenApiRouter::new()
        .routes(routes!(containers::list_containers))
        .routes(routes!(containers::show_container))
        .routes(routes!(container_logs::read_logs))
        .routes(routes!(work_logs::read_work_logs))
        .routes(routes!(agent_reports::report_containers))
        .routes(routes!(agent_reports::report_output))
        .routes(routes!(publications::follow_containers))
        .routes(routes!(publications::follow_desired))
        .routes(routes!(publications::follow_requests))
        .merge(placements::routes());
    authorize(routes, route_roles::ROUTE_ROLES)
}

/// Returns the owner whose containers the caller may see. `None` if the caller may see all (S7).
fn owner_filter_for_reads(caller: &Caller) -> Result<Option<String>, Problem> {
    caller.require(&[Scope::Operator, Scope::Viewer, Scope::Submitter])?;
    let sees_all = caller.has(&Scope::Operator) || caller.has(&Scope::Viewer);
    Ok((!sees_all).then(|| caller.name.clone()))
}

/// Converts an error of a database read to a problem. The client may retry if the database was
/// unavailable.
fn database_problem(error: sqlx::Error) -> Problem {
    match error {
        sqlx::Error::Decode(cause) => Problem::internal(sqlx::Error::Decode(cause)),
        other => Problem::unavailable("the database is unavailable; try again", other),
    }
}
