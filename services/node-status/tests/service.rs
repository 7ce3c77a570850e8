//! Service tests of node-status over HTTP, on a real Postgres, with crashes and restarts.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what broke by where it panics"
)]

#[path = "service/agents.rs"]
mod agents;
#[path = "service/details.rs"]
mod details;
#[path = "service/drains.rs"]
mod drains;
#[path = "service/dry_runs.rs"]
mod dry_runs;
#[path = "service/fixture.rs"]
mod fixture;
#[path = "service/identity.rs"]
mod identity;
#[path = "service/invariants.rs"]
mod invariants;
#[path = "service/operators.rs"]
mod operators;
#[path = "service/scheduler.rs"]
mod scheduler;

#[test]
fn the_api_description_matches_the_golden_file() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/node-status.json"
    );
    let now = hayward_node_status::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let agreed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        now == agreed,
        "the API changed; BLESS=1 rewrites {path}, then read the diff"
    );
}
