//! Tests that a manager that is not enabled refuses requests, while its earlier work continues.

use hayward_job_converter_api::WorkState;
use hayward_service::client::ClientError;
use serde_json::Value;

use crate::fixture::{Fixture, fresh_key, job_with_tasks, refusal, report, submit};

#[tokio::test]
async fn a_disabled_manager_refuses_new_work_and_continues_earlier_work() {
    let mut fixture = Fixture::with_short_lease().await;
    let id = fixture.submit(job_with_tasks(1)).await.id;
    let demand = fixture.demand_of(&id).await;
    fixture.settings.managers = Vec::new();
    fixture.kill_and_restart().await;

    let user = fixture.user("ann");
    let refused = submit(&user, "/v1/jobs", &job_with_tasks(1), &fresh_key()).await;
    let problem = refused.as_ref().unwrap_err().problem().unwrap().clone();
    assert!(
        problem.detail.contains("`jobs` is not enabled"),
        "{problem:?}"
    );
    assert_eq!(refusal(refused).0, 409);
    let listed: Result<Value, ClientError> = user.get("/v1/reservations").await;
    assert_eq!(refusal(listed).0, 409);

    // Its process still leases and reports, and its demand stays until the end.
    let process = fixture.scheduler.grant(&demand);
    let runner = fixture.runner(&fixture.demand_of(&id).await);
    let lease = runner.lease(&process.id, 1).await;
    assert_eq!(lease.tasks.len(), 1);
    runner.report(&process.id, vec![report(0, 1, 0)]).await;
    assert!(fixture.demand().await.is_empty());

    fixture.settings.managers = hayward_job_converter::Settings::default().managers;
    fixture.kill_and_restart().await;
    fixture.wait_for_state(&id, WorkState::Completed).await;
}
