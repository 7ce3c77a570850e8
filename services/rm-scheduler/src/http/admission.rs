//! Which callers may use which route (S6). Handlers decide what of an answer a user may see.

use hayward_service::http::authorization::{Table, Who};

/// Amounts and rules, for every caller that may ask for space.
const READERS: &[Who] = &[
    Who::Operator,
    Who::Viewer,
    Who::Submitter,
    Who::Owner,
    Who::Orchestrator,
    Who::Service,
];
/// Rounds, verdicts, nodes and earlier policies name the work of all users, so users get none of
/// them. job-converter shows users their own (S12).
const OVERSEERS: &[Who] = &[Who::Operator, Who::Viewer];
const OPERATORS: &[Who] = &[Who::Operator];
const SERVICES: &[Who] = &[Who::Service];
const OWNER: &[Who] = &[Who::OwnerOf("pool")];
const COMMANDERS: &[Who] = &[Who::Operator, Who::OwnerOf("pool")];
const WATCHERS: &[Who] = &[Who::Operator, Who::Viewer, Who::OwnerOf("pool")];

pub const TABLE: Table = &[
    ("show_policy", READERS),
    ("set_policy", OPERATORS),
    ("list_policies", OVERSEERS),
    ("show_policy_version", OVERSEERS),
    ("show_shares", READERS),
    ("list_queues", READERS),
    ("list_planners", OVERSEERS),
    (
        "forecast_changes",
        &[Who::Operator, Who::Viewer, Who::Submitter],
    ),
    ("show_load", READERS),
    ("list_occupancy", OVERSEERS),
    (
        "list_allocations",
        &[Who::Operator, Who::Viewer, Who::Submitter],
    ),
    (
        "show_allocation",
        &[Who::Operator, Who::Viewer, Who::Submitter],
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
        &[Who::Operator, Who::Viewer, Who::Submitter],
    ),
];
