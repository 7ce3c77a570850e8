//! Who may use which route of blocklist (S6). Whether an owner may say what it says, handlers
//! decide.

use hayward_service::http::authorization::{Table, Who};

/// What is blocked is everybody's business who places or runs work; agents and runners are told
/// what they need by others (S14).
const READERS: &[Who] = &[
    Who::Operator,
    Who::Viewer,
    Who::Submitter,
    Who::Owner,
    Who::Orchestrator,
    Who::Service,
];
const OPERATORS: &[Who] = &[Who::Operator];
const REPORTERS: &[Who] = &[Who::Operator, Who::Owner, Who::Service];

pub const TABLE: Table = &[
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
    ("follow_blocks", &[Who::Service]),
    ("follow_changes", READERS),
];
