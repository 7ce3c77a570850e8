//! Changes of running services: number and program, step by step, with kills in between.

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

use crate::processors::{demand, runs, service, shown};
use crate::world::{World, refusal};

fn body(program: &str, instances: u32) -> Value {
    json!({ "name": "echo", "command": [program, "{instance}"], "instances": instances })
}

async fn put(
    client: &Client,
    (id, from): (&WorkId, &str),
    body: &Value,
) -> Result<ServiceChanged, ClientError> {
    let call = client.call(Method::PUT, format!("/v1/services/{id}"));
    call.header(IF_MATCH, from).body(body).send().await
}

/// All instances run; returns their allocations by instance.
async fn up(world: &World, id: &WorkId, instances: u32) -> BTreeMap<u32, AllocationEntry> {
    let mut all = BTreeMap::new();
    for number in 0..instances {
        all.insert(number, runs(world, &id.instance(number), "n1").await);
    }
    shown(world, id, |it| it.healthy).await;
    all
}

/// The stopped process leaves and ends.
fn leaves(world: &World, entry: &AllocationEntry) {
    let left = world.scheduler.vacate_for(entry, VacateReason::WorkGone);
    world
        .scheduler
        .ended(&left, Exit::of(ExitCause::Intended, ""));
}

fn program(entry: &hayward_job_converter_api::DemandEntry) -> String {
    match &entry.launch.as_ref().unwrap().program {
        Program::Command { argv } => argv[0].clone(),
        other => panic!("{other:?}"),
    }
}

/// The instance that requests nothing, once there is one.
async fn held(world: &World, id: &WorkId) -> WorkId {
    until("one that is taken off", async || {
        let all = world.demand().await;
        let mine = all.values().filter(|entry| entry.work.whole() == *id);
        let held: Vec<_> = mine.filter(|entry| entry.max_processes == 0).collect();
        assert!(held.len() <= 1, "one at a time: {held:?}");
        held.first().map(|entry| entry.work.clone())
    })
    .await
}

#[tokio::test]
async fn a_new_version_replaces_one_process_at_a_time() {
    let world = World::new().await;
    let id = service(&world, body("/bin/one", 3)).await;
    let old = up(&world, &id, 3).await;
    let ann = world.user("ann");
    let changed = put(&ann, (&id, "\"1\""), &body("/bin/two", 3))
        .await
        .unwrap();
    assert!(changed.changed && changed.redeployed);
    assert_eq!(
        (changed.generation, changed.deployment),
        (2, format!("{id}-2"))
    );
    for number in [2, 1, 0] {
        let work = id.instance(number);
        assert_eq!(held(&world, &id).await, work);
        for (key, entry) in world.demand().await {
            let deployment = entry.processor.as_ref().unwrap().deployment.clone();
            assert_eq!(
                (deployment, program(&entry).as_str()),
                (format!("{id}-2"), "/bin/two"),
                "{key}"
            );
        }
        let (view, deployment) =
            shown(&world, &id, |it| it.outdated == u64::from(number) + 1).await;
        assert_eq!(view.state, WorkState::Running);
        assert!(view.reason.unwrap().contains("of an older deployment"));
        assert_eq!(deployment.generation, 2);
        // Its successor waits for its end.
        let left = world
            .scheduler
            .vacate_for(&old[&number], VacateReason::WorkGone);
        assert_eq!(demand(&world, &work, |_| true).await.max_processes, 0);
        world
            .scheduler
            .ended(&left, Exit::of(ExitCause::Intended, ""));
        runs(&world, &work, "n2").await;
    }
    let (view, _) = shown(&world, &id, |it| it.healthy && it.outdated == 0).await;
    assert_eq!(view.reason, None);
    let timeline: Timeline = ann
        .get(&format!("/v1/services/{id}/timeline"))
        .await
        .unwrap();
    let line = format!("deployed anew as {id}-2 (generation 2)");
    assert!(
        timeline.events.iter().any(|it| it.event == line),
        "{timeline:?}"
    );
}

#[tokio::test]
async fn a_repeated_change_does_nothing_and_an_invalid_one_is_refused() {
    let world = World::new().await;
    let id = service(&world, body("/bin/one", 1)).await;
    let ann = world.user("ann");
    let two = body("/bin/two", 1);
    put(&ann, (&id, "\"1\""), &two).await.unwrap();
    // Repeated after a lost answer.
    let again = put(&ann, (&id, "\"1\""), &two).await.unwrap();
    assert_eq!(
        (again.changed, again.redeployed, again.generation),
        (false, false, 2)
    );
    let three = body("/bin/three", 1);
    let bare = ann
        .call(Method::PUT, format!("/v1/services/{id}"))
        .body(&three);
    assert_eq!(refusal(bare.send::<Value>().await).0, 428);
    assert_eq!(refusal(put(&ann, (&id, "x"), &three).await).0, 400);
    assert_eq!(refusal(put(&ann, (&id, "\"1\""), &three).await).0, 412);
    let from = (&id, "\"2\"");
    let name = json!({ "name": "other", "command": ["/bin/two", "{instance}"] });
    assert_eq!(
        refusal(put(&ann, from, &name).await),
        (422, vec!["/name".to_owned()])
    );
    let class = json!({ "name": "echo", "class": "fast", "command": ["/bin/two"] });
    assert_eq!(
        refusal(put(&ann, from, &class).await),
        (422, vec!["/class".to_owned()])
    );
    let none = json!({ "name": "echo", "command": ["/bin/two"], "instances": 0 });
    assert_eq!(
        refusal(put(&ann, from, &none).await),
        (422, vec!["/instances".to_owned()])
    );
    assert_eq!(refusal(put(&world.user("ben"), from, &three).await).0, 404);
    let operator = world.client("olga", &[Scope::Operator]);
    assert_eq!(refusal(put(&operator, from, &three).await).0, 403);
    let job = world.submit(crate::world::count(1)).await.id;
    assert_eq!(refusal(put(&ann, (&job, "\"1\""), &three).await).0, 404);
    // None of that changed anything.
    let entry = world.demand_of(&id.instance(0)).await;
    assert_eq!(program(&entry), "/bin/two");
    let _: Value = ann.delete(&format!("/v1/services/{id}")).await.unwrap();
    assert_eq!(refusal(put(&ann, from, &three).await).0, 409);
    world.in_state(&id, WorkState::Cancelled).await;
    assert_eq!(refusal(put(&ann, from, &three).await).0, 409);
}

#[tokio::test]
async fn scaling_restarts_nothing_and_shows_what_still_ends() {
    let world = World::new().await;
    let id = service(&world, body("/bin/one", 2)).await;
    let two = up(&world, &id, 2).await;
    let before = world.demand().await;
    let ann = world.user("ann");
    let more = put(&ann, (&id, "\"1\""), &body("/bin/one", 3))
        .await
        .unwrap();
    assert!(more.changed && !more.redeployed);
    assert_eq!((more.generation, more.deployment), (2, format!("{id}-1")));
    runs(&world, &id.instance(2), "n3").await;
    let now = world.demand().await;
    for (key, entry) in &before {
        assert_eq!(now.get(key), Some(entry));
    }
    put(&ann, (&id, "\"2\""), &body("/bin/one", 1))
        .await
        .unwrap();
    until("the demand of one instance", async || {
        (world.demand().await.len() == 1).then_some(())
    })
    .await;
    let (view, deployment) = shown(&world, &id, |it| it.processors.len() == 1).await;
    assert_eq!((view.processes.len(), deployment.healthy), (3, true));
    // Requested again before its last process has ended: the request waits.
    let left = world.scheduler.vacate_for(&two[&1], VacateReason::WorkGone);
    put(&ann, (&id, "\"3\""), &body("/bin/one", 2))
        .await
        .unwrap();
    demand(&world, &id.instance(1), |entry| entry.max_processes == 0).await;
    world
        .scheduler
        .ended(&left, Exit::of(ExitCause::Intended, ""));
    demand(&world, &id.instance(1), |entry| {
        entry.settled.contains(&left.id)
    })
    .await;
    runs(&world, &id.instance(1), "n4").await;
    shown(&world, &id, |it| it.healthy && it.outdated == 0).await;
}

#[tokio::test]
async fn a_redeployment_outlives_kills_at_each_step() {
    let mut world = World::mortal().await;
    let id = service(&world, body("/bin/one", 2)).await;
    let old = up(&world, &id, 2).await;
    put(&world.user("ann"), (&id, "\"1\""), &body("/bin/two", 2))
        .await
        .unwrap();
    world.kill_and_restart().await;
    for number in [1, 0] {
        let work = id.instance(number);
        assert_eq!(held(&world, &id).await, work);
        let left = world
            .scheduler
            .vacate_for(&old[&number], VacateReason::WorkGone);
        world.kill_and_restart().await;
        // Still waits, although an earlier term stopped the process.
        shown(&world, &id, |it| it.outdated == u64::from(number) + 1).await;
        assert_eq!(held(&world, &id).await, work);
        world
            .scheduler
            .ended(&left, Exit::of(ExitCause::Intended, ""));
        demand(&world, &work, |entry| entry.max_processes == 1).await;
        world.kill_and_restart().await;
        runs(&world, &work, "n2").await;
    }
    let (_, deployment) = shown(&world, &id, |it| it.healthy && it.outdated == 0).await;
    assert_eq!(
        (deployment.deployment, deployment.generation),
        (format!("{id}-2"), 2)
    );
}

#[tokio::test]
async fn a_version_that_fails_is_not_given_to_the_others() {
    let world = World::new().await;
    let id = service(&world, body("/bin/one", 2)).await;
    let old = up(&world, &id, 2).await;
    let ann = world.user("ann");
    put(&ann, (&id, "\"1\""), &body("/bin/broken", 2))
        .await
        .unwrap();
    let last = id.instance(1);
    assert_eq!(held(&world, &id).await, last);
    leaves(&world, &old[&1]);
    let entry = demand(&world, &last, |entry| entry.max_processes == 1).await;
    let broken = world.scheduler.grant_on(&entry, "n1");
    let failed = Exit {
        code: Some(1),
        ..Exit::of(ExitCause::UserError, "")
    };
    world.scheduler.ended(&broken, failed);
    demand(&world, &last, |entry| entry.settled.contains(&broken.id)).await;
    let (_, deployment) = shown(&world, &id, |it| !it.healthy).await;
    assert_eq!(deployment.outdated, 1);
    // Back to the first program: a new deployment that replaces the broken one.
    put(&ann, (&id, "\"2\""), &body("/bin/one", 2))
        .await
        .unwrap();
    let entry = demand(&world, &last, |entry| entry.max_processes == 1).await;
    assert_eq!(program(&entry), "/bin/one");
    assert_eq!(entry.processor.unwrap().deployment, format!("{id}-3"));
}

#[tokio::test]
async fn a_submission_can_be_read_and_submitted_again() {
    let world = World::new().await;
    let id = service(&world, body("/bin/one", 1)).await;
    let path = format!("/v1/services/{id}/submission");
    let ann = world.user("ann");
    put(&ann, (&id, "\"1\""), &body("/bin/one", 4))
        .await
        .unwrap();
    let read = ann
        .call(Method::GET, &path)
        .answer::<ServiceSubmission>()
        .await
        .unwrap();
    assert_eq!(
        (read.headers[ETAG].to_str().unwrap(), read.body.instances),
        ("\"2\"", Some(4))
    );
    let same = serde_json::to_value(&read.body).unwrap();
    assert!(!put(&ann, (&id, "\"2\""), &same).await.unwrap().changed);
    let view = ann.call(Method::GET, format!("/v1/services/{id}"));
    assert_eq!(view.answer::<Value>().await.unwrap().headers[ETAG], "\"2\"");
    let viewer = world.client("vic", &[Scope::Viewer]);
    assert_eq!(refusal(viewer.get::<Value>(&path).await).0, 403);
    assert_eq!(refusal(world.user("ben").get::<Value>(&path).await).0, 404);
}
