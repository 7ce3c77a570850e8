//! Tests of job-converter over HTTP, with a real Postgres and a fake scheduler. Some tests kill and
//! restart the service.

#![expect(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "service/accounts.rs"]
mod accounts;
#[path = "service/applications.rs"]
mod applications;
#[path = "service/change_stream.rs"]
mod change_stream;
#[path = "service/disabled_manager.rs"]
mod disabled_manager;
#[path = "service/dry_runs.rs"]
mod dry_runs;
#[path = "service/fake_scheduler.rs"]
mod fake_scheduler;
#[path = "service/fixture.rs"]
mod fixture;
#[path = "service/invariants.rs"]
mod invariants;
#[path = "service/late_reports.rs"]
mod late_reports;
#[path = "service/orchestrators.rs"]
mod orchestrators;
#[path = "service/service_changes.rs"]
mod service_changes;
#[path = "service/service_processors.rs"]
mod service_processors;
#[path = "service/submissions.rs"]
mod submissions;
#[path = "service/task_cancellation.rs"]
mod task_cancellation;
#[path = "service/task_leases.rs"]
mod task_leases;
#[path = "service/task_recovery.rs"]
mod task_recovery;
#[path = "service/task_runs.rs"]
mod task_runs;
#[path = "service/task_slots.rs"]
mod task_slots;
#[path = "service/task_usage.rs"]
mod task_usage;
#[path = "service/user_groups.rs"]
mod user_groups;
#[path = "service/work_lifecycle.rs"]
mod work_lifecycle;

#[test]
fn the_openapi_description_equals_the_golden_file() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/job-converter.json"
    );
    let current = hayward_job_converter::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        current == golden,
        "the API changed; BLESS=1 rewrites {path}, then read the diff"
    );
}
