//! Roles that may use each route. Handlers check the owner of the work (S7).

use hayward_service::http::authorization::{Table, Who};

const READERS: &[Who] = &[Who::Submitter, Who::Operator, Who::Viewer];
const CHANGERS: &[Who] = &[Who::Submitter, Who::Operator];
const SUBMITTERS: &[Who] = &[Who::Submitter];
const OPERATORS: &[Who] = &[Who::Operator];
const RUNNERS: &[Who] = &[Who::Runner];
const SERVICES: &[Who] = &[Who::Service];
const ITSELF: Who = Who::OrchestratorOf("name");

pub const TABLE: Table = &[
    ("list_jobs", READERS),
    ("submit_job", SUBMITTERS),
    ("submit_jobs", SUBMITTERS),
    ("follow_jobs", READERS),
    ("show_job", READERS),
    ("cancel_job", CHANGERS),
    ("explain_job", READERS),
    ("show_job_timeline", READERS),
    ("list_tasks", READERS),
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
    ("list_orchestrators", &[Who::Operator, Who::Viewer]),
    ("create_orchestrator", OPERATORS),
    ("show_orchestrator", &[Who::Operator, Who::Viewer, ITSELF]),
    ("remove_orchestrator", &[Who::Operator, ITSELF]),
    ("put_work_map", &[ITSELF]),
    ("renew_orchestrator_credentials", &[ITSELF]),
    ("follow_orchestrated", &[Who::Operator, Who::Viewer, ITSELF]),
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
    ("follow_demand", SERVICES),
    ("follow_changes", READERS),
];
