//! Tests of the results of maps and their entries.

use hayward_job_converter_api::orchestrators::{MapCounts, OrchestratorList, Standing};
use hayward_rm_scheduler_api::WaitReason;
use hayward_service::auth::Scope;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Program, Size, WorkKind};
use serde_json::{Value, json};

use super::fake_orchestrator::{FakeOrchestrator, job, with_fields};
use crate::fixture::{Fixture, refusal};

/// A map that is empty, not newer than the last one, or too early changes nothing.
#[tokio::test]
async fn empty_stale_and_early_maps_change_nothing() {
    let mut fixture = Fixture::with_settings(|settings| settings.orchestrator_silent_ms = 0).await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.sequence = 6;
    let first = fake.put(&fixture, json!({ "a": job() })).await;
    assert!(first.applied && first.counts.new == 1, "{first:?}");
    let id = fake.wait_demand(&fixture, "a").await.work;
    let ignored_reason = async |fake: &FakeOrchestrator, work: Value| {
        let answer = fake.put_again(&fixture, work).await;
        assert!(!answer.applied && answer.sequence == Some(7), "{answer:?}");
        answer.reason.unwrap()
    };
    let other = json!({ "b": job() });
    assert_eq!(ignored_reason(&fake, other.clone()).await, "sequence_used");
    fake.sequence = 5;
    assert_eq!(ignored_reason(&fake, other.clone()).await, "stale");
    fake.sequence = 8;
    assert_eq!(ignored_reason(&fake, json!({})).await, "empty");
    assert_eq!(fake.wait_demand(&fixture, "a").await.work, id);
    assert!(fake.work_entry(&fixture, "b").await.is_none());

    // Without maps, the work continues and the view shows the orchestrator as silent.
    let view = fake.view(&fixture).await;
    assert!(view.silent && view.note.unwrap().contains("its work continues"));
    assert_eq!(
        (view.lineage.as_deref(), view.sequence),
        (Some("first"), Some(7))
    );
    assert_eq!(view.counts.waiting, 1);

    // The map is too early.
    fixture.settings.orchestrator_least_ms = 600_000;
    fixture.settings.server.lease_ms = 60_000;
    fixture.stop_and_restart().await;
    (fake.lineage, fake.sequence) = ("first", 7);
    assert!(
        fake.put(&fixture, other.clone()).await.applied,
        "the first map of a term is never too early"
    );
    fake.sequence = 9;
    let early = fake.put_again(&fixture, json!({ "a": job() })).await;
    assert_eq!(early.reason.as_deref(), Some("too_early"));
    fake.sequence = 8;
    assert!(
        fake.put_again(&fixture, other).await.applied,
        "the same map is never too early"
    );
}

/// A map names all work: what it no longer names has ended.
#[tokio::test]
async fn map_entries_arrive_change_end_and_disappear() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    let done = with_fields(job(), json!({ "state": "completed" }));
    let reservation = json!({ "kind": "reservation", "state": "waiting", "owner": "ben" });
    fake.put(
        &fixture,
        json!({ "a": job(), "b": job(), "done": done, "m": reservation }),
    )
    .await;
    let kind = async |work: &str| fake.wait_demand(&fixture, work).await.kind;
    assert_eq!(
        (kind("a").await, kind("m").await),
        (WorkKind::Job, WorkKind::Reservation)
    );
    assert_eq!(
        fake.work_entry(&fixture, "done").await.unwrap().state,
        Standing::Over
    );
    assert_eq!(fake.wait_demand(&fixture, "m").await.user.as_str(), "ben");

    let larger = with_fields(job(), json!({ "max_processes": 5 }));
    let ended = with_fields(job(), json!({ "state": "completed" }));
    let assigned = json!({ "kind": "reservation", "state": "assigned", "owner": "ben" });
    let map = json!({ "a": larger, "b": ended, "m": assigned });
    let answer = fake.put(&fixture, map.clone()).await;
    let counts = MapCounts {
        changed: 3,
        completed: 1,
        gone: 1,
        ..MapCounts::default()
    };
    assert_eq!(answer.counts, counts);
    assert_eq!(fake.wait_demand(&fixture, "a").await.max_processes, 5);
    assert!(fake.demand(&fixture, "b").await.is_none());
    assert_eq!(
        fake.work_entry(&fixture, "b").await.unwrap().state,
        Standing::Over
    );
    assert!(fake.work_entry(&fixture, "done").await.is_none());

    // The same map arrives again, and then as the next one. Both make no difference.
    let before = fake.entries(&fixture).await;
    let revision = fake.put_again(&fixture, map.clone()).await.revision;
    let again = fake.put_again(&fixture, map.clone()).await;
    assert!(again.applied && again.revision == revision);
    assert_eq!(again.counts.unchanged, 3);
    assert_eq!(fake.put(&fixture, map).await.counts.unchanged, 3);
    assert_eq!(fake.entries(&fixture).await, before);
}

/// Each missing field has one default.
#[tokio::test]
async fn an_entry_without_a_field_gets_its_default() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    let plain = json!({ "kind": "job", "state": "waiting", "owner": " ada " });
    let explicit = json!({ "kind": "managed_reservation", "state": "waiting", "owner": "ada",
        "memory_gb": 2, "machines": ["node-7"], "max_processes": 9,
        "submitted_at": "2026-01-01T00:00:00Z",
        "launch": { "command": ["sleep", "9"], "environment": { "A": "b" } } });
    let pair = |priority: u32| {
        json!({ "kind": "service", "state": "running", "owner": "ada",
        "service": "pair", "user_priority": priority })
    };
    let map = json!({ "plain": plain, "explicit": explicit, "p1": pair(1), "p2": pair(2) });
    fake.put(&fixture, map).await;
    let plain = fake.wait_demand(&fixture, "plain").await;
    assert_eq!(
        (plain.max_processes, plain.remaining_tasks, plain.threads),
        (10, 10, 1)
    );
    assert_eq!(plain.size, Size::memory(4 * GIB));
    let orchestrated = plain.orchestrated.unwrap();
    assert!(orchestrated.starting && orchestrated.own_processes && plain.launch.is_none());
    let explicit = fake.wait_demand(&fixture, "explicit").await;
    assert_eq!(
        (explicit.kind, explicit.max_processes),
        (WorkKind::Service, 1)
    );
    assert!(
        explicit
            .submitted_at
            .to_string()
            .starts_with("2026-01-01T00:00:00")
    );
    let orchestrated = explicit.orchestrated.unwrap();
    assert!(orchestrated.managed && !orchestrated.own_processes);
    let launch = explicit.launch.unwrap();
    assert!(matches!(launch.program, Program::Command { argv } if argv == ["sleep", "9"]));
    let (p1, p2) = (
        fake.wait_demand(&fixture, "p1").await,
        fake.wait_demand(&fixture, "p2").await,
    );
    assert!(p1.service.is_some() && p1.service == p2.service);
}

/// A faulty entry is refused, and the other entries are accepted.
#[tokio::test]
async fn a_refused_entry_has_a_pointer_and_affects_no_other() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    let map = json!({
        "good": job(),
        "kind": { "kind": "gang", "state": "waiting", "owner": "ada" },
        "whose": with_fields(job(), json!({ "owner": "eve" })),
        "none": { "kind": "job", "state": "waiting" },
        "a/b": with_fields(job(), json!({ "launch": { "command": [] } })),
    });
    let answer = fake.put(&fixture, map).await;
    assert_eq!((answer.counts.new, answer.counts.refused), (1, 4));
    // All pointers are below the field of the entries.
    let pointer_below_work = |pointer: &'_ str| {
        pointer
            .strip_prefix("/")
            .and_then(|it| it.strip_prefix("work/"))
            .map(str::to_owned)
    };
    let refusals: Vec<(&str, String)> = answer
        .refused
        .iter()
        .map(|it| (it.reason.as_str(), pointer_below_work(&it.pointer).unwrap()))
        .collect();
    assert!(
        refusals.contains(&("invalid", "kind/kind".to_owned())),
        "{refusals:?}"
    );
    assert!(
        refusals.contains(&("not_authorised", "whose/owner".to_owned())),
        "{refusals:?}"
    );
    assert!(
        refusals.contains(&("invalid", "a~1b/launch/command".to_owned())),
        "{refusals:?}"
    );
    fake.wait_demand(&fixture, "good").await;
    let owner = fake.work_entry(&fixture, "whose").await.unwrap();
    assert_eq!((owner.state, owner.id), (Standing::Refused, None));
    assert_eq!(fake.view(&fixture).await.faults.len(), 4);

    // A faulty entry keeps its last good state. A corrected one is accepted.
    let bad = with_fields(job(), json!({ "colour": "red" }));
    let answer = fake
        .put(&fixture, json!({ "good": bad, "whose": job() }))
        .await;
    assert_eq!(
        (answer.counts.new, answer.counts.refused, answer.counts.gone),
        (1, 1, 0)
    );
    fake.wait_demand(&fixture, "whose").await;
    assert!(fake.demand(&fixture, "good").await.is_some());
    let good = fake.work_entry(&fixture, "good").await.unwrap();
    assert!(good.detail.unwrap().contains("the one before is in force"));
    assert!(fake.work_entry(&fixture, "kind").await.is_none());

    // The scheduler's refusal is reported once. The entry is not requested until it changes.
    let id = fake.wait_demand(&fixture, "whose").await.work;
    fixture
        .scheduler
        .publish_verdict(&id, WaitReason::UnknownClass, true);
    let refused = async || {
        let entry = fake.work_entry(&fixture, "whose").await?;
        (entry.state == Standing::Refused).then_some(entry)
    };
    let entry = until("the refusal", refused).await;
    assert_eq!(entry.reason.as_deref(), Some("unknown_class"));
    assert!(fake.demand(&fixture, "whose").await.is_none());
    fake.put(&fixture, json!({ "good": job(), "whose": job() }))
        .await;
    assert!(fake.demand(&fixture, "whose").await.is_none());
    let other = with_fields(job(), json!({ "class": "normal" }));
    fake.put(&fixture, json!({ "good": job(), "whose": other }))
        .await;
    assert_ne!(fake.wait_demand(&fixture, "whose").await.work, id);
}

#[tokio::test]
async fn one_id_is_one_piece_of_work() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let id = fake.wait_demand(&fixture, "a").await.work;
    let others = [
        ("/kind", json!({ "kind": "service" })),
        ("/owner", json!({ "owner": "ben" })),
        ("/launch", json!({ "launch": { "command": ["true"] } })),
    ];
    for (pointer, fields) in others {
        let answer = fake
            .put(&fixture, json!({ "a": with_fields(job(), fields) }))
            .await;
        assert!(answer.refused[0].pointer.ends_with(pointer), "{answer:?}");
        assert_eq!(fake.wait_demand(&fixture, "a").await.work, id);
    }
}

#[tokio::test]
async fn only_new_entries_are_checked_for_their_users() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let body = json!({ "name": "one", "users": ["ben"] });
    let client = fixture.client("olga", &[Scope::Operator]);
    let _: Value = client.post("/v1/orchestrators", &body, None).await.unwrap();
    let less = with_fields(job(), json!({ "max_processes": 1 }));
    let answer = fake.put(&fixture, json!({ "a": less, "b": job() })).await;
    let refused: Vec<&str> = answer.refused.iter().map(|it| it.work.as_str()).collect();
    assert_eq!((refused, answer.counts.changed), (vec!["b"], 1));
    assert_eq!(fake.wait_demand(&fixture, "a").await.max_processes, 1);
}

#[tokio::test]
async fn an_orchestrator_cannot_use_the_map_of_another() {
    let fixture = Fixture::new().await;
    let mut first = FakeOrchestrator::new(&fixture, "one").await;
    let mut second = FakeOrchestrator::new(&fixture, "two").await;
    first.put(&fixture, json!({ "a": job(), "b": job() })).await;
    second.put(&fixture, json!({ "a": job() })).await;
    let (first_demand, second_demand) = (
        first.wait_demand(&fixture, "a").await,
        second.wait_demand(&fixture, "a").await,
    );
    assert_ne!(first_demand.work, second_demand.work);

    let map = json!({ "lineage": "x", "sequence": 1, "work": { "a": job() } });
    let foreign: Result<Value, ClientError> =
        first.client(&fixture).put(&second.path(), &map).await;
    assert_eq!(refusal(foreign).0, 403);
    let path = "/v1/orchestrators/two/allocations/publication";
    let foreign: Result<Value, ClientError> = first.client(&fixture).get(path).await;
    assert_eq!(refusal(foreign).0, 403);
    let user: Result<Value, ClientError> = fixture.user("ada").put(&second.path(), &map).await;
    assert_eq!(refusal(user).0, 403);
    let jobs: Result<Value, ClientError> = first.client(&fixture).get("/v1/jobs").await;
    assert_eq!(refusal(jobs).0, 403);

    first.put(&fixture, json!({ "b": job() })).await;
    assert!(second.demand(&fixture, "a").await.is_some());
    let operator = fixture.client("olga", &[Scope::Operator]);
    let list: OrchestratorList = operator.get("/v1/orchestrators").await.unwrap();
    let names: Vec<&str> = list
        .orchestrators
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two"]);
    // Cursors belong to their list (A6).
    let route = "/v1/orchestrators?limit=1";
    let page: OrchestratorList = operator.get(route).await.unwrap();
    let next = page.next_cursor.unwrap();
    let last: OrchestratorList = operator
        .get(&format!("{route}&cursor={next}"))
        .await
        .unwrap();
    assert_eq!(last.orchestrators[0].name.as_str(), "two");
    assert_eq!((last.orchestrators.len(), last.next_cursor), (1, None));

    // Removing an orchestrator ends its work and its token. The other is not affected.
    let _: Option<Value> = operator.delete("/v1/orchestrators/one").await.unwrap();
    until("its demand to be withdrawn", async || {
        (fixture.demand().await.into_keys().collect::<Vec<_>>() == [second_demand.work.to_string()])
            .then_some(())
    })
    .await;
    first.sequence += 1;
    let gone = first.try_put(&fixture, json!({ "a": job() })).await;
    assert_eq!(refusal(gone).0, 404);
}

#[tokio::test]
async fn a_disabled_orchestrator_manager_refuses_requests() {
    let fixture =
        Fixture::with_settings(|settings| settings.managers = vec!["jobs".to_owned()]).await;
    let operator = fixture.client("olga", &[Scope::Operator]);
    let list: Result<Value, ClientError> = operator.get("/v1/orchestrators").await;
    let problem = list.unwrap_err().problem().unwrap().clone();
    assert!(
        problem.detail.contains("`orchestrator` is not enabled"),
        "{problem:?}"
    );
}
