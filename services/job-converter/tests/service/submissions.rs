//! Tests of submitting, reading and listing work.

use hayward_job_converter_api::submission::{BulkSubmitted, Submitted};
use hayward_job_converter_api::{Timeline, WorkList, WorkState, WorkView};
use hayward_publication::Update;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState};
use hayward_service::auth::Scope;
use hayward_vocabulary::WhenUnreachable;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Fixture, fresh_key, job_with_tasks, refusal, submit};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_accepted_once_per_key_also_after_a_crash() {
    let mut fixture = Fixture::with_short_lease().await;
    let (ann, key, body) = (fixture.user("ann"), fresh_key(), job_with_tasks(3));
    let call = ann
        .call(Method::POST, "/v1/jobs")
        .body(&body)
        .idempotency_key(&key);
    let first = call.send_for_response::<Submitted>().await.unwrap();
    assert_eq!(first.status, 201);
    assert_eq!(
        first.headers["location"],
        format!("/v1/jobs/{}", first.body.id)
    );
    assert_eq!(
        first.headers["hayward-revision"],
        first.body.revision.to_string()
    );
    assert_eq!(
        submit(&ann, "/v1/jobs", &body, &key).await.unwrap(),
        first.body
    );

    fixture.kill_and_restart().await;
    let ann = fixture.user("ann");
    let call = ann
        .call(Method::POST, "/v1/jobs")
        .body(&body)
        .idempotency_key(&key);
    let again = call.send_for_response::<Submitted>().await.unwrap();
    assert_eq!(again.body, first.body);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = submit(&ann, "/v1/jobs", &job_with_tasks(4), &key).await;
    assert_eq!(refusal(other).0, 422);
    // Keys are separate for each user.
    let job_of_bob = submit(&fixture.user("bob"), "/v1/jobs", &job_with_tasks(4), &key)
        .await
        .unwrap();
    assert_ne!(job_of_bob.id, first.body.id);
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.work")
            .await,
        2
    );

    let view = fixture.view(&first.body.id).await;
    assert_eq!(
        (view.state, view.name.as_str()),
        (WorkState::Waiting, "echo")
    );
    assert_eq!(view.tasks.unwrap().waiting, 3);
    let demand = fixture.demand_of(&first.body.id).await;
    assert_eq!(
        (demand.max_processes, demand.remaining_tasks, demand.threads),
        (3, 3, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_reported_field_by_field() {
    let fixture = Fixture::new().await;
    let ann = fixture.user("ann");
    let bad = json!({ "command": [], "tasks": { "count": 0 }, "working_directory": "here" });
    let (status, pointers) = refusal(submit(&ann, "/v1/jobs", &bad, &fresh_key()).await);
    assert_eq!((status, pointers.len()), (422, 3));
    assert!(
        pointers.contains(&"/tasks/count".to_owned()),
        "{pointers:?}"
    );
    let unknown = json!({ "command": ["x"], "comand": 1 });
    assert_eq!(
        refusal(submit(&ann, "/v1/jobs", &unknown, &fresh_key()).await).0,
        422
    );
    let none = ann.call(Method::POST, "/v1/jobs").body(&job_with_tasks(1));
    assert_eq!(
        refusal(none.idempotency_key("").send::<Submitted>().await),
        (400, vec!["/header/idempotency-key".to_owned()])
    );
    let page = ann.get::<WorkList>("/v1/jobs?limit=0").await;
    assert_eq!(refusal(page), (400, vec!["/query/limit".to_owned()]));
    for path in ["/v1/jobs", "/v1/applications"] {
        let refused: Result<Value, _> = ann.get(&format!("{path}?state=NONSENSE")).await;
        assert_eq!(
            refusal(refused),
            (422, vec!["/query/state".to_owned()]),
            "{path}"
        );
    }
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.work")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_has_one_result_per_job() {
    let fixture = Fixture::new().await;
    let ann = fixture.user("ann");
    let body = json!({ "jobs": [job_with_tasks(1), { "command": [] }, job_with_tasks(2)] });
    let key = fresh_key();
    let submitted: BulkSubmitted = ann.post("/v1/jobs/bulk", &body, Some(&key)).await.unwrap();
    let good: Vec<bool> = submitted
        .results
        .iter()
        .map(|result| result.id.is_some())
        .collect();
    assert_eq!(good, [true, false, true]);
    assert!(
        submitted.results[1]
            .error
            .as_ref()
            .unwrap()
            .contains("/command")
    );
    let again: BulkSubmitted = ann.post("/v1/jobs/bulk", &body, Some(&key)).await.unwrap();
    assert_eq!(again, submitted);
    assert_eq!(fixture.demand().await.len(), 2);
    let many = json!({ "jobs": vec![job_with_tasks(1); 1001] });
    let refused = ann
        .post::<_, BulkSubmitted>("/v1/jobs/bulk", &many, Some(&fresh_key()))
        .await;
    assert_eq!(refusal(refused), (422, vec!["/jobs".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_others_is_not_found() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(1)).await;
    let (bob, path) = (fixture.user("bob"), format!("/v1/jobs/{}", job.id));
    assert_eq!(refusal(bob.get::<WorkView>(&path).await).0, 404);
    assert_eq!(refusal(bob.delete::<WorkView>(&path).await).0, 404);
    assert_eq!(
        refusal(bob.get::<Timeline>(&format!("{path}/timeline")).await).0,
        404
    );
    assert_eq!(
        refusal(bob.get::<WorkList>("/v1/jobs?user=ann").await).0,
        403
    );
    assert!(
        bob.get::<WorkList>("/v1/jobs")
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let wrong = bob
        .get::<Update<WorkView>>("/v1/jobs/publication?user=ann")
        .await;
    assert_eq!(refusal(wrong).0, 403);
    let agent = fixture.client("x", &[Scope::Agent("n".parse().unwrap())]);
    assert_eq!(
        refusal(submit(&agent, "/v1/jobs", &job_with_tasks(1), &fresh_key()).await).0,
        403
    );
    assert_eq!(refusal(agent.get::<WorkView>(&path).await).0, 403);
    // The id of a job with the prefix of a service names no work.
    let other = path.replace("jobs/job_", "services/svc_");
    assert_eq!(
        refusal(fixture.user("ann").get::<WorkView>(&other).await).0,
        404
    );
    let operator = fixture.client("olga", &[Scope::Operator]);
    assert_eq!(operator.get::<WorkView>(&path).await.unwrap().id, job.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_over_users_and_filtered() {
    let fixture = Fixture::new().await;
    for user in ["ann", "bob"] {
        for _ in 0..3 {
            let client = fixture.user(user);
            submit(&client, "/v1/jobs", &job_with_tasks(1), &fresh_key())
                .await
                .unwrap();
        }
        let body = json!({});
        submit(&fixture.user(user), "/v1/reservations", &body, &fresh_key())
            .await
            .unwrap();
    }
    let operator = fixture.client("olga", &[Scope::Operator]);
    let (mut seen, mut path) = (Vec::new(), "/v1/jobs?limit=2".to_owned());
    loop {
        let page: WorkList = operator.get(&path).await.unwrap();
        assert!(page.items.len() <= 2);
        seen.extend(
            page.items
                .into_iter()
                .map(|view| (view.user.to_string(), view.id)),
        );
        let Some(cursor) = page.next_cursor else {
            break;
        };
        path = format!("/v1/jobs?limit=2&cursor={cursor}");
    }
    assert_eq!(seen.len(), 6);
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(seen, sorted);
    let own: WorkList = fixture.user("bob").get("/v1/reservations").await.unwrap();
    assert_eq!(own.items.len(), 1);
    let ended: WorkList = operator.get("/v1/jobs?state=completed").await.unwrap();
    assert!(ended.items.is_empty());
    let jobs_of_ann: Update<WorkView> = fixture
        .user("ann")
        .get("/v1/jobs/publication")
        .await
        .unwrap();
    assert_eq!(jobs_of_ann.changed.len(), 4);
}

/// The choice reaches the demand and survives a crash. The view explains the effect on an
/// unreachable process (W7).
#[tokio::test(flavor = "multi_thread")]
async fn when_unreachable_reaches_the_demand_and_survives_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut job = job_with_tasks(3);
    job["when_unreachable"] = json!({ "replace_after_ms": 5_000 });
    job["disruption_limit"] = json!(2);
    let job = fixture.submit(job).await;
    let body = json!({ "command": ["sleep", "9"], "when_unreachable": "exclusive" });
    let ann = fixture.user("ann");
    let service: Submitted = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let plain = fixture.submit(job_with_tasks(1)).await;
    for crashed in [false, true] {
        if crashed {
            fixture.kill_and_restart().await;
        }
        let chosen = WhenUnreachable::ReplaceAfter { ms: 5_000 };
        let demand = fixture.demand_of(&job.id).await;
        assert_eq!(
            (demand.when_unreachable, demand.disruption_limit),
            (chosen, Some(2))
        );
        let view = fixture.view(&job.id).await;
        assert_eq!(
            (view.when_unreachable, view.disruption_limit),
            (chosen, Some(2))
        );
        let instance = fixture.demand_of(&service.id.instance(0)).await;
        assert!(instance.when_unreachable.is_exclusive());
        let demand = fixture.demand_of(&plain.id).await;
        assert!(demand.when_unreachable.is_default() && demand.disruption_limit.is_none());
    }
    let granted = fixture.scheduler.grant(&fixture.demand_of(&job.id).await);
    fixture.wait_for_state(&job.id, WorkState::Running).await;
    fixture.scheduler.publish(&AllocationEntry {
        state: AllocationState::Unreachable,
        ..granted
    });
    let view = fixture.wait_for_state(&job.id, WorkState::Waiting).await;
    let reason = view.reason.unwrap();
    assert!(reason.contains("replaced 5000 ms after"), "{reason}");

    let wrong = json!({ "command": ["x"], "when_unreachable": { "replace_after_ms": 0 } });
    let refused = submit(&fixture.user("ann"), "/v1/services", &wrong, &fresh_key()).await;
    let field = "/when_unreachable/replace_after_ms".to_owned();
    assert_eq!(refusal(refused), (422, vec![field]));
    let wrong = json!({ "command": ["x"], "when_unreachable": "wiat" });
    let refused = submit(&fixture.user("ann"), "/v1/services", &wrong, &fresh_key()).await;
    assert_eq!(
        refusal(refused),
        (422, vec!["/when_unreachable".to_owned()])
    );
}

/// The queue is still in the demand after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_a_submission_is_in_its_demand() {
    let mut fixture = Fixture::with_short_lease().await;
    let ann = fixture.user("ann");
    let job = json!({ "command": ["x"], "queue": "root.a", "priority": 7 });
    let job = submit(&ann, "/v1/jobs", &job, &fresh_key()).await.unwrap();
    let service = json!({ "command": ["x"], "instances": 2, "pool": "batch" });
    let service = submit(&ann, "/v1/services", &service, &fresh_key())
        .await
        .unwrap();
    let refused = json!({ "command": ["x"], "queue": "root.a", "class": "high" });
    let refused = submit(&ann, "/v1/jobs", &refused, &fresh_key()).await;
    assert_eq!(refusal(refused).0, 422);
    for restarts in [false, true] {
        if restarts {
            fixture.kill_and_restart().await;
        }
        let queued = fixture.demand_of(&job.id).await.queued.unwrap();
        assert_eq!(
            (queued.queue.as_deref(), queued.priority, queued.pool),
            (Some("root.a"), 7, None)
        );
        let demand = fixture.demand().await;
        let slots = demand.values();
        let slots = slots.filter(|it| it.service.as_ref() == Some(&service.id));
        let slots: Vec<_> = slots.filter_map(|it| it.queued.as_deref()).collect();
        let whole = Some(service.id.to_string());
        assert_eq!(slots.len(), 2);
        let as_one = slots.iter().all(|it| it.application == whole);
        assert!(as_one && slots[0].pool.as_deref() == Some("batch"));
    }
}

/// A dry run validates the submission and stores nothing, not even the key (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_the_result_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let (ann, key) = (fixture.user("ann"), fresh_key());
    let dry_run_view = ann
        .post::<_, WorkView>("/v1/jobs?dry_run=true", &job_with_tasks(3), Some(&key))
        .await
        .unwrap();
    assert_eq!(dry_run_view.tasks.unwrap().total, 3);
    let bulk = json!({ "jobs": [job_with_tasks(1), { "command": [] }] });
    let dry_run_results: BulkSubmitted = ann
        .post("/v1/jobs/bulk?dry_run=true", &bulk, Some(&key))
        .await
        .unwrap();
    let faults = dry_run_results
        .results
        .iter()
        .map(|result| result.error.is_some());
    assert_eq!(faults.collect::<Vec<_>>(), [false, true]);
    let bad = ann
        .post::<_, WorkView>(
            "/v1/jobs?dry_run=true",
            &json!({ "command": [] }),
            Some(&key),
        )
        .await;
    assert_eq!(refusal(bad), (422, vec!["/command".to_owned()]));
    assert_eq!(fixture.demand().await.len(), 0);
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.work")
            .await,
        0
    );
    // The dry run did not use up the key.
    submit(&ann, "/v1/jobs", &job_with_tasks(4), &key)
        .await
        .unwrap();
}

/// With `atomic`, one fault refuses all jobs (A16).
#[tokio::test(flavor = "multi_thread")]
async fn an_atomic_bulk_is_all_or_nothing() {
    let fixture = Fixture::new().await;
    let ann = fixture.user("ann");
    let path = "/v1/jobs/bulk?atomic=true";
    let body = json!({ "jobs": [job_with_tasks(1), { "command": [] }, job_with_tasks(0)] });
    let refused = ann
        .post::<_, BulkSubmitted>(path, &body, Some(&fresh_key()))
        .await;
    let pointers = ["/jobs/1/command", "/jobs/2/tasks/count"].map(str::to_owned);
    assert_eq!(refusal(refused), (422, pointers.to_vec()));
    assert_eq!(fixture.demand().await.len(), 0);
    let body = json!({ "jobs": [job_with_tasks(1), job_with_tasks(2)] });
    let submitted: BulkSubmitted = ann.post(path, &body, Some(&fresh_key())).await.unwrap();
    assert!(submitted.results.iter().all(|result| result.id.is_some()));
}

/// A cursor is refused by a list of another kind or with another filter (A6).
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_belongs_to_its_list() {
    let fixture = Fixture::new().await;
    for _ in 0..2 {
        fixture.submit(job_with_tasks(1)).await;
    }
    let ann = fixture.user("ann");
    let page: WorkList = ann.get("/v1/jobs?limit=1").await.unwrap();
    let cursor = page.next_cursor.unwrap();
    let next: WorkList = ann
        .get(&format!("/v1/jobs?limit=5&cursor={cursor}"))
        .await
        .unwrap();
    assert_eq!(next.items.len(), 1);
    assert_ne!(next.items[0].id, page.items[0].id);
    for other in ["jobs?user=ann", "jobs?state=running", "services?limit=1"] {
        let requested = format!("/v1/{other}&cursor={cursor}");
        let refused = refusal(ann.get::<WorkList>(&requested).await);
        assert_eq!(refused, (422, vec!["/query/cursor".to_owned()]), "{other}");
    }
}
