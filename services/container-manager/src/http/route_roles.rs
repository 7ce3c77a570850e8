//! Roles that may call each route. A route is named by its operation id. Handlers also check the
//! owner of a container (S6).

use hayward_service::http::authorization::{Role, RouteRoles};

const READERS: &[Role] = &[Role::Operator, Role::Viewer, Role::Submitter];
const WRITERS: &[Role] = &[Role::Operator, Role::Submitter];
/// The agent of the node that the path parameter `node` names.
const AGENT: &[Role] = &[Role::Agent("node")];
const SERVICES: &[Role] = &[Role::Service];

pub const ROUTE_ROLES: RouteRoles = &[
    ("list_containers", READERS),
    ("show_container", READERS),
    ("read_logs", READERS),
    ("read_work_logs", READERS),
    ("report_containers", AGENT),
    ("report_output", AGENT),
    ("follow_containers", SERVICES),
    ("follow_desired", &[Role::Service, Role::Agent("node")]),
    ("follow_requests", SERVICES),
    ("list_placements", READERS),
    ("submit_placement", WRITERS),
    ("show_placement", READERS),
    ("withdraw_placement", WRITERS),
    ("list_processors", READERS),
    ("show_processor", READERS),
    ("list_resource_requests", READERS),
    ("move_container", WRITERS),
    ("follow_changes", &[Role::Operator, Role::Viewer]),
];
