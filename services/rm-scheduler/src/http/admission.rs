//! Which roles may use which route (S6). For some routes, the handler then shows each user only its
//! own part of the response.

use hayward_service::http::authorization::{Role, RouteRoles};

/// Callers that may read amounts and rules: all that may submit work or own a pool, and services.
const READERS: &[Role] = &[
    Role::Operator,
    Role::Viewer,
    Role::Submitter,
    Role::Owner,
    Role::Orchestrator,
    Role::Service,
];
/// Callers that may read the work of all users, as in rounds, verdicts, nodes and earlier policies.
/// Users read their own work from job-converter (S12).
const OVERSEERS: &[Role] = &[Role::Operator, Role::Viewer];
const OPERATORS: &[Role] = &[Role::Operator];
const SERVICES: &[Role] = &[Role::Service];
/// The owner of the pool that the path names.
const OWNER: &[Role] = &[Role::OwnerOf("pool")];
/// Callers that may change a pool.
const POOL_MANAGERS: &[Role] = &[Role::Operator, Role::OwnerOf("pool")];
/// Callers that may read a pool.
const POOL_READERS: &[Role] = &[Role::Operator, Role::Viewer, Role::OwnerOf("pool")];

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
    ("show_pool", POOL_READERS),
    ("list_pool_workers", POOL_READERS),
    ("connect_owner", OWNER),
    ("disconnect_owner", OWNER),
    ("renew_pool_credentials", POOL_MANAGERS),
    ("set_pool_size", POOL_MANAGERS),
    ("worker_started", OWNER),
    ("remove_worker", POOL_MANAGERS),
    ("report_idle_workers", OWNER),
    ("check_pool", POOL_MANAGERS),
    ("stop_pool", POOL_MANAGERS),
    ("follow_pool_events", POOL_READERS),
    (
        "follow_changes",
        &[Role::Operator, Role::Viewer, Role::Submitter],
    ),
];
