//! Service tests of blocklist over HTTP, on a real Postgres, with crashes and restarts.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what broke by where it panics"
)]

#[path = "service/dry_runs.rs"]
mod dry_runs;
#[path = "service/evidence.rs"]
mod evidence;
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
#[path = "service/scheduler.rs"]
mod scheduler;
#[path = "service/time.rs"]
mod time;

#[test]
fn the_api_description_matches_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/blocklist.json");
    let now = hayward_blocklist::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let agreed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        now == agreed,
        "the API changed; BLESS=1 rewrites {path}, then read the diff"
    );
}
