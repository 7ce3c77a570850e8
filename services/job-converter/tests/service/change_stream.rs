//! The change stream for external programs (A7).

use std::sync::Arc;

use hayward_job_converter_api::WorkView;
use hayward_publication::changes::ObjectChanges;
use hayward_service::SystemClock;
use hayward_service::auth::{Keys, Scope};
use hayward_testkit::Events;

use crate::fixture::{Fixture, fresh_key, job_with_tasks, refusal, submit};

async fn open(fixture: &Fixture, name: &str, scope: Scope, query: &str) -> Events {
    let path = format!("/v1/changes?{query}");
    Events::open(&fixture.url(), &path, &fixture.token(name, &[scope]), &[]).await
}

/// A stream has changes of the caller's own work, in order, and continues after its last event
/// (A7).
#[tokio::test(flavor = "multi_thread")]
async fn users_follow_changes_of_their_own_work() {
    let fixture = Fixture::new().await;
    let mut ann = open(&fixture, "ann", Scope::Submitter, "since=now").await;
    let mut all_users = open(&fixture, "vic", Scope::Viewer, "since=now").await;
    let mut services = open(&fixture, "ann", Scope::Submitter, "since=now&kinds=service").await;
    let begin = ann.next().await.unwrap();
    assert_eq!(
        begin.event, "bookmark",
        "the stream begins with its position"
    );

    let bob = fixture.user("bob");
    let job_of_bob = submit(&bob, "/v1/jobs", &job_with_tasks(1), &fresh_key())
        .await
        .unwrap();
    let job_of_ann = fixture.submit(job_with_tasks(2)).await;
    let first = ann.next_change().await.unwrap();
    assert_eq!(
        (first.event.as_str(), &first.data["kind"]),
        ("changed", &"job".into())
    );
    assert_eq!(first.data["id"], job_of_ann.id.as_str(), "not bob's (S12)");
    assert_eq!(first.data["revision"], job_of_ann.revision);
    let shown: WorkView = serde_json::from_value(first.data["object"].clone()).unwrap();
    assert_eq!(shown, fixture.view(&job_of_ann.id).await);
    let both = [
        all_users.next_change().await.unwrap(),
        all_users.next_change().await.unwrap(),
    ];
    assert_eq!(both[0].data["id"], job_of_bob.id.as_str(), "in order");
    assert_eq!(both[1].data["id"], job_of_ann.id.as_str());

    // A reconnecting browser sends the id of its last event.
    let last = first.id.unwrap();
    let _: WorkView = fixture
        .user("ann")
        .delete(&format!("/v1/jobs/{}", job_of_ann.id))
        .await
        .unwrap();
    let token = fixture.token("ann", &[Scope::Submitter]);
    let headers = [("Last-Event-ID", last.as_str())];
    let mut reopened =
        Events::open(&fixture.url(), "/v1/changes?since=now", &token, &headers).await;
    let next = reopened.next_change().await.unwrap();
    assert_eq!(next.data["id"], job_of_ann.id.as_str());
    assert!(
        next.data["revision"].as_u64() > Some(job_of_ann.revision),
        "no event is repeated"
    );
    let body = serde_json::json!({ "command": ["sleep", "9"], "instances": 1 });
    let service = submit(&fixture.user("ann"), "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let event = services.next_change().await.unwrap();
    assert_eq!(
        event.data["id"],
        service.id.as_str(),
        "jobs are not followed"
    );
}

/// A long poll is an alternative to a stream (A7).
#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_answers_with_the_next_change() {
    let fixture = Fixture::new().await;
    let first = fixture.submit(job_with_tasks(1)).await;
    let ann = fixture.user("ann");
    let path = format!("/v1/changes?since={}&wait=0", first.revision - 1);
    let answer: ObjectChanges = ann.get(&path).await.unwrap();
    assert_eq!(answer.changes.len(), 1);
    assert_eq!(
        (answer.changes[0].revision, answer.changes[0].removed),
        (first.revision, false)
    );
    assert_eq!(answer.changes[0].id, first.id.as_str());

    let path = format!("/v1/changes?since={}&wait=25", answer.cursor);
    let (waited, second) = tokio::join!(
        ann.get::<ObjectChanges>(&path),
        fixture.submit(job_with_tasks(2))
    );
    let waited = waited.unwrap();
    assert_eq!(waited.changes[0].id, second.id.as_str());
    assert!(waited.revision >= second.revision);
    // Changes of other users advance the cursor as well.
    let path = format!("/v1/changes?since={}&wait=0", first.revision - 1);
    let none: ObjectChanges = fixture.user("bob").get(&path).await.unwrap();
    assert!(none.changes.is_empty() && none.revision >= second.revision);
}

/// An error is a response with a problem document, not an event (A7).
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_request_for_changes_is_refused_with_a_problem_document() {
    let fixture = Fixture::new().await;
    let (ann, now) = (
        fixture.user("ann"),
        fixture.submit(job_with_tasks(1)).await.revision,
    );
    let refused = async |query: &str| {
        refusal(
            ann.get::<ObjectChanges>(&format!("/v1/changes?{query}"))
                .await,
        )
    };
    assert_eq!(refused("").await.0, 400);
    assert_eq!(
        refused("since=tomorrow").await,
        (400, vec!["/query/since".to_owned()])
    );
    assert_eq!(
        refused("since=now&wait=26").await,
        (400, vec!["/query/wait".to_owned()])
    );
    assert_eq!(
        refused("since=now&kinds=jobs").await,
        (422, vec!["/query/kinds".to_owned()])
    );
    assert_eq!(refused("since=now&kinds=job,orchestrator").await.0, 403);
    assert_eq!(refused(&format!("since={}", now + 1_000)).await.0, 409);
    let other = format!("since={}-{now}", "0".repeat(32));
    assert_eq!(
        refused(&other).await,
        (410, vec!["/query/since".to_owned()])
    );
    let agent = Scope::Agent("n1".parse().unwrap());
    assert_eq!(open(&fixture, "n1", agent, "since=now").await.status, 403);
}

/// The number of open streams of one caller is limited (S27).
#[tokio::test(flavor = "multi_thread")]
async fn open_streams_are_counted_until_their_last_byte() {
    let fixture = Fixture::with_settings(|settings| settings.server.streams_at_once = 2).await;
    let first = open(&fixture, "ann", Scope::Submitter, "since=now").await;
    let second = open(&fixture, "ann", Scope::Submitter, "since=now").await;
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(
        open(&fixture, "ann", Scope::Submitter, "since=now")
            .await
            .status,
        429
    );
    assert_eq!(
        open(&fixture, "bob", Scope::Submitter, "since=now")
            .await
            .status,
        200
    );
    drop(first);
    hayward_testkit::until("a free stream", async || {
        let again = open(&fixture, "ann", Scope::Submitter, "since=now").await;
        (again.status == 200).then_some(())
    })
    .await;
}

/// Revoking one token affects no other token of the same user (S8).
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_its_stream() {
    let fixture = Fixture::new().await;
    let (revoked_token, valid_token) = (fixture.user_token("ann"), fixture.user_token("ann"));
    let path = "/v1/changes?since=now";
    let mut revoked_stream = Events::open(&fixture.url(), path, &revoked_token, &[]).await;
    let mut valid_stream = Events::open(&fixture.url(), path, &valid_token, &[]).await;
    let keys = Keys::open(fixture.settings.server.keys.clone().unwrap()).unwrap();
    let verifier = keys.verifier(Arc::new(SystemClock)).unwrap();
    let id = verifier.token_id(&revoked_token).unwrap();
    std::fs::write(keys.revoked_path(), format!("{id}\n")).unwrap();
    let end = revoked_stream.next_change().await.unwrap();
    assert_eq!(
        (end.event.as_str(), &end.data["reason"]),
        ("end", &"unauthenticated".into())
    );
    assert_eq!(revoked_stream.next().await, None);
    fixture.submit(job_with_tasks(1)).await;
    assert_eq!(valid_stream.next_change().await.unwrap().event, "changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_continues_after_a_restart_of_its_service() {
    let mut fixture = Fixture::new().await;
    let mut ann = open(&fixture, "ann", Scope::Submitter, "since=now").await;
    let last_id = ann.next().await.unwrap().id.unwrap();
    fixture.stop_and_restart().await;
    let end = ann.next_change().await.unwrap();
    assert_eq!(
        (end.event.as_str(), &end.data["reason"]),
        ("end", &"shutting_down".into())
    );
    let job = fixture.submit(job_with_tasks(1)).await;
    let mut reopened = open(
        &fixture,
        "ann",
        Scope::Submitter,
        &format!("since={last_id}"),
    )
    .await;
    assert_eq!(
        reopened.next_change().await.unwrap().data["id"],
        job.id.as_str()
    );
}
