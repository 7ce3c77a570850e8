//! Groups of a token in the demand of its submissions.

use hayward_job_converter_api::submission::Submitted;
use hayward_rm_scheduler_api::WaitReason;
use hayward_vocabulary::Queued;
use serde_json::{Value, json};

use crate::applications::{put, put_task, task};
use crate::world::{World, fresh_key, refusal, submit};

async fn groups_of(world: &World, submitted: &Submitted) -> Vec<String> {
    let demand = world.demand().await;
    let mut own = demand.values().filter(|it| {
        let service = it.service.as_ref();
        it.work == submitted.id || service == Some(&submitted.id)
    });
    let queued: &Queued = own.next().unwrap().queued.as_deref().unwrap();
    queued.groups.clone()
}

/// The groups at submission count, whatever later tokens contain.
#[tokio::test(flavor = "multi_thread")]
async fn the_groups_of_a_submitter_are_in_the_demand_also_after_a_restart() {
    let mut world = World::mortal().await;
    let ann = world.member("ann", &["ops", "dev"]);
    let body = json!({ "command": ["x"], "queue": "root.a" });
    let job = submit(&ann, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let older = submit(&world.user("ann"), "/v1/jobs", &body, &fresh_key())
        .await
        .unwrap();
    put(&ann, "app", &json!({ "queueName": "root.a" })).await;
    world.judge_queue(WaitReason::Satisfied, false).await;
    put_task(&ann, "app", "t", &task()).await;
    for restarts in [false, true] {
        if restarts {
            world.kill_and_restart().await;
        }
        assert_eq!(groups_of(&world, &job).await, ["dev", "ops"]);
        assert_eq!(groups_of(&world, &service).await, ["dev", "ops"]);
        assert!(groups_of(&world, &older).await.is_empty());
        let asked = world.asked("app", "t").await;
        assert_eq!(asked.queued.unwrap().groups, ["dev", "ops"]);
    }
    // Work without groups stores none.
    let rows = world.rows("select count(*) from job_converter.work where groups is not null");
    assert_eq!(rows.await, 2);
    let (status, view) = put(&world.user("ann"), "app", &json!({ "queueName": "root.a" })).await;
    assert_eq!(
        (status, view.ignored_fields),
        (200, vec!["groups".to_owned()])
    );
}

/// Groups in a body are not trusted.
#[tokio::test(flavor = "multi_thread")]
async fn a_submission_that_names_groups_itself_is_refused() {
    let world = World::new().await;
    let ann = world.member("ann", &["dev"]);
    let said = json!({ "command": ["x"], "queue": "root.a", "groups": ["ops"] });
    for path in ["/v1/jobs", "/v1/services"] {
        let refused = submit(&ann, path, &said, &fresh_key()).await;
        assert_eq!(refusal(refused), (422, vec!["/groups".to_owned()]));
    }
    let call = ann.call(http::Method::PUT, "/v1/applications/app");
    let said = json!({ "queueName": "root.a", "groups": ["ops"] });
    let refused = call.body(&said).answer::<Value>().await.map(|it| it.body);
    assert_eq!(refusal(refused), (422, vec!["/groups".to_owned()]));
}
