//! container-manager over HTTP on a real Postgres, with a fake rm-scheduler and fake agents.
//! Messages are repeated, delayed and lost.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be built fails its test"
)]

mod service {
    mod access;
    mod dry_runs;
    mod fake_agent;
    mod fake_scheduler;
    mod fixture;
    mod invariants;
    mod lifecycle;
    mod output;
    mod placements;
    mod restart;
    mod successors;
    mod work_logs;
}

/// Rewrites the checked-in description with `BLESS=1`.
#[test]
fn the_api_description_matches_the_golden_file() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/container-manager.json"
    );
    let current = hayward_container_manager::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == current,
        "openapi/container-manager.json is not up to date; run with BLESS=1"
    );
}
