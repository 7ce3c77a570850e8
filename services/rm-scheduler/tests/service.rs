//! Tests of rm-scheduler over HTTP on a real Postgres, with simulated neighbours: grants,
//! preemptions and ends of allocations, changes of nodes and blocks, unavailable neighbours, and
//! crashes.

#[cfg(test)]
mod service {
    mod access;
    mod allocation_lifecycle;
    mod blocks;
    mod change_stream;
    mod database_back_in_time;
    mod drains;
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
    mod preemption_budget;
    mod queues;
    mod replay;
    mod restart;
    mod service_evacuations;
    mod service_processors;
    mod sharing;
    mod successor_requests;
    mod unreachable_nodes;
    mod verdicts_and_receipts;
    mod views;
    mod what_if;
    mod worker_pools;
}

/// The OpenAPI description is in the repository, so that its changes are reviewed. `BLESS=1`
/// rewrites it.
#[test]
fn the_checked_in_openapi_description_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/rm-scheduler.json"
    );
    let current = hayward_rm_scheduler::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == current,
        "openapi/rm-scheduler.json is not up to date; run with BLESS=1"
    );
}
