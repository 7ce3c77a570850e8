//! Callers allowed per route (S6).

use hayward_service::http::authorization::{Role, RouteRoles};

/// Roles that may read nodes. Agents get their own node in the answers to heartbeats (S14).
const READERS: &[Role] = &[
    Role::Operator,
    Role::Viewer,
    Role::Submitter,
    Role::Owner,
    Role::Orchestrator,
    Role::Service,
];
const OPERATORS: &[Role] = &[Role::Operator];
const OWN_AGENT: &[Role] = &[Role::Agent("node")];

pub const TABLE: RouteRoles = &[
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
    // The secret in the body is the proof.
    ("redeem_enrolment", &[Role::Anyone]),
    ("follow_changes", READERS),
];
