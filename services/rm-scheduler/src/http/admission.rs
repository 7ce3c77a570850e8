//! Which callers may use which route (S6). Handlers decide what of an answer a user may see.

use hayward_service::http::authorization::{Role, RouteRoles};

/// Amounts and rules, for every caller that may ask for space.
const READERS: &[Role] = &[
    Role::Operator,
    Role::Viewer,
    Role::Submitter,
    Role::Owner,
    Role::Orchestrator,
    Role::Service,
];
/// Rounds, verdicts, nodes and earlier policies name the work of all users, so users get none of
/// them. job-converter shows users their own (S12).
const OVERSEERS: &[Role] = &[Role::Operator, Role::Viewer];
const OPERATORS: &[Role] = &[Role::Operator];
const SERVICES: &[Role] = &[Role::Service];
const OWNER: &[Role] = &[Role::OwnerOf("pool")];
const COMMANDERS: &[Role] = &[Role::Operator, Role::OwnerOf("pool")];
const WATCHERS: &[Role] = &[Role::Operator, Role::Viewer, Role::OwnerOf("pool")];

pub const TABLE: RouteRoles = &[
    ("show_policy", READERS),
    ("set_policy", OPERATORS),
    ("list_policies", OVERSEERS),
    ("show_policy_version", OVERSEERS),
    ("show_shares", READERS),
    ("list_queues", READERS),
    ("list_planners", OVERSEERS),
    (
        "forecast_changes",
        &[Role::Operator, Role::Viewer, Role::Submitter],
    ),
    ("show_load", READERS),
    ("list_occupancy", OVERSEERS),
    (
        "list_allocations",
        &[Role::Operator, Role::Viewer, Role::Submitter],
    ),
    (
        "show_allocation",
        &[Role::Operator, Role::Viewer, Role::Submitter],
    ),
    ("list_rounds", OVERSEERS),
    ("show_round", OVERSEERS),
    ("show_verdict", OVERSEERS),
    ("show_round_inputs", OPERATORS),
    ("follow_allocations", SERVICES),
    ("follow_verdicts", SERVICES),
    ("follow_failures", SERVICES),
    ("follow_machines", SERVICES),
    ("follow_clearings", SERVICES),
    ("follow_processors", SERVICES),
    ("follow_closed", SERVICES),
    ("list_pools", OVERSEERS),
    ("create_pool", OPERATORS),
    ("show_pool", WATCHERS),
    ("list_pool_workers", WATCHERS),
    ("connect_owner", OWNER),
    ("disconnect_owner", OWNER),
    ("renew_pool_credentials", COMMANDERS),
    ("set_pool_size", COMMANDERS),
    ("worker_started", OWNER),
    ("remove_worker", COMMANDERS),
    ("report_idle_workers", OWNER),
    ("check_pool", COMMANDERS),
    ("stop_pool", COMMANDERS),
    ("follow_pool_events", WATCHERS),
    (
        "follow_changes",
        &[Role::Operator, Role::Viewer, Role::Submitter],
    ),
];
