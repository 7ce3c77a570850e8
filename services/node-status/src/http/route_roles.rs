//! The roles that may call each route, by operation id (S6).

use hayward_service::http::authorization::{Role, RouteRoles};

/// Roles that may read nodes. An agent learns the state of its own node from the answers to its
/// heartbeats (S14).
const READERS: &[Role] = &[
    Role::Operator,
    Role::Viewer,
    Role::Submitter,
    Role::Owner,
    Role::Orchestrator,
    Role::Service,
];
const OPERATORS: &[Role] = &[Role::Operator];
/// The agent of the node that the path parameter `node` names.
const OWN_AGENT: &[Role] = &[Role::Agent("node")];

pub const ROUTE_ROLES: RouteRoles = &[
    ("list_nodes", READERS),
    ("follow_nodes", &[Role::Service]),
    ("show_node", READERS),
    ("remove_node", OPERATORS),
    ("vary_node", OPERATORS),
    ("show_drain", READERS),
    ("drain_node", OPERATORS),
    ("cancel_drain", OPERATORS),
    ("identify_node", OPERATORS),
    ("list_node_changes", READERS),
    ("put_heartbeat", OWN_AGENT),
    ("create_enrolment", OPERATORS),
    ("renew_credentials", OWN_AGENT),
    // The secret in the body proves the permission.
    ("redeem_enrolment", &[Role::Anyone]),
    ("follow_changes", READERS),
];
