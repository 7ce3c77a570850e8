//! rm-scheduler over HTTP on a real Postgres, between pretend neighbours: what is granted, taken
//! back and buried, what nodes, blocks and silence do to it, and what a crash leaves.

#[cfg(test)]
mod service {
    mod access;
    mod alone;
    mod apart;
    mod blocks;
    mod budget;
    mod changes;
    mod crowd;
    mod drains;
    mod evacuations;
    mod evidence;
    mod invariants;
    mod life;
    mod neighbours;
    mod nodes;
    mod orchestrated;
    mod outside;
    mod placeholders;
    mod policy;
    mod pools;
    mod queues;
    mod read_only;
    mod reasons;
    mod replay;
    mod requests;
    mod restart;
    mod sharing;
    mod trials;
    mod unreachable;
    mod views;
    mod what_if;
    mod world;
}

/// The API's description is kept in the repository, so that a change of it is seen. `BLESS=1`
/// writes it anew.
#[test]
fn the_description_is_the_one_checked_in() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/rm-scheduler.json"
    );
    let now = hayward_rm_scheduler::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == now,
        "openapi/rm-scheduler.json is not up to date; run with BLESS=1"
    );
}
