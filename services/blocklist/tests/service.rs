//! Tests of blocklist over HTTP, with a real Postgres, crashes and restarts.

#![expect(
    clippy::unwrap_used,
    reason = "a panic shows the failed step of a test"
)]

#[path = "service/automatic_blocks.rs"]
mod automatic_blocks;
#[path = "service/dry_runs.rs"]
mod dry_runs;
#[path = "service/expiry.rs"]
mod expiry;
#[path = "service/fake_scheduler.rs"]
mod fake_scheduler;
#[path = "service/fixture.rs"]
mod fixture;
#[path = "service/invariants.rs"]
mod invariants;
#[path = "service/items.rs"]
mod items;
#[path = "service/routes.rs"]
mod routes;
#[path = "service/scenarios.rs"]
mod scenarios;

#[test]
fn the_api_description_matches_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/blocklist.json");
    let current = hayward_blocklist::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        current == stored,
        "the API changed; BLESS=1 rewrites {path}, then read the diff"
    );
}
