//! The routes of job-converter. Handlers check who asks, ask the ledger once or read what is
//! published, and wrap the answer.

mod explain;
mod jobs;
mod publications;
mod reservations;
mod services;
mod submit;
mod tasks;
mod work;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::from_fn;
use hayward_publication::{Handle, Publisher};
use hayward_service::clock::Clock;
use hayward_service::{frame, limits};
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::Command;
use crate::room::Room;
use crate::runners::Runners;

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

pub fn routes() -> OpenApiRouter<App> {
    // Lists of arguments and outputs are long; a runner's wait stands in its body.
    let long = OpenApiRouter::new()
        .routes(routes!(jobs::list_jobs, submit::submit_job))
        .routes(routes!(submit::submit_jobs))
        .routes(routes!(tasks::report_tasks))
        .merge(
            OpenApiRouter::new()
                .routes(routes!(tasks::lease_tasks))
                .layer(from_fn(frame::long_poll)),
        )
        .layer(limits::bulk());
    OpenApiRouter::new()
        .merge(long)
        .routes(routes!(publications::follow_jobs))
        .routes(routes!(jobs::show_job, jobs::cancel_job))
        .routes(routes!(explain::explain_job))
        .routes(routes!(explain::show_job_timeline))
        .routes(routes!(tasks::list_tasks))
        .routes(routes!(tasks::read_logs))
        .routes(routes!(services::list_services, submit::submit_service))
        .routes(routes!(services::show_service, services::cancel_service))
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
        .routes(routes!(publications::follow_demand))
}

/// A11: what to ask for to read one's own write.
fn revision(revision: u64) -> HeaderMap {
    let name = HeaderName::from_static("hayward-revision");
    HeaderMap::from_iter([(name, HeaderValue::from(revision))])
}
