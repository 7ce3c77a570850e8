//! Tests job-converter over HTTP, on a real Postgres, with a fake scheduler, including kills and
//! restarts.

#![expect(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "service/applications.rs"]
mod applications;
#[path = "service/changes.rs"]
mod changes;
#[path = "service/fixture.rs"]
mod fixture;
#[path = "service/groups.rs"]
mod groups;
#[path = "service/invariants.rs"]
mod invariants;
#[path = "service/late_reports.rs"]
mod late_reports;
#[path = "service/life.rs"]
mod life;
#[path = "service/managers.rs"]
mod managers;
#[path = "service/orchestrators.rs"]
mod orchestrators;
#[path = "service/processors.rs"]
mod processors;
#[path = "service/redeploy.rs"]
mod redeploy;
#[path = "service/scheduler.rs"]
mod scheduler;
#[path = "service/submissions.rs"]
mod submissions;
#[path = "service/task_recovery.rs"]
mod task_recovery;
#[path = "service/tasks.rs"]
mod tasks;
#[path = "service/trials.rs"]
mod trials;

#[test]
fn the_description_is_the_one_that_was_agreed() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/job-converter.json"
    );
    let now = hayward_job_converter::openapi();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let agreed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        now == agreed,
        "the API changed; BLESS=1 rewrites {path}, then read the diff"
    );
}
