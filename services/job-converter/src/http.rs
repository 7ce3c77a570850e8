//! Routes of job-converter. A handler checks the caller, sends one command or reads published
//! state, and converts the answer.

mod accounts;
mod applications;
mod change_feed;
mod change_service;
mod explain;
mod headers;
mod jobs;
mod orchestrators;
mod publications;
mod reservations;
mod route_roles;
mod services;
mod submit;
mod task_commands;
mod task_views;
mod tasks;
mod work;

pub use self::change_feed::FEED;

use std::sync::Arc;

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
use crate::manager_gates::ManagerGates;
use crate::shared_state::SharedState;
use crate::token_issuer::TokenIssuer;

/// State of the handlers.
#[derive(Clone)]
pub struct App {
    pub handle: Handle<Command>,
    pub publisher: Arc<Publisher>,
    pub shared: Arc<SharedState>,
    pub pool: PgPool,
    pub token_issuer: Arc<TokenIssuer>,
    pub clock: Arc<dyn Clock>,
}

pub fn routes(gates: &ManagerGates) -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .merge(gates.jobs.guard(user_routes()))
        .merge(gates.orchestrator.guard(orchestrator_routes()))
        .merge(gates.applications.guard(application_routes()))
        .merge(runner_routes())
        .routes(routes!(accounts::list_accounts))
        .routes(routes!(accounts::forget_account))
        .routes(routes!(publications::follow_demand));
    authorize(routes, route_roles::ROUTE_ROLES)
}

/// Routes of the manager `jobs`.
fn user_routes() -> OpenApiRouter<App> {
    // Argument lists can be long.
    let large_body_routes = OpenApiRouter::new()
        .routes(routes!(jobs::list_jobs, submit::submit_job))
        .routes(routes!(submit::submit_jobs))
        .layer(limits::bulk_body_limit());
    OpenApiRouter::new()
        .merge(large_body_routes)
        .routes(routes!(publications::follow_jobs))
        .routes(routes!(jobs::show_job, jobs::cancel_job))
        .routes(routes!(explain::explain_job))
        .routes(routes!(explain::show_job_timeline))
        .routes(routes!(task_views::list_tasks))
        .routes(routes!(task_views::show_job_task))
        .routes(routes!(task_views::read_logs))
        .merge(in_memory::require_keys(
            OpenApiRouter::new()
                .routes(routes!(task_commands::cancel_tasks))
                .routes(routes!(task_commands::signal_tasks))
                .routes(routes!(task_commands::signal_job_task)),
        ))
        .routes(routes!(services::list_services, submit::submit_service))
        .routes(routes!(
            services::show_service,
            services::cancel_service,
            change_service::change_service
        ))
        .routes(routes!(change_service::show_service_submission))
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

/// Routes of the manager `orchestrator`.
fn orchestrator_routes() -> OpenApiRouter<App> {
    let large_body_routes = OpenApiRouter::new()
        .routes(routes!(orchestrators::renew_orchestrator_credentials))
        .routes(routes!(orchestrators::put_work_map))
        .layer(limits::bulk_body_limit());
    OpenApiRouter::new()
        .merge(large_body_routes)
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

/// Routes of task runners, independent of the enabled managers.
fn runner_routes() -> OpenApiRouter<App> {
    // Outputs can be long. A runner names its waiting time in the body, so the route is a long
    // poll.
    OpenApiRouter::new()
        .routes(routes!(tasks::report_tasks))
        .routes(routes!(task_commands::follow_commands))
        .merge(
            OpenApiRouter::new()
                .routes(routes!(tasks::lease_tasks))
                .layer(from_fn(server::long_poll)),
        )
        .layer(limits::bulk_body_limit())
}

/// Routes of the manager `applications`.
fn application_routes() -> OpenApiRouter<App> {
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
                .routes(routes!(applications::transition_application))
                .routes(routes!(applications::tasks::transition_task))
                .routes(routes!(applications::confirm_release)),
        ))
        .merge(
            in_memory::require_keys(
                OpenApiRouter::new().routes(routes!(applications::bulk_tasks::add_tasks)),
            )
            .layer(limits::bulk_body_limit()),
        )
}
