//! Tests of the life of jobs, services and reservations: they wait, are held back, are refused, are
//! cancelled and end.

use hayward_job_converter_api::{Explanation, WorkState, WorkView};
use hayward_rm_scheduler_api::{AllocationState, WaitReason};
use hayward_service::auth::Scope;
use hayward_testkit::until;
use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{Exit, ExitCause, Program, Unblock};
use http::Method;
use serde_json::json;

use crate::fixture::{Fixture, fresh_key, job_with_tasks, refusal, report, submit};

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_is_idempotent_and_waits_for_the_processes() {
    let fixture = Fixture::new().await;
    let (waiting, running) = (
        fixture.submit(job_with_tasks(1)).await,
        fixture.submit(job_with_tasks(9)).await,
    );
    let ann = fixture.user("ann");
    ann.delete::<WorkView>(&format!("/v1/jobs/{}", waiting.id))
        .await
        .unwrap();
    fixture
        .wait_for_state(&waiting.id, WorkState::Cancelled)
        .await;

    let demand = fixture.demand_of(&running.id).await;
    let process = fixture.scheduler.grant(&demand);
    fixture
        .wait_for_state(&running.id, WorkState::Running)
        .await;
    let path = format!("/v1/jobs/{}", running.id);
    let answer = ann
        .call(Method::DELETE, path.as_str())
        .send_for_response::<WorkView>()
        .await
        .unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.body.state),
        (202, WorkState::Stopping)
    );
    assert!(fixture.demand().await.is_empty());
    let runner = fixture.runner(&demand);
    assert!(runner.lease(&process.id, 1).await.done);
    fixture
        .scheduler
        .end(&process, Exit::of(ExitCause::Intended, "ordered to end"));
    fixture
        .wait_for_state(&running.id, WorkState::Cancelled)
        .await;
    let again = ann
        .call(Method::DELETE, path)
        .send_for_response::<WorkView>()
        .await
        .unwrap();
    assert_eq!(
        (again.status.as_u16(), again.body.state),
        (200, WorkState::Cancelled)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_survives_a_crash() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(9)).await;
    let process = fixture.scheduler.grant(&fixture.demand_of(&job.id).await);
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    let operator = fixture.client("olga", &[Scope::Operator]);
    operator
        .delete::<WorkView>(&format!("/v1/jobs/{}", job.id))
        .await
        .unwrap();
    fixture.kill_and_restart().await;
    assert_eq!(fixture.view(&job.id).await.state, WorkState::Stopping);
    assert!(fixture.demand().await.is_empty());
    fixture.scheduler.remove(&process);
    fixture.wait_for_state(&job.id, WorkState::Cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_has_a_reason_and_a_refusal_is_final() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(1)).await;
    let (ann, path) = (fixture.user("ann"), format!("/v1/jobs/{}/explain", job.id));
    let before: Explanation = ann.get(&path).await.unwrap();
    assert_eq!(before.reason, "not_yet_considered");
    fixture
        .scheduler
        .publish_verdict(&job.id, WaitReason::NoHostLargeEnough, false);
    let explanation = until("the verdict", async || {
        Some(ann.get::<Explanation>(&path).await.unwrap())
            .filter(|explanation| explanation.reason == "no_host_large_enough")
    })
    .await;
    assert_eq!(explanation.numbers["largest_node"], 8);
    assert_eq!(explanation.also, ["zero_share"]);
    assert_eq!(explanation.unblock, Some(Unblock::AskForLess { quanta: 8 }));
    assert_eq!(explanation.work.as_ref(), Some(&job.id));
    until("the reason in the view", async || {
        fixture
            .view(&job.id)
            .await
            .reason
            .filter(|reason| reason.contains("99 GiB"))
    })
    .await;
    fixture
        .scheduler
        .publish_verdict(&job.id, WaitReason::NoHostLargeEnough, true);
    let view = fixture.wait_for_state(&job.id, WorkState::Refused).await;
    assert!(view.reason.unwrap().contains("99 GiB"));
    assert!(fixture.demand().await.is_empty());
    // Reason and numbers stay available after the verdict is withdrawn with the demand.
    fixture.scheduler.withdraw_verdict(&job.id);
    fixture.kill_and_restart().await;
    let explanation: Explanation = fixture.user("ann").get(&path).await.unwrap();
    assert_eq!(explanation.state, WorkState::Refused);
    assert_eq!(explanation.reason, "no_host_large_enough");
    assert_eq!(explanation.numbers["largest_node"], 8);
    assert!(
        explanation.detail.contains("99 GiB"),
        "{}",
        explanation.detail
    );
    assert!(explanation.since.is_some() && explanation.work.is_none());
}

/// A read with `min_revision` waits for that revision, unless it does not exist (A11).
#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_its_minimum_revision() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(1)).await;
    let ann = fixture.user("ann");
    let read = async |view: &str, min_revision: String| {
        let path = format!("/v1/jobs/{}{view}?min_revision={min_revision}", job.id);
        ann.get::<serde_json::Value>(&path).await
    };
    let reached = fixture.revision();
    let never = (reached + 1_000_000).to_string();
    for view in ["/explain", "/timeline", "/tasks", ""] {
        read(view, reached.to_string()).await.unwrap();
        let (status, pointers) = refusal(read(view, "soon".to_owned()).await);
        assert_eq!(
            (status, pointers),
            (400, vec!["/query/min_revision".to_owned()])
        );
    }
    let (next_revision, never, _) = tokio::join!(
        read("/explain", (reached + 1).to_string()),
        read("/timeline", never),
        fixture.submit(job_with_tasks(1))
    );
    next_revision.unwrap();
    // The writer knows that this revision does not exist.
    assert_eq!(refusal(never).0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_progress_is_held_back() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(4)).await;
    let first = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&first);
    fixture
        .scheduler
        .end(&process, Exit::of(ExitCause::LaunchFailed, "no such file"));
    let held = until("a hold", async || {
        Some(fixture.demand_of(&job.id).await).filter(|demand| demand.max_processes == 0)
    })
    .await;
    assert!(held.settled.contains(&process.id));
    let view = fixture.view(&job.id).await;
    assert!(view.reason.unwrap().contains("no such file"));
    until("the end of the hold", async || {
        Some(fixture.demand_of(&job.id).await).filter(|demand| demand.max_processes == 4)
    })
    .await;
    assert_eq!(
        fixture
            .query_number("select strikes::bigint from job_converter.brake")
            .await,
        1
    );
    let next = fixture.scheduler.grant(&first);
    let runner = fixture.runner(&first);
    runner.lease(&next.id, 1).await;
    runner.report(&next.id, vec![report(0, 1, 0)]).await;
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.brake")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_keeps_its_instances_and_a_reservation_its_node() {
    let mut fixture = Fixture::with_short_lease().await;
    let ann = fixture.user("ann");
    let body = json!({ "command": ["/bin/serve", "{instance}"], "instances": 2 });
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let demand = fixture.demand().await;
    let second = &demand[service.id.instance(1).as_str()];
    assert_eq!(
        (demand.len(), second.service.as_ref()),
        (2, Some(&service.id))
    );
    let process = fixture.scheduler.grant(second);
    let view = fixture
        .wait_for_state(&service.id, WorkState::Running)
        .await;
    assert!(view.reason.unwrap().contains("1 of 2"));
    fixture
        .scheduler
        .end(&process, Exit::of(ExitCause::UserError, "status 1"));
    fixture
        .wait_for_state(&service.id, WorkState::Waiting)
        .await;
    fixture.kill_and_restart().await;
    until("another start", async || {
        let entry = fixture.demand_of(&service.id.instance(1)).await;
        (entry.max_processes == 1 && entry.settled.contains(&process.id)).then_some(())
    })
    .await;

    let ann = fixture.user("ann");
    let reservation = submit(&ann, "/v1/reservations", &json!({}), &fresh_key())
        .await
        .unwrap();
    let entry = fixture.demand_of(&reservation.id).await;
    assert!(entry.launch.is_none());
    let mut held = fixture.scheduler.grant(&entry);
    held.state = AllocationState::Assigned;
    fixture.scheduler.publish(&held);
    fixture
        .wait_for_state(&reservation.id, WorkState::Running)
        .await;
    ann.delete::<WorkView>(&format!("/v1/reservations/{}", reservation.id))
        .await
        .unwrap();
    fixture.scheduler.remove(&held);
    fixture
        .wait_for_state(&reservation.id, WorkState::Cancelled)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_requests_a_node_with_an_engine() {
    let mut fixture = Fixture::with_short_lease().await;
    let ann = fixture.user("ann");
    let image = json!({ "image": "debian:12", "uid": 1000, "read_only": true });
    let body = json!({ "command": ["/bin/serve", "{instance}"], "container": image });
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    for restarted in [false, true] {
        let entry = fixture.demand_of(&service.id.instance(0)).await;
        let Program::Container { argv, container } = entry.launch.unwrap().program else {
            panic!("it runs in an image");
        };
        assert_eq!(argv, ["/bin/serve", "0"]);
        assert_eq!(
            (container.image.as_str(), container.uid, container.gid),
            ("debian:12", Some(1000), None)
        );
        assert_eq!(
            (entry.size.extras["docker"], container.read_only),
            (1, true)
        );
        if !restarted {
            fixture.kill_and_restart().await;
        }
    }
    let ann = fixture.user("ann");
    let body = json!({ "command": ["true"], "container": image });
    let refused = submit(&ann, "/v1/jobs", &body, &fresh_key()).await;
    assert_eq!(refusal(refused), (422, vec!["/container".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_launch_is_held_back_before_its_retry() {
    let fixture = Fixture::new().await;
    let (ann, key) = (fixture.user("ann"), fresh_key());
    let body = json!({ "command": ["serve"], "container": { "image": "shell:1" } });
    let service = submit(&ann, "/v1/services", &body, &key).await.unwrap();
    let instance = service.id.instance(0);
    let demand = fixture.demand_of(&instance).await;
    let process = fixture.scheduler.grant(&demand);
    fixture.scheduler.end(
        &process,
        Exit {
            cause_code: Some(NOT_OFFERED.to_owned()),
            ..Exit::of(ExitCause::Node, "not permitted here")
        },
    );
    let requests = async |processes: u64| {
        let demand = fixture.demand_of(&instance).await;
        (demand.max_processes == processes).then_some(())
    };
    until("a hold", async || requests(0).await).await;
    fixture
        .scheduler
        .publish_verdict(&instance, WaitReason::Satisfied, false);
    let path = format!("/v1/services/{}/explain", service.id);
    let explanation = until("why it waits", async || {
        let explanation: Explanation = ann.get(&path).await.unwrap();
        Some(explanation).filter(|explanation| explanation.reason == "backing_off")
    })
    .await;
    assert!(
        explanation.detail.contains("refused by its node"),
        "{explanation:?}"
    );
    until("the next start", async || requests(1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_ended_work_is_forgotten_with_its_history() {
    let fixture = Fixture::with_settings(|settings| settings.keep_final = 1).await;
    let (old, new) = (
        fixture.submit(job_with_tasks(1)).await,
        fixture.submit(job_with_tasks(1)).await,
    );
    let ann = fixture.user("ann");
    for id in [&old.id, &new.id] {
        ann.delete::<WorkView>(&format!("/v1/jobs/{id}"))
            .await
            .unwrap();
        let path = format!("/v1/jobs/{id}?wait=20");
        // The older work may be forgotten before the newer.
        assert_eq!(
            ann.get::<WorkView>(&path).await.unwrap().state,
            WorkState::Cancelled
        );
    }
    let path = format!("/v1/jobs/{}", old.id);
    until("the older job to be forgotten", async || {
        ann.get::<WorkView>(&path)
            .await
            .err()
            .map(|error| refusal::<()>(Err(error)).0)
    })
    .await;
    assert_eq!(fixture.view(&new.id).await.state, WorkState::Cancelled);
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.work")
            .await,
        1
    );
    until("its history to be deleted", async || {
        (fixture
            .query_number("select count(*) from job_converter.forgotten")
            .await
            == 0)
            .then_some(())
    })
    .await;
}
