//! blocklist as its callers meet it: over HTTP, on a real Postgres, killed and started again.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what broke by where it panics"
)]

#[path = "service/evidence.rs"]
mod evidence;
#[path = "service/fixture.rs"]
mod fixture;
#[path = "service/invariants.rs"]
mod invariants;
#[path = "service/items.rs"]
mod items;
#[path = "service/rest.rs"]
mod rest;
#[path = "service/scenarios.rs"]
mod scenarios;
#[path = "service/scheduler.rs"]
mod scheduler;
#[path = "service/time.rs"]
mod time;
#[path = "service/trials.rs"]
mod trials;

#[test]
fn the_description_is_the_one_that_was_agreed() {
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
