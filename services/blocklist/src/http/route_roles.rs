//! Roles that may call each route. A route is named by its operation id. Handlers also check
//! whether an owner may use the requested source (S6).

use hayward_service::http::authorization::{Role, RouteRoles};

/// All callers except agents and runners may read. Agents and runners get blocks from other
/// services (S14).
const READERS: &[Role] = &[
    Role::Operator,
    Role::Viewer,
    Role::Submitter,
    Role::Owner,
    Role::Orchestrator,
    Role::Service,
];
const OPERATORS: &[Role] = &[Role::Operator];
const REPORTERS: &[Role] = &[Role::Operator, Role::Owner, Role::Service];

pub const ROUTE_ROLES: RouteRoles = &[
    ("show_blocks", READERS),
    ("show_node_block", READERS),
    ("block_node", OPERATORS),
    ("unblock_node", OPERATORS),
    ("show_worker_block", READERS),
    ("block_worker", OPERATORS),
    ("unblock_worker", OPERATORS),
    ("show_evidence", READERS),
    ("show_evacuation", READERS),
    ("report_failures", REPORTERS),
    ("show_strategy", READERS),
    ("choose_strategy", OPERATORS),
    ("list_block_news", READERS),
    ("list_blocks", READERS),
    ("add_block", OPERATORS),
    ("add_blocks", REPORTERS),
    ("show_block", READERS),
    ("remove_block", OPERATORS),
    ("list_block_changes", READERS),
    ("follow_blocks", &[Role::Service]),
    ("follow_changes", READERS),
];
