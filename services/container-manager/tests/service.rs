//! container-manager over HTTP on a real Postgres, between a pretend rm-scheduler and a pretend
//! agent: the whole life of a container, with everything that can repeat, come late or break.

#![expect(
    clippy::unwrap_used,
    reason = "a world that cannot be built fails its test"
)]

mod service {
    mod access;
    mod agent;
    mod evacuations;
    mod invariants;
    mod life;
    mod output;
    mod placements;
    mod restart;
    mod trials;
    mod upstream;
    mod work_logs;
    mod world;
}

/// The API's description is kept in the repository, so that a change of it is seen. `BLESS=1`
/// writes it anew.
#[test]
fn the_description_is_the_one_checked_in() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/container-manager.json"
    );
    let now = hayward_container_manager::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == now,
        "openapi/container-manager.json is not up to date; run with BLESS=1"
    );
}
