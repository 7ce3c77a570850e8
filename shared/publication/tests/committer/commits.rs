//! Commits, dry runs and conditional changes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hayward_publication::publisher::Poll;
use hayward_publication::{CommitError, Committed, Handle, Reply};
use hayward_service::http::request_origin::RequestOrigin;
use hayward_service::{Principal, Scope};
use hayward_testkit::{TestServer, database};

use crate::fixture::{
    Command, FULL_POLL, SCHEMA, get, set, set_with_retries, start, wait_until_leading,
};

#[tokio::test(flavor = "multi_thread")]
async fn answered_commands_are_durable_and_grouped_into_commits() {
    let database = database(&[SCHEMA]).await;
    let (first, handle) = start(&database, "first", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    let tasks = (0..200_u64).map(|number| {
        let handle = handle.clone();
        tokio::spawn(async move { set(&handle, &format!("k{number}"), number).await })
    });
    let mut revisions = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        let committed = task.await.expect("no panic").expect("committed");
        assert_eq!(
            committed.value, committed.revision,
            "answered before its own commit"
        );
        revisions.push(committed.revision);
    }
    let last = *revisions.iter().max().expect("some");
    assert!(
        last < 200,
        "200 commands made {last} commits: nothing was grouped"
    );
    assert_eq!(handle.publisher().revision(), last);
    // An equal value is no change and writes nothing.
    assert_eq!(
        set(&handle, "k7", 7).await.expect("answered").revision,
        last
    );
    first.stop().await;
    assert!(matches!(
        set(&handle, "k0", 0).await,
        Err(CommitError::Standby)
    ));

    let (second, handle) = start(&database, "second", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    for number in 0..200 {
        assert_eq!(get(&handle, &format!("k{number}")), Some(number));
    }
    assert_eq!(handle.publisher().revision(), last);
    second.stop().await;
}

/// Makes a change with the origin of a request. The request has this query and this `If-Revision`.
async fn send_request(
    handle: &Handle<Command>,
    query: &str,
    if_revision: Option<u64>,
    command: impl FnOnce(Reply<u64>) -> Command,
) -> Result<Committed<u64>, CommitError> {
    let mut builder = Request::builder()
        .method("PUT")
        .uri(format!("/v1/numbers?{query}"));
    if let Some(revision) = if_revision {
        builder = builder.header("if-revision", revision);
    }
    let ann = Arc::new(Principal::new("ann", [Scope::Operator]));
    let origin =
        RequestOrigin::from_request(&builder.body(Body::empty()).expect("a request"), Some(ann));
    origin.scope(handle.execute(command)).await
}

fn set_a(number: u64) -> impl FnOnce(Reply<u64>) -> Command {
    move |reply| Command::Set("a".to_owned(), Some(number), reply)
}

/// `If-Revision` names the revision (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_change_is_made_only_at_the_revision_of_its_dry_run() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    let first = set(&handle, "a", 1).await.expect("committed").revision;
    let dry_run = send_request(&handle, "dry_run=true", None, set_a(2))
        .await
        .expect("evaluated");
    assert_eq!(
        (dry_run.revision, get(&handle, "a")),
        (first, Some(1)),
        "nothing was changed"
    );
    assert_eq!(handle.publisher().revision(), first);
    let done = send_request(&handle, "", Some(dry_run.revision), set_a(2))
        .await
        .expect("done");
    assert_eq!((done.revision, get(&handle, "a")), (first + 1, Some(2)));
    let moved = send_request(&handle, "", Some(dry_run.revision), set_a(3)).await;
    let Err(CommitError::Moved { expected, current }) = moved else {
        panic!("{moved:?}");
    };
    assert_eq!((expected, current), (first, first + 1));
    let ahead = send_request(&handle, "", Some(first + 9), set_a(3)).await;
    assert!(matches!(ahead, Err(CommitError::Moved { .. })));
    assert_eq!(get(&handle, "a"), Some(2));
    // A conditional dry run is refused for the same reason.
    let moved = send_request(&handle, "dry_run=true", Some(first), set_a(3)).await;
    assert!(matches!(moved, Err(CommitError::Moved { .. })));
    committer.stop().await;
}

/// All other changes are refused as moved (A10).
#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_many_changes_at_the_same_revision_is_made() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    let revision = set(&handle, "a", 0).await.expect("committed").revision;
    let tasks = (1..=50).map(|number| {
        let handle = handle.clone();
        tokio::spawn(async move {
            send_request(&handle, "", Some(revision), set_a(number))
                .await
                .is_ok()
        })
    });
    let mut done = 0;
    for task in tasks.collect::<Vec<_>>() {
        done += u32::from(task.await.expect("no panic"));
    }
    assert_eq!((done, handle.publisher().revision()), (1, revision + 1));
    committer.stop().await;
}

/// The request had `dry_run=true` (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_dry_run_is_refused_and_not_applied() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    let request = Request::builder()
        .method("POST")
        .uri("/v1/numbers?dry_run=true");
    let origin =
        RequestOrigin::from_request(&request.body(Body::empty()).expect("a request"), None);
    let refused = origin.scope(handle.execute(Command::Panic)).await;
    assert!(matches!(refused, Err(CommitError::NoDryRun)), "{refused:?}");
    set(&handle, "a", 1)
        .await
        .expect("this replica still leads");
    committer.stop().await;
}

/// Earlier commits stay, and the service continues (F4).
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_command_fails_only_its_batch() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    set(&handle, "a", 1).await.expect("committed");
    let refused = handle.execute(Command::Panic).await;
    assert!(
        matches!(refused, Err(CommitError::Unavailable)),
        "{refused:?}"
    );
    set_with_retries(&handle, "b", 2).await;
    assert_eq!((get(&handle, "a"), get(&handle, "b")), (Some(1), Some(2)));
    committer.stop().await;
}

/// Commands succeed again after a pause (F7).
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_database_loses_no_commit() {
    let server = TestServer::start().await;
    let database = server.database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(2)).await;
    wait_until_leading(&handle).await;
    set(&handle, "a", 1).await.expect("committed");
    server.kill().await;
    server.resume().await;
    let committed = set_with_retries(&handle, "b", 2).await;
    assert_eq!(get(&handle, "a"), Some(1));
    assert!(committed.revision >= 2);
    committer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_reader_is_woken_by_a_commit() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    let publisher = handle.publisher().clone();
    let (_, cursor) = publisher.updates(FULL_POLL).await.expect("everything");
    let waiting = tokio::spawn(async move {
        publisher
            .updates(Poll {
                cursor: Some(&cursor.to_string()),
                wait: Duration::from_secs(20),
                ..FULL_POLL
            })
            .await
    });
    set(&handle, "a", 1).await.expect("committed");
    let (delta, _) = waiting.await.expect("no panic").expect("answered");
    assert_eq!(delta.changed.len(), 1);
    committer.stop().await;
}
