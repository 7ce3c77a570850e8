//! The roles that may call each route (S6). Some handlers restrict the response further, to the
//! work of the caller.

use hayward_service::http::authorization::{Role, RouteRoles};

/// Callers that may read amounts and rules: services, and all callers that may submit work or own a
/// worker pool.
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
const ALL_WORK_READERS: &[Role] = &[Role::Operator, Role::Viewer];
/// Callers for which the handler limits the response to the work that they may see.
const WORK_READERS: &[Role] = &[Role::Operator, Role::Viewer, Role::Submitter];
const OPERATORS: &[Role] = &[Role::Operator];
const SERVICES: &[Role] = &[Role::Service];
/// The owner of the worker pool that the path parameter `pool` names.
const OWNER: &[Role] = &[Role::OwnerOf("pool")];
/// Callers that may change a worker pool.
const POOL_MANAGERS: &[Role] = &[Role::Operator, Role::OwnerOf("pool")];
/// Callers that may read a worker pool.
const POOL_READERS: &[Role] = &[Role::Operator, Role::Viewer, Role::OwnerOf("pool")];

/// Operation id of each route, with the roles that may call it.
pub const TABLE: RouteRoles = &[
    ("show_policy", READERS),
    ("set_policy", OPERATORS),
    ("list_policies", ALL_WORK_READERS),
    ("show_policy_version", ALL_WORK_READERS),
    ("show_shares", READERS),
    ("list_queues", READERS),
    ("list_planners", ALL_WORK_READERS),
    ("forecast_changes", WORK_READERS),
    ("show_load", READERS),
    ("list_occupancy", ALL_WORK_READERS),
    ("list_allocations", WORK_READERS),
    ("show_allocation", WORK_READERS),
    ("list_rounds", ALL_WORK_READERS),
    ("show_round", ALL_WORK_READERS),
    ("show_verdict", ALL_WORK_READERS),
    ("show_round_inputs", OPERATORS),
    ("follow_allocations", SERVICES),
    ("follow_verdicts", SERVICES),
    ("follow_failures", SERVICES),
    ("follow_machines", SERVICES),
    ("follow_clearings", SERVICES),
    ("follow_processors", SERVICES),
    ("follow_closed", SERVICES),
    ("list_pools", ALL_WORK_READERS),
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
    ("follow_changes", WORK_READERS),
];
