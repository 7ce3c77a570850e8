//! Roles that may use each route. Handlers check the owner of a container (S6).

use hayward_service::http::authorization::{Table, Who};

const READERS: &[Who] = &[Who::Operator, Who::Viewer, Who::Submitter];
const CHANGERS: &[Who] = &[Who::Operator, Who::Submitter];
const AGENT: &[Who] = &[Who::Agent("node")];
const SERVICES: &[Who] = &[Who::Service];

pub const TABLE: Table = &[
    ("list_containers", READERS),
    ("show_container", READERS),
    ("read_logs", READERS),
    ("read_work_logs", READERS),
    ("report_containers", AGENT),
    ("report_output", AGENT),
    ("follow_containers", SERVICES),
    ("follow_desired", &[Who::Service, Who::Agent("node")]),
    ("follow_requests", SERVICES),
    ("list_placements", READERS),
    ("submit_placement", CHANGERS),
    ("show_placement", READERS),
    ("withdraw_placement", CHANGERS),
    ("list_processors", READERS),
    ("show_processor", READERS),
    ("list_resource_requests", READERS),
    ("move_container", CHANGERS),
    ("follow_changes", &[Who::Operator, Who::Viewer]),
];
