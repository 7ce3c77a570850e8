//! A manager that is not enabled accepts no work and says so.

use hayward_job_converter_api::WorkState;
use hayward_service::client::ClientError;
use serde_json::Value;

use crate::world::{World, count, ended, fresh_key, refusal, submit};

#[tokio::test]
async fn a_disabled_manager_refuses_new_work_and_continues_the_old() {
    let mut world = World::mortal().await;
    let id = world.submit(count(1)).await.id;
    let demand = world.demand_of(&id).await;
    world.settings.managers = Vec::new();
    world.kill_and_restart().await;

    let user = world.user("ann");
    let refused = submit(&user, "/v1/jobs", &count(1), &fresh_key()).await;
    let problem = refused.as_ref().unwrap_err().problem().unwrap().clone();
    assert!(
        problem.detail.contains("`jobs` is not enabled"),
        "{problem:?}"
    );
    assert_eq!(refusal(refused).0, 409);
    let listed: Result<Value, ClientError> = user.get("/v1/reservations").await;
    assert_eq!(refusal(listed).0, 409);

    // Its process still leases and reports, and its demand stays until the end.
    let process = world.scheduler.grant(&demand);
    let runner = world.runner(&world.demand_of(&id).await);
    let lease = runner.lease(&process.id, 1).await;
    assert_eq!(lease.tasks.len(), 1);
    runner.report(&process.id, vec![ended(0, 1, 0)]).await;
    assert!(world.demand().await.is_empty());

    world.settings.managers = hayward_job_converter::Settings::default().managers;
    world.kill_and_restart().await;
    world.in_state(&id, WorkState::Completed).await;
}
