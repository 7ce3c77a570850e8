//! Tests that the groups in the token of a user are in the demand of the user's submissions.

use hayward_job_converter_api::submission::Submitted;
use hayward_rm_scheduler_api::WaitReason;
use hayward_vocabulary::Queued;
use serde_json::{Value, json};

use crate::applications::{put_application, put_task, task_body};
use crate::fixture::{Fixture, fresh_key, refusal, submit};

async fn groups_of(fixture: &Fixture, submitted: &Submitted) -> Vec<String> {
    let demand = fixture.demand().await;
    let mut own = demand.values().filter(|it| {
        let service = it.service.as_ref();
        it.work == submitted.id || service == Some(&submitted.id)
    });
    let queued: &Queued = own.next().unwrap().queued.as_deref().unwrap();
    queued.groups.clone()
}

/// The groups at submission count, even if later tokens contain others.
#[tokio::test(flavor = "multi_thread")]
async fn the_groups_of_a_submitter_are_in_the_demand_also_after_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let ann = fixture.user_in_groups("ann", &["ops", "dev"]);
    let body = json!({ "command": ["x"], "queue": "root.a" });
    let job = submit(&ann, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let job_without_groups = submit(&fixture.user("ann"), "/v1/jobs", &body, &fresh_key())
        .await
        .unwrap();
    put_application(&ann, "app", &json!({ "queueName": "root.a" })).await;
    fixture
        .publish_queue_verdict(WaitReason::Satisfied, false)
        .await;
    put_task(&ann, "app", "t", &task_body()).await;
    for restarts in [false, true] {
        if restarts {
            fixture.kill_and_restart().await;
        }
        assert_eq!(groups_of(&fixture, &job).await, ["dev", "ops"]);
        assert_eq!(groups_of(&fixture, &service).await, ["dev", "ops"]);
        assert!(groups_of(&fixture, &job_without_groups).await.is_empty());
        let demand = fixture.task_demand("app", "t").await;
        assert_eq!(demand.queued.unwrap().groups, ["dev", "ops"]);
    }
    // Work without groups stores none.
    let rows =
        fixture.query_number("select count(*) from job_converter.work where groups is not null");
    assert_eq!(rows.await, 2);
    let (status, view) = put_application(
        &fixture.user("ann"),
        "app",
        &json!({ "queueName": "root.a" }),
    )
    .await;
    assert_eq!(
        (status, view.ignored_fields),
        (200, vec!["groups".to_owned()])
    );
}

/// Groups in a body are not trusted.
#[tokio::test(flavor = "multi_thread")]
async fn a_submission_that_names_groups_itself_is_refused() {
    let fixture = Fixture::new().await;
    let ann = fixture.user_in_groups("ann", &["dev"]);
    let body = json!({ "command": ["x"], "queue": "root.a", "groups": ["ops"] });
    for path in ["/v1/jobs", "/v1/services"] {
        let refused = submit(&ann, path, &body, &fresh_key()).await;
        assert_eq!(refusal(refused), (422, vec!["/groups".to_owned()]));
    }
    let call = ann.call(http::Method::PUT, "/v1/applications/app");
    let body = json!({ "queueName": "root.a", "groups": ["ops"] });
    let refused = call
        .body(&body)
        .send_for_response::<Value>()
        .await
        .map(|it| it.body);
    assert_eq!(refusal(refused), (422, vec!["/groups".to_owned()]));
}
