//! Audit records of commits and refusals.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hayward_publication::Handle;
use hayward_service::http::request_origin::{RefusalObserver as _, RequestOrigin};
use hayward_service::{Principal, Scope};
use hayward_testkit::{TestDatabase, database};
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::fixture::{Command, SCHEMA, pool, set, start, wait_until_leading};

/// Creates the origin of a request with this name and scope.
fn origin(name: &str, scope: &str) -> Arc<RequestOrigin> {
    let request = Request::put("/v1/numbers/k").body(Body::empty());
    let scope = scope.parse::<Scope>().expect("a scope");
    let principal = Principal::new(name, [scope]);
    RequestOrigin::from_request(&request.expect("a request"), Some(Arc::new(principal)))
}

async fn set_as(handle: &Handle<Command>, origin: Arc<RequestOrigin>, key: &str) -> u64 {
    let set = origin.scope(set(handle, key, 1));
    set.await.expect("committed").revision
}

/// Some columns of an audit record.
#[derive(Debug)]
struct RecordRow {
    revision: i64,
    kind: String,
    actor: String,
    outcome: String,
    requests: i64,
}

async fn records(pool: &PgPool) -> Vec<RecordRow> {
    let rows: Vec<(i64, String, String, String, i64)> = sqlx::query_as(
        "select revision, kind, actor, outcome, requests from audit order by number",
    )
    .fetch_all(pool)
    .await
    .expect("records");
    let to_record = |(revision, kind, actor, outcome, requests)| RecordRow {
        revision,
        kind,
        actor,
        outcome,
        requests,
    };
    rows.into_iter().map(to_record).collect()
}

/// The state and the chain end at the same revision (I19).
#[tokio::test(flavor = "multi_thread")]
async fn every_commit_has_a_record_and_the_chain_continues_after_a_kill() {
    let database = database(&[SCHEMA]).await;
    let pool = pool(&database).await;
    let (first, handle) = start(&database, "first", Duration::from_millis(400)).await;
    wait_until_leading(&handle).await;
    let changed = set_as(&handle, origin("ann", "operator"), "k").await;
    let same = set_as(&handle, origin("ann", "operator"), "k").await;
    assert_eq!(changed, same, "an equal value changes nothing");
    let agents = (0..20).map(|number| {
        let (handle, name) = (handle.clone(), format!("n{number}"));
        let origin = origin(&name, &format!("agent:{name}"));
        tokio::spawn(async move { set_as(&handle, origin, &name).await })
    });
    for agent in agents.collect::<Vec<_>>() {
        agent.await.expect("set");
    }
    set(&handle, "own", 1).await.expect("committed");
    let (last_revision, all) = (handle.publisher().revision(), records(&pool).await);
    assert_eq!(
        (all[0].kind.as_str(), all[0].actor.as_str()),
        ("operator", "ann")
    );
    let fleet_records = all.iter().filter(|it| it.kind == "fleet");
    assert_eq!(
        fleet_records.clone().map(|it| it.requests).sum::<i64>(),
        20,
        "all agents, {all:?}"
    );
    assert!(fleet_records.count() < 20, "one record per commit");
    let mut revisions: Vec<_> = all.iter().map(|it| it.revision).collect();
    revisions.dedup();
    let expected: Vec<_> = (1..=i64::try_from(last_revision).unwrap()).collect();
    assert_eq!(revisions, expected, "each revision has a record");
    assert!(handle.auditor().check().await.holds());

    first.kill();
    let (second, handle) = start(&database, "second", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    set_as(&handle, origin("ben", "submitter"), "after").await;
    let finding = handle.auditor().check().await;
    assert!(finding.holds() && finding.examined > 2, "{finding:?}");
    second.stop().await;
}

/// The role of the service can only add records (S24).
#[tokio::test(flavor = "multi_thread")]
async fn refusals_raise_no_revision_and_records_cannot_be_changed() {
    let database = database(&[SCHEMA]).await;
    let pool = pool(&database).await;
    let (committer, handle) = start(&database, "one", Duration::from_millis(400)).await;
    wait_until_leading(&handle).await;
    let revision = set_as(&handle, origin("ann", "operator"), "k").await;
    for _ in 0..3 {
        let request = origin("eve", "submitter").for_command();
        handle.auditor().refused(request, 403);
    }
    let refused = hayward_testkit::until("the refusals", async || {
        let all = records(&pool).await.into_iter();
        let refused: Vec<_> = all.filter(|it| it.outcome == "refused").collect();
        (refused.iter().map(|it| it.requests).sum::<i64>() == 3).then_some(refused)
    })
    .await;
    assert_eq!(
        (refused[0].actor.as_str(), handle.publisher().revision()),
        ("eve", revision)
    );
    set_as(&handle, origin("ann", "operator"), "other").await;
    assert!(handle.auditor().check().await.holds());

    for change in [
        "update audit set actor = 'x'",
        "delete from audit",
        "truncate audit",
    ] {
        let result = sqlx::query(change).execute(&pool).await;
        let refused = result.expect_err("the role may only add records (S24)");
        assert_eq!(sql_state(&refused).as_deref(), Some("42501"), "{change}");
    }
    let mut superuser = superuser_connection(&database).await;
    sqlx::query("update publication.audit set actor = 'x' where number = 1")
        .execute(&mut superuser)
        .await
        .expect("altered");
    committer.stop().await;
    let (restarted, handle) = start(&database, "again", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    let finding = handle.auditor().check().await;
    assert!(
        format!("{finding:?}").contains("record 1 is not what was written"),
        "{finding:?}"
    );
    restarted.stop().await;
}

/// The check starts at the anchor (I19).
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_off_chain_is_detected_and_a_pruned_one_continues() {
    let database = database(&[SCHEMA]).await;
    let pool = pool(&database).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    for number in 0..6 {
        set_as(&handle, origin("ann", "operator"), &format!("k{number}")).await;
    }
    let mut superuser = superuser_connection(&database).await;
    // The records get an old time. The change breaks their hashes, but they are pruned
    // nevertheless.
    sqlx::query("update publication.audit set at_ms = 0 where number <= 2")
        .execute(&mut superuser)
        .await
        .expect("altered");
    let pruned: i64 = sqlx::query_scalar("select prune_audit()")
        .fetch_one(&pool)
        .await
        .expect("pruned");
    let remaining = records(&pool).await;
    assert_eq!(
        (pruned, remaining.len()),
        (2, 4),
        "only records older than 400 days are pruned"
    );
    assert!(handle.auditor().check().await.holds(), "from the anchor on");
    let pruned_again: i64 = sqlx::query_scalar("select prune_audit()")
        .fetch_one(&pool)
        .await
        .expect("nothing to prune");
    assert_eq!(pruned_again, 0);

    sqlx::query("delete from publication.audit where number = 6")
        .execute(&mut superuser)
        .await
        .expect("deleted");
    let finding = handle.auditor().check().await;
    assert!(!finding.holds() && format!("{finding:?}").contains("the last records are gone"));
    committer.stop().await;
}

fn sql_state(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

async fn superuser_connection(database: &TestDatabase) -> PgConnection {
    let url = database.url("postgres");
    PgConnection::connect(&url).await.expect("a connection")
}
