//! rm-scheduler over HTTP on a real Postgres, with simulated neighbours: grants, preemptions and
//! ends of allocations, changes of nodes and blocks, silence, and crashes.

#[cfg(test)]
mod service {
    mod access;
    mod allocation_life;
    mod blocks;
    mod budget;
    mod change_stream;
    mod database_back_in_time;
    mod drains;
    mod evacuations;
    mod exclusive_work;
    mod external_planners;
    mod failure_evidence;
    mod fixture;
    mod invariants;
    mod many_jobs;
    mod neighbours;
    mod nodes;
    mod nodes_on_trial;
    mod orchestrator_allocations;
    mod placeholder_exchange;
    mod policy;
    mod queues;
    mod reasons;
    mod replay;
    mod restart;
    mod service_processors;
    mod sharing;
    mod successor_requests;
    mod unreachable;
    mod views;
    mod what_if;
    mod worker_pools;
}

/// The OpenAPI description is in the repository, so that changes of it are visible. `BLESS=1`
/// rewrites it.
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
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == now,
        "openapi/rm-scheduler.json is not up to date; run with BLESS=1"
    );
}
