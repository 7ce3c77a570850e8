//! The routes of job-converter. Handlers check who asks, ask the ledger once or read what is
//! published, and wrap the answer.

mod admission;
mod amend;
mod applications;
mod explain;
mod feed;
mod jobs;
mod orchestrators;
mod publications;
mod reservations;
mod services;
mod submit;
mod tasks;
mod work;

pub use self::feed::FEED;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::from_fn;
use hayward_publication::{Handle, Publisher};
use hayward_service::http::authorization::authorize;
use hayward_service::http::idempotency::in_memory;
use hayward_service::http::limits;
use hayward_service::http::server;
use hayward_service::runtime::clock::Clock;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::command::Command;
use crate::managers::Doors;
use crate::runner_tokens::Runners;
use crate::shared_view::Room;

/// What handlers need.
#[derive(Clone)]
pub struct App {
    pub handle: Handle<Command>,
    pub publisher: Arc<Publisher>,
    pub room: Arc<Room>,
    pub pool: PgPool,
    pub runners: Arc<Runners>,
    pub clock: Arc<dyn Clock>,
}

pub fn routes(doors: &Doors) -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .merge(doors.jobs.guards(of_users()))
        .merge(doors.orchestrator.guards(of_orchestrators()))
        .merge(doors.applications.guards(applications()))
        .merge(of_runners())
        .routes(routes!(publications::follow_demand));
    authorize(routes, admission::TABLE)
}

/// What the manager `jobs` is for: work that users submit, and what they see of it.
fn of_users() -> OpenApiRouter<App> {
    // Lists of arguments are long.
    let long = OpenApiRouter::new()
        .routes(routes!(jobs::list_jobs, submit::submit_job))
        .routes(routes!(submit::submit_jobs))
        .layer(limits::bulk_body_limit());
    OpenApiRouter::new()
        .merge(long)
        .routes(routes!(publications::follow_jobs))
        .routes(routes!(jobs::show_job, jobs::cancel_job))
        .routes(routes!(explain::explain_job))
        .routes(routes!(explain::show_job_timeline))
        .routes(routes!(tasks::list_tasks))
        .routes(routes!(tasks::read_logs))
        .routes(routes!(services::list_services, submit::submit_service))
        .routes(routes!(
            services::show_service,
            services::cancel_service,
            amend::change_service
        ))
        .routes(routes!(amend::show_service_submission))
        .routes(routes!(explain::explain_service))
        .routes(routes!(explain::show_service_timeline))
        .routes(routes!(
            reservations::list_reservations,
            submit::submit_reservation
        ))
        .routes(routes!(
            reservations::show_reservation,
            reservations::cancel_reservation
        ))
        .routes(routes!(explain::explain_reservation))
        .routes(routes!(explain::show_reservation_timeline))
}

/// What the manager `orchestrator` is for.
fn of_orchestrators() -> OpenApiRouter<App> {
    let long = OpenApiRouter::new()
        .routes(routes!(orchestrators::renew_orchestrator_credentials))
        .routes(routes!(orchestrators::put_work_map))
        .layer(limits::bulk_body_limit());
    OpenApiRouter::new()
        .merge(long)
        .merge(in_memory::require_keys(OpenApiRouter::new().routes(
            routes!(
                orchestrators::list_orchestrators,
                orchestrators::create_orchestrator
            ),
        )))
        .routes(routes!(
            orchestrators::show_orchestrator,
            orchestrators::remove_orchestrator
        ))
        .routes(routes!(orchestrators::follow_orchestrated))
}

/// What goes on whichever managers are enabled: tasks of jobs that are there.
fn of_runners() -> OpenApiRouter<App> {
    // Outputs are long; a runner's wait stands in its body.
    OpenApiRouter::new()
        .routes(routes!(tasks::report_tasks))
        .merge(
            OpenApiRouter::new()
                .routes(routes!(tasks::lease_tasks))
                .layer(from_fn(server::long_poll)),
        )
        .layer(limits::bulk_body_limit())
}

fn applications() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(applications::list_applications))
        .routes(routes!(
            applications::add_application,
            applications::show_application,
            applications::remove_application
        ))
        .routes(routes!(
            applications::tasks::add_task,
            applications::tasks::show_task,
            applications::tasks::remove_task
        ))
        .merge(in_memory::require_keys(
            OpenApiRouter::new()
                .routes(routes!(applications::tell_application))
                .routes(routes!(applications::tasks::tell_task))
                .routes(routes!(applications::confirm_release)),
        ))
        .merge(
            in_memory::require_keys(
                OpenApiRouter::new().routes(routes!(applications::bulk::add_tasks)),
            )
            .layer(limits::bulk_body_limit()),
        )
}

/// A11: what to ask for to read one's own write.
fn revision(revision: u64) -> HeaderMap {
    let name = HeaderName::from_static("hayward-revision");
    HeaderMap::from_iter([(name, HeaderValue::from(revision))])
}
