//! Callers allowed per route (S6).

use hayward_service::http::authorization::{Table, Who};

/// Agents see their own node in the answers to heartbeats, and no other (S14).
const READERS: &[Who] = &[
    Who::Operator,
    Who::Viewer,
    Who::Submitter,
    Who::Owner,
    Who::Orchestrator,
    Who::Service,
];
const OPERATORS: &[Who] = &[Who::Operator];
const AGENT: &[Who] = &[Who::Agent("node")];

pub const TABLE: Table = &[
    ("list_nodes", READERS),
    ("follow_nodes", &[Who::Service]),
    ("show_node", READERS),
    ("remove_node", OPERATORS),
    ("vary_node", OPERATORS),
    ("show_drain", READERS),
    ("drain_node", OPERATORS),
    ("cancel_drain", OPERATORS),
    ("identify_node", OPERATORS),
    ("list_node_changes", READERS),
    ("put_heartbeat", AGENT),
    ("create_enrolment", OPERATORS),
    ("renew_credentials", AGENT),
    // The secret in the body is the proof.
    ("redeem_enrolment", &[Who::Anyone]),
    ("follow_changes", READERS),
];
