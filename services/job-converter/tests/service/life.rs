//! How work waits, is held back, is cancelled and ends.

use hayward_job_converter_api::{Explanation, WorkState, WorkView};
use hayward_rm_scheduler_api::{AllocationState, WaitReason};
use hayward_service::auth::Scope;
use hayward_testkit::until;
use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{Exit, ExitCause, Program, Unblock};
use http::Method;
use serde_json::json;

use crate::world::{World, count, ended, fresh_key, refusal, submit};

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_is_idempotent_and_waits_for_the_processes() {
    let world = World::new().await;
    let (quick, slow) = (world.submit(count(1)).await, world.submit(count(9)).await);
    let ann = world.user("ann");
    ann.delete::<WorkView>(&format!("/v1/jobs/{}", quick.id))
        .await
        .unwrap();
    world.in_state(&quick.id, WorkState::Cancelled).await;

    let demand = world.demand_of(&slow.id).await;
    let process = world.scheduler.grant(&demand);
    world.in_state(&slow.id, WorkState::Running).await;
    let path = format!("/v1/jobs/{}", slow.id);
    let answer = ann
        .call(Method::DELETE, path.as_str())
        .answer::<WorkView>()
        .await
        .unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.body.state),
        (202, WorkState::Stopping)
    );
    assert!(world.demand().await.is_empty());
    let runner = world.runner(&demand);
    assert!(runner.lease(&process.id, 1).await.done);
    world
        .scheduler
        .ended(&process, Exit::of(ExitCause::Intended, "told to end"));
    world.in_state(&slow.id, WorkState::Cancelled).await;
    let again = ann
        .call(Method::DELETE, path)
        .answer::<WorkView>()
        .await
        .unwrap();
    assert_eq!(
        (again.status.as_u16(), again.body.state),
        (200, WorkState::Cancelled)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_survives_a_crash() {
    let mut world = World::mortal().await;
    let job = world.submit(count(9)).await;
    let process = world.scheduler.grant(&world.demand_of(&job.id).await);
    world.in_state(&job.id, WorkState::Running).await;
    let operator = world.client("olga", &[Scope::Operator]);
    operator
        .delete::<WorkView>(&format!("/v1/jobs/{}", job.id))
        .await
        .unwrap();
    world.kill_and_restart().await;
    assert_eq!(world.view(&job.id).await.state, WorkState::Stopping);
    assert!(world.demand().await.is_empty());
    world.scheduler.bury(&process);
    world.in_state(&job.id, WorkState::Cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_has_a_reason_and_a_refusal_is_final() {
    let mut world = World::mortal().await;
    let job = world.submit(count(1)).await;
    let (ann, path) = (world.user("ann"), format!("/v1/jobs/{}/explain", job.id));
    let before: Explanation = ann.get(&path).await.unwrap();
    assert_eq!(before.reason, "not_yet_considered");
    world
        .scheduler
        .judge(&job.id, WaitReason::NoHostLargeEnough, false);
    let told = until("the verdict", async || {
        Some(ann.get::<Explanation>(&path).await.unwrap())
            .filter(|told| told.reason == "no_host_large_enough")
    })
    .await;
    assert_eq!(told.numbers["largest_node"], 8);
    assert_eq!(told.also, ["zero_share"]);
    assert_eq!(told.unblock, Some(Unblock::AskForLess { quanta: 8 }));
    assert_eq!(told.work.as_ref(), Some(&job.id));
    until("the reason in the view", async || {
        world
            .view(&job.id)
            .await
            .reason
            .filter(|reason| reason.contains("99 GiB"))
    })
    .await;
    world
        .scheduler
        .judge(&job.id, WaitReason::NoHostLargeEnough, true);
    let view = world.in_state(&job.id, WorkState::Refused).await;
    assert!(view.reason.unwrap().contains("99 GiB"));
    assert!(world.demand().await.is_empty());
    // Reason and numbers are available after the verdict is withdrawn with the demand.
    world.scheduler.forget(&job.id);
    world.kill_and_restart().await;
    let told: Explanation = world.user("ann").get(&path).await.unwrap();
    assert_eq!(told.state, WorkState::Refused);
    assert_eq!(told.reason, "no_host_large_enough");
    assert_eq!(told.numbers["largest_node"], 8);
    assert!(told.detail.contains("99 GiB"), "{}", told.detail);
    assert!(told.since.is_some() && told.work.is_none());
}

/// API rule (A11).
#[tokio::test(flavor = "multi_thread")]
async fn a_read_waits_for_its_minimum_revision() {
    let world = World::new().await;
    let job = world.submit(count(1)).await;
    let ann = world.user("ann");
    let read = async |of: &str, least: String| {
        let path = format!("/v1/jobs/{}{of}?min_revision={least}", job.id);
        ann.get::<serde_json::Value>(&path).await
    };
    let reached = world.revision();
    let never = (reached + 1_000_000).to_string();
    for of in ["/explain", "/timeline", "/tasks", ""] {
        read(of, reached.to_string()).await.unwrap();
        let (odd, pointers) = refusal(read(of, "soon".to_owned()).await);
        assert_eq!(
            (odd, pointers),
            (400, vec!["/query/min_revision".to_owned()])
        );
    }
    let (coming, never, _) = tokio::join!(
        read("/explain", (reached + 1).to_string()),
        read("/timeline", never),
        world.submit(count(1))
    );
    coming.unwrap();
    // The writer knows that this revision does not exist.
    assert_eq!(refusal(never).0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_progress_is_held_back() {
    let world = World::new().await;
    let job = world.submit(count(4)).await;
    let first = world.demand_of(&job.id).await;
    let process = world.scheduler.grant(&first);
    world
        .scheduler
        .ended(&process, Exit::of(ExitCause::LaunchFailed, "no such file"));
    let held = until("a hold", async || {
        Some(world.demand_of(&job.id).await).filter(|demand| demand.max_processes == 0)
    })
    .await;
    assert!(held.settled.contains(&process.id));
    let view = world.view(&job.id).await;
    assert!(view.reason.unwrap().contains("no such file"));
    until("the end of the hold", async || {
        Some(world.demand_of(&job.id).await).filter(|demand| demand.max_processes == 4)
    })
    .await;
    assert_eq!(
        world
            .rows("select strikes::bigint from job_converter.brake")
            .await,
        1
    );
    let next = world.scheduler.grant(&first);
    let runner = world.runner(&first);
    runner.lease(&next.id, 1).await;
    runner.report(&next.id, vec![ended(0, 1, 0)]).await;
    assert_eq!(
        world.rows("select count(*) from job_converter.brake").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_keeps_its_instances_and_a_reservation_its_node() {
    let mut world = World::mortal().await;
    let ann = world.user("ann");
    let body = json!({ "command": ["/bin/serve", "{instance}"], "instances": 2 });
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let demand = world.demand().await;
    let second = &demand[service.id.instance(1).as_str()];
    assert_eq!(
        (demand.len(), second.service.as_ref()),
        (2, Some(&service.id))
    );
    let process = world.scheduler.grant(second);
    let view = world.in_state(&service.id, WorkState::Running).await;
    assert!(view.reason.unwrap().contains("1 of 2"));
    world
        .scheduler
        .ended(&process, Exit::of(ExitCause::UserError, "status 1"));
    world.in_state(&service.id, WorkState::Waiting).await;
    world.kill_and_restart().await;
    until("another start", async || {
        let entry = world.demand_of(&service.id.instance(1)).await;
        (entry.max_processes == 1 && entry.settled.contains(&process.id)).then_some(())
    })
    .await;

    let ann = world.user("ann");
    let rsv = submit(&ann, "/v1/reservations", &json!({}), &fresh_key())
        .await
        .unwrap();
    let entry = world.demand_of(&rsv.id).await;
    assert!(entry.launch.is_none());
    let mut held = world.scheduler.grant(&entry);
    held.state = AllocationState::Assigned;
    world.scheduler.say(&held);
    world.in_state(&rsv.id, WorkState::Running).await;
    ann.delete::<WorkView>(&format!("/v1/reservations/{}", rsv.id))
        .await
        .unwrap();
    world.scheduler.bury(&held);
    world.in_state(&rsv.id, WorkState::Cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_requests_a_node_with_an_engine() {
    let mut world = World::mortal().await;
    let ann = world.user("ann");
    let image = json!({ "image": "debian:12", "uid": 1000, "read_only": true });
    let body = json!({ "command": ["/bin/serve", "{instance}"], "container": image });
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    for restarted in [false, true] {
        let entry = world.demand_of(&service.id.instance(0)).await;
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
            world.kill_and_restart().await;
        }
    }
    let ann = world.user("ann");
    let body = json!({ "command": ["true"], "container": image });
    let refused = submit(&ann, "/v1/jobs", &body, &fresh_key()).await;
    assert_eq!(refusal(refused), (422, vec!["/container".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_launch_is_held_back_before_its_retry() {
    let world = World::new().await;
    let (ann, key) = (world.user("ann"), fresh_key());
    let body = json!({ "command": ["serve"], "container": { "image": "shell:1" } });
    let service = submit(&ann, "/v1/services", &body, &key).await.unwrap();
    let instance = service.id.instance(0);
    let ask = world.demand_of(&instance).await;
    let process = world.scheduler.grant(&ask);
    world.scheduler.ended(
        &process,
        Exit {
            cause_code: Some(NOT_OFFERED.to_owned()),
            ..Exit::of(ExitCause::Node, "not permitted here")
        },
    );
    let asks_for = async |processes: u64| {
        let ask = world.demand_of(&instance).await;
        (ask.max_processes == processes).then_some(())
    };
    until("a hold", async || asks_for(0).await).await;
    world
        .scheduler
        .judge(&instance, WaitReason::Satisfied, false);
    let path = format!("/v1/services/{}/explain", service.id);
    let told = until("why it waits", async || {
        let told: Explanation = ann.get(&path).await.unwrap();
        Some(told).filter(|told| told.reason == "backing_off")
    })
    .await;
    assert!(told.detail.contains("refused by its node"), "{told:?}");
    until("the next start", async || asks_for(1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_ended_work_is_forgotten_with_its_history() {
    let world = World::with(|settings| settings.keep_final = 1).await;
    let (old, new) = (world.submit(count(1)).await, world.submit(count(1)).await);
    let ann = world.user("ann");
    for id in [&old.id, &new.id] {
        ann.delete::<WorkView>(&format!("/v1/jobs/{id}"))
            .await
            .unwrap();
        let path = format!("/v1/jobs/{id}?wait=20");
        // The older one may be forgotten before the newer.
        assert_eq!(
            ann.get::<WorkView>(&path).await.unwrap().state,
            WorkState::Cancelled
        );
    }
    let path = format!("/v1/jobs/{}", old.id);
    until("the old one to be forgotten", async || {
        ann.get::<WorkView>(&path)
            .await
            .err()
            .map(|error| refusal::<()>(Err(error)).0)
    })
    .await;
    assert_eq!(world.view(&new.id).await.state, WorkState::Cancelled);
    assert_eq!(
        world.rows("select count(*) from job_converter.work").await,
        1
    );
    until("its history to go", async || {
        (world
            .rows("select count(*) from job_converter.forgotten")
            .await
            == 0)
            .then_some(())
    })
    .await;
}
