//! The roles that may call each route, by operation id. Handlers also check the owner of the work
//! (S7).

use hayward_service::http::authorization::{Role, RouteRoles};

const READERS: &[Role] = &[Role::Submitter, Role::Operator, Role::Viewer];
const CHANGERS: &[Role] = &[Role::Submitter, Role::Operator];
const SUBMITTERS: &[Role] = &[Role::Submitter];
const OPERATORS: &[Role] = &[Role::Operator];
const RUNNERS: &[Role] = &[Role::Runner];
const SERVICES: &[Role] = &[Role::Service];
/// The orchestrator that the path names.
const THE_ORCHESTRATOR: Role = Role::OrchestratorOf("name");

pub const ROUTE_ROLES: RouteRoles = &[
    ("list_jobs", READERS),
    ("submit_job", SUBMITTERS),
    ("submit_jobs", SUBMITTERS),
    ("follow_jobs", READERS),
    ("show_job", READERS),
    ("cancel_job", CHANGERS),
    ("explain_job", READERS),
    ("show_job_timeline", READERS),
    ("list_tasks", READERS),
    ("cancel_tasks", CHANGERS),
    ("signal_tasks", CHANGERS),
    ("signal_job_task", CHANGERS),
    ("show_job_task", READERS),
    ("read_logs", READERS),
    ("list_services", READERS),
    ("submit_service", SUBMITTERS),
    ("show_service", READERS),
    ("change_service", SUBMITTERS),
    ("cancel_service", CHANGERS),
    ("show_service_submission", CHANGERS),
    ("explain_service", READERS),
    ("show_service_timeline", READERS),
    ("list_reservations", READERS),
    ("submit_reservation", SUBMITTERS),
    ("show_reservation", READERS),
    ("cancel_reservation", CHANGERS),
    ("explain_reservation", READERS),
    ("show_reservation_timeline", READERS),
    ("list_accounts", OPERATORS),
    ("forget_account", OPERATORS),
    ("list_orchestrators", &[Role::Operator, Role::Viewer]),
    ("create_orchestrator", OPERATORS),
    (
        "show_orchestrator",
        &[Role::Operator, Role::Viewer, THE_ORCHESTRATOR],
    ),
    ("remove_orchestrator", &[Role::Operator, THE_ORCHESTRATOR]),
    ("put_work_map", &[THE_ORCHESTRATOR]),
    ("renew_orchestrator_credentials", &[THE_ORCHESTRATOR]),
    (
        "follow_orchestrated",
        &[Role::Operator, Role::Viewer, THE_ORCHESTRATOR],
    ),
    ("list_applications", READERS),
    ("show_application", READERS),
    ("add_application", SUBMITTERS),
    ("remove_application", CHANGERS),
    ("tell_application", CHANGERS),
    ("show_task", READERS),
    ("add_task", CHANGERS),
    ("add_tasks", CHANGERS),
    ("remove_task", CHANGERS),
    ("tell_task", CHANGERS),
    ("confirm_release", CHANGERS),
    ("report_tasks", RUNNERS),
    ("lease_tasks", RUNNERS),
    ("follow_commands", RUNNERS),
    ("follow_demand", SERVICES),
    ("follow_changes", READERS),
];
