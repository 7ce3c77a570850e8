//! Tests of node-status over HTTP with a PostgreSQL database, including crashes and restarts.

#![expect(clippy::unwrap_used, reason = "the place of a panic shows what failed")]

#[path = "service/agents.rs"]
mod agents;
#[path = "service/drains.rs"]
mod drains;
#[path = "service/dry_runs.rs"]
mod dry_runs;
#[path = "service/duplicate_agents.rs"]
mod duplicate_agents;
#[path = "service/enrolment_limits.rs"]
mod enrolment_limits;
#[path = "service/fake_scheduler.rs"]
mod fake_scheduler;
#[path = "service/fixture.rs"]
mod fixture;
#[path = "service/if_match.rs"]
mod if_match;
#[path = "service/invariants.rs"]
mod invariants;
#[path = "service/leader_lease.rs"]
mod leader_lease;
#[path = "service/node_details.rs"]
mod node_details;
#[path = "service/operators.rs"]
mod operators;

#[test]
fn the_api_description_matches_the_golden_file() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/node-status.json"
    );
    let current = hayward_node_status::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        current == golden,
        "the API changed; BLESS=1 rewrites {path}, then read the diff"
    );
}
