//! Tests of changes of running services: other numbers of instances, and new deployments. Some
//! tests kill the service between the steps.

use std::collections::BTreeMap;

use axum::http::Method;
use axum::http::header::{ETAG, IF_MATCH};
use hayward_job_converter_api::submission::{ServiceChanged, ServiceSubmission};
use hayward_job_converter_api::{Timeline, WorkState};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_service::auth::Scope;
use hayward_service::client::{Client, ClientError};
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause, Program, WorkId};
use serde_json::{Value, json};

use crate::fixture::{Fixture, refusal};
use crate::service_processors::{
    run_process, submit_service, wait_for_demand, wait_for_deployment,
};

fn service_body(program: &str, instances: u32) -> Value {
    json!({ "name": "echo", "command": [program, "{instance}"], "instances": instances })
}

async fn change_service(
    client: &Client,
    id: &WorkId,
    if_match: &str,
    body: &Value,
) -> Result<ServiceChanged, ClientError> {
    let call = client.call(Method::PUT, format!("/v1/services/{id}"));
    call.header(IF_MATCH, if_match).body(body).send().await
}

/// Runs all instances and returns their allocations by instance.
async fn run_all_instances(
    fixture: &Fixture,
    id: &WorkId,
    instances: u32,
) -> BTreeMap<u32, AllocationEntry> {
    let mut all = BTreeMap::new();
    for number in 0..instances {
        all.insert(
            number,
            run_process(fixture, &id.instance(number), "n1").await,
        );
    }
    wait_for_deployment(fixture, id, |it| it.healthy).await;
    all
}

/// Vacates and ends the stopped process.
fn end_stopped_process(fixture: &Fixture, entry: &AllocationEntry) {
    let left = fixture.scheduler.vacate_for(entry, VacateReason::WorkGone);
    fixture
        .scheduler
        .end(&left, Exit::of(ExitCause::Intended, ""));
}

fn program(entry: &hayward_job_converter_api::DemandEntry) -> String {
    match &entry.launch.as_ref().unwrap().program {
        Program::Command { argv } => argv[0].clone(),
        other => panic!("{other:?}"),
    }
}

/// Waits for an instance that requests nothing and returns its id.
async fn wait_for_held_instance(fixture: &Fixture, id: &WorkId) -> WorkId {
    until("an instance that requests nothing", async || {
        let all = fixture.demand().await;
        let own = all.values().filter(|entry| entry.work.parent() == *id);
        let held: Vec<_> = own.filter(|entry| entry.max_processes == 0).collect();
        assert!(held.len() <= 1, "one at a time: {held:?}");
        held.first().map(|entry| entry.work.clone())
    })
    .await
}

#[tokio::test]
async fn a_new_version_replaces_one_process_at_a_time() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_body("/bin/one", 3)).await;
    let old = run_all_instances(&fixture, &id, 3).await;
    let ann = fixture.user("ann");
    let changed = change_service(&ann, &id, "\"1\"", &service_body("/bin/two", 3))
        .await
        .unwrap();
    assert!(changed.changed && changed.redeployed);
    assert_eq!(
        (changed.generation, changed.deployment),
        (2, format!("{id}-2"))
    );
    for number in [2, 1, 0] {
        let work = id.instance(number);
        assert_eq!(wait_for_held_instance(&fixture, &id).await, work);
        for (key, entry) in fixture.demand().await {
            let deployment = entry.processor.as_ref().unwrap().deployment.clone();
            assert_eq!(
                (deployment, program(&entry).as_str()),
                (format!("{id}-2"), "/bin/two"),
                "{key}"
            );
        }
        let (view, deployment) =
            wait_for_deployment(&fixture, &id, |it| it.outdated == u64::from(number) + 1).await;
        assert_eq!(view.state, WorkState::Running);
        assert!(view.reason.unwrap().contains("have an older deployment"));
        assert_eq!(deployment.generation, 2);
        // The next process is requested only after the old one has ended.
        let left = fixture
            .scheduler
            .vacate_for(&old[&number], VacateReason::WorkGone);
        assert_eq!(
            wait_for_demand(&fixture, &work, |_| true)
                .await
                .max_processes,
            0
        );
        fixture
            .scheduler
            .end(&left, Exit::of(ExitCause::Intended, ""));
        run_process(&fixture, &work, "n2").await;
    }
    let (view, _) = wait_for_deployment(&fixture, &id, |it| it.healthy && it.outdated == 0).await;
    assert_eq!(view.reason, None);
    let timeline: Timeline = ann
        .get(&format!("/v1/services/{id}/timeline"))
        .await
        .unwrap();
    let event = format!("deployed as {id}-2 (generation 2)");
    assert!(
        timeline.events.iter().any(|it| it.event == event),
        "{timeline:?}"
    );
}

#[tokio::test]
async fn a_repeated_change_does_nothing_and_an_invalid_one_is_refused() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_body("/bin/one", 1)).await;
    let ann = fixture.user("ann");
    let two = service_body("/bin/two", 1);
    change_service(&ann, &id, "\"1\"", &two).await.unwrap();
    // The change is repeated after a lost response.
    let again = change_service(&ann, &id, "\"1\"", &two).await.unwrap();
    assert_eq!(
        (again.changed, again.redeployed, again.generation),
        (false, false, 2)
    );
    let three = service_body("/bin/three", 1);
    let bare = ann
        .call(Method::PUT, format!("/v1/services/{id}"))
        .body(&three);
    assert_eq!(refusal(bare.send::<Value>().await).0, 428);
    assert_eq!(refusal(change_service(&ann, &id, "x", &three).await).0, 400);
    assert_eq!(
        refusal(change_service(&ann, &id, "\"1\"", &three).await).0,
        412
    );
    let etag = "\"2\"";
    let name = json!({ "name": "other", "command": ["/bin/two", "{instance}"] });
    assert_eq!(
        refusal(change_service(&ann, &id, etag, &name).await),
        (422, vec!["/name".to_owned()])
    );
    let class = json!({ "name": "echo", "class": "fast", "command": ["/bin/two"] });
    assert_eq!(
        refusal(change_service(&ann, &id, etag, &class).await),
        (422, vec!["/class".to_owned()])
    );
    let none = json!({ "name": "echo", "command": ["/bin/two"], "instances": 0 });
    assert_eq!(
        refusal(change_service(&ann, &id, etag, &none).await),
        (422, vec!["/instances".to_owned()])
    );
    assert_eq!(
        refusal(change_service(&fixture.user("ben"), &id, etag, &three).await).0,
        404
    );
    let operator = fixture.client("olga", &[Scope::Operator]);
    assert_eq!(
        refusal(change_service(&operator, &id, etag, &three).await).0,
        403
    );
    let job = fixture.submit(crate::fixture::job_with_tasks(1)).await.id;
    assert_eq!(
        refusal(change_service(&ann, &job, "\"1\"", &three).await).0,
        404
    );
    // None of these requests changed the service.
    let entry = fixture.demand_of(&id.instance(0)).await;
    assert_eq!(program(&entry), "/bin/two");
}

#[tokio::test]
async fn a_cancelled_service_refuses_changes() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_body("/bin/one", 1)).await;
    let ann = fixture.user("ann");
    let changed = service_body("/bin/two", 1);
    let _: Value = ann.delete(&format!("/v1/services/{id}")).await.unwrap();
    assert_eq!(
        refusal(change_service(&ann, &id, "\"1\"", &changed).await).0,
        409
    );
    fixture.wait_for_state(&id, WorkState::Cancelled).await;
    assert_eq!(
        refusal(change_service(&ann, &id, "\"1\"", &changed).await).0,
        409
    );
}

#[tokio::test]
async fn scaling_restarts_nothing_and_shows_ending_processes() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_body("/bin/one", 2)).await;
    let two = run_all_instances(&fixture, &id, 2).await;
    let before = fixture.demand().await;
    let ann = fixture.user("ann");
    let more = change_service(&ann, &id, "\"1\"", &service_body("/bin/one", 3))
        .await
        .unwrap();
    assert!(more.changed && !more.redeployed);
    assert_eq!((more.generation, more.deployment), (2, format!("{id}-1")));
    run_process(&fixture, &id.instance(2), "n3").await;
    let now = fixture.demand().await;
    for (key, entry) in &before {
        assert_eq!(now.get(key), Some(entry));
    }
    change_service(&ann, &id, "\"2\"", &service_body("/bin/one", 1))
        .await
        .unwrap();
    until("the demand of one instance", async || {
        (fixture.demand().await.len() == 1).then_some(())
    })
    .await;
    let (view, deployment) =
        wait_for_deployment(&fixture, &id, |it| it.processors.len() == 1).await;
    assert_eq!((view.processes.len(), deployment.healthy), (3, true));
    // The instance is requested again before its last process has ended, so the request waits.
    let left = fixture
        .scheduler
        .vacate_for(&two[&1], VacateReason::WorkGone);
    change_service(&ann, &id, "\"3\"", &service_body("/bin/one", 2))
        .await
        .unwrap();
    wait_for_demand(&fixture, &id.instance(1), |entry| entry.max_processes == 0).await;
    fixture
        .scheduler
        .end(&left, Exit::of(ExitCause::Intended, ""));
    wait_for_demand(&fixture, &id.instance(1), |entry| {
        entry.settled.contains(&left.id)
    })
    .await;
    run_process(&fixture, &id.instance(1), "n4").await;
    wait_for_deployment(&fixture, &id, |it| it.healthy && it.outdated == 0).await;
}

#[tokio::test]
async fn a_rollout_continues_after_a_kill_at_each_step() {
    let mut fixture = Fixture::with_short_lease().await;
    let id = submit_service(&fixture, service_body("/bin/one", 2)).await;
    let old = run_all_instances(&fixture, &id, 2).await;
    change_service(
        &fixture.user("ann"),
        &id,
        "\"1\"",
        &service_body("/bin/two", 2),
    )
    .await
    .unwrap();
    fixture.kill_and_restart().await;
    for number in [1, 0] {
        let work = id.instance(number);
        assert_eq!(wait_for_held_instance(&fixture, &id).await, work);
        let left = fixture
            .scheduler
            .vacate_for(&old[&number], VacateReason::WorkGone);
        fixture.kill_and_restart().await;
        // The request still waits, although an earlier term stopped the process.
        wait_for_deployment(&fixture, &id, |it| it.outdated == u64::from(number) + 1).await;
        assert_eq!(wait_for_held_instance(&fixture, &id).await, work);
        fixture
            .scheduler
            .end(&left, Exit::of(ExitCause::Intended, ""));
        wait_for_demand(&fixture, &work, |entry| entry.max_processes == 1).await;
        fixture.kill_and_restart().await;
        run_process(&fixture, &work, "n2").await;
    }
    let (_, deployment) =
        wait_for_deployment(&fixture, &id, |it| it.healthy && it.outdated == 0).await;
    assert_eq!(
        (deployment.deployment, deployment.generation),
        (format!("{id}-2"), 2)
    );
}

#[tokio::test]
async fn a_failing_version_replaces_only_one_process() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_body("/bin/one", 2)).await;
    let old = run_all_instances(&fixture, &id, 2).await;
    let ann = fixture.user("ann");
    change_service(&ann, &id, "\"1\"", &service_body("/bin/broken", 2))
        .await
        .unwrap();
    let last = id.instance(1);
    assert_eq!(wait_for_held_instance(&fixture, &id).await, last);
    end_stopped_process(&fixture, &old[&1]);
    let entry = wait_for_demand(&fixture, &last, |entry| entry.max_processes == 1).await;
    let broken = fixture.scheduler.grant_on(&entry, "n1");
    let failed = Exit {
        code: Some(1),
        ..Exit::of(ExitCause::UserError, "")
    };
    fixture.scheduler.end(&broken, failed);
    wait_for_demand(&fixture, &last, |entry| entry.settled.contains(&broken.id)).await;
    let (_, deployment) = wait_for_deployment(&fixture, &id, |it| !it.healthy).await;
    assert_eq!(deployment.outdated, 1);
    // The change back to the first program makes a new deployment, which replaces the broken one.
    change_service(&ann, &id, "\"2\"", &service_body("/bin/one", 2))
        .await
        .unwrap();
    let entry = wait_for_demand(&fixture, &last, |entry| entry.max_processes == 1).await;
    assert_eq!(program(&entry), "/bin/one");
    assert_eq!(entry.processor.unwrap().deployment, format!("{id}-3"));
}

#[tokio::test]
async fn a_submission_can_be_read_and_submitted_again() {
    let fixture = Fixture::new().await;
    let id = submit_service(&fixture, service_body("/bin/one", 1)).await;
    let path = format!("/v1/services/{id}/submission");
    let ann = fixture.user("ann");
    change_service(&ann, &id, "\"1\"", &service_body("/bin/one", 4))
        .await
        .unwrap();
    let read = ann
        .call(Method::GET, &path)
        .send_for_response::<ServiceSubmission>()
        .await
        .unwrap();
    assert_eq!(
        (read.headers[ETAG].to_str().unwrap(), read.body.instances),
        ("\"2\"", Some(4))
    );
    let same = serde_json::to_value(&read.body).unwrap();
    assert!(
        !change_service(&ann, &id, "\"2\"", &same)
            .await
            .unwrap()
            .changed
    );
    let view = ann.call(Method::GET, format!("/v1/services/{id}"));
    assert_eq!(
        view.send_for_response::<Value>().await.unwrap().headers[ETAG],
        "\"2\""
    );
    let viewer = fixture.client("vic", &[Scope::Viewer]);
    assert_eq!(refusal(viewer.get::<Value>(&path).await).0, 403);
    assert_eq!(
        refusal(fixture.user("ben").get::<Value>(&path).await).0,
        404
    );
}
