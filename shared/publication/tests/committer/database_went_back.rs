//! A database that went back in time, for example after a restore of an old backup: all writing
//! stops until an operator decides.

use std::time::Duration;

use hayward_publication::publisher::Poll;
use hayward_publication::{CommitError, Cursor, Handle};
use hayward_testkit::database;
use sqlx::PgPool;

use crate::fixture::{
    Command, FULL_POLL, SCHEMA, TIMEOUT, get, pool, set, set_with_retries, start,
    wait_until_leading,
};

/// Only the cursor of a trusted reader is evidence (R9).
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_from_the_future_stops_all_writing() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    wait_until_leading(&handle).await;
    set(&handle, "a", 1).await.expect("committed");
    let publisher = handle.publisher();
    let future = Cursor {
        lineage: publisher.lineage(),
        revision: 1_000,
    }
    .to_string();
    // The cursor of an untrusted reader is ignored, and the reader gets a full update.
    let poll = |trusted| {
        publisher.updates(Poll {
            cursor: Some(&future),
            trusted,
            ..FULL_POLL
        })
    };
    assert!(poll(false).await.expect("answered").0.full);
    assert!(matches!(poll(true).await, Err(CommitError::WentBack(_))));
    assert!(matches!(
        set(&handle, "b", 1).await,
        Err(CommitError::WentBack(_))
    ));
    committer.stop().await;
}

async fn wait_until_stopped(handle: &Handle<Command>) -> String {
    let mut roles = handle.publisher().watch_role();
    let stopped = roles.wait_for(|_| {
        let leading = handle.publisher().leading();
        matches!(leading, Err(CommitError::WentBack(_)))
    });
    let stopped = tokio::time::timeout(TIMEOUT, stopped).await;
    drop(
        stopped
            .expect("noticed in time")
            .expect("the publisher exists"),
    );
    handle
        .publisher()
        .leading()
        .expect_err("it went back")
        .to_string()
}

async fn update_one_row(pool: &PgPool, sql: &'static str) {
    let result = sqlx::raw_sql(sql).execute(pool).await;
    assert_eq!(result.expect(sql).rows_affected(), 1);
}

/// A process that wrote more than the database contains detects this even without a write. Neither
/// a restart nor another replica continues until the rows have another lineage (R9).
#[tokio::test(flavor = "multi_thread")]
async fn older_rows_stop_all_replicas_until_they_have_another_lineage() {
    let database = database(&[SCHEMA]).await;
    let lease = Duration::from_millis(500);
    for rollback_sql in [
        "update writer set revision = revision - 1",
        "update writer set epoch = epoch - 1, expires_at = '-infinity'",
    ] {
        let (committer, handle) = start(&database, "one", lease).await;
        wait_until_leading(&handle).await;
        set_with_retries(&handle, "a", 1).await;
        set_with_retries(&handle, "a", 2).await;
        let pool = pool(&database).await;
        update_one_row(&pool, rollback_sql).await;
        let reason = wait_until_stopped(&handle).await;
        assert!(
            reason.starts_with(hayward_publication::WENT_BACK),
            "{reason}"
        );
        let (standby, second) = start(&database, "two", lease).await;
        assert_eq!(wait_until_stopped(&second).await, reason);
        assert_eq!(get(&handle, "a"), Some(2), "reads still work");
        assert!(handle.publisher().readable().is_ok());
        let last = handle.read(Command::Last).await.expect("it was the leader");
        assert_eq!(last.value, Some(2), "the working set is unchanged");
        assert!(matches!(
            handle.execute(Command::Last).await,
            Err(CommitError::WentBack(_))
        ));
        assert!(
            second.publisher().readable().is_err(),
            "it has nothing to show"
        );
        assert!(matches!(
            second.read(Command::Last).await,
            Err(CommitError::WentBack(_))
        ));
        committer.stop().await;
        let (restarted, handle) = start(&database, "one", lease).await;
        assert_eq!(wait_until_stopped(&handle).await, reason);
        assert!(set(&handle, "b", 1).await.is_err());
        assert_eq!(get(&handle, "b"), None);

        let decision = "update writer
                           set lineage = gen_random_uuid(), epoch = epoch + 1000, went_back = null";
        update_one_row(&pool, decision).await;
        let leader = async {
            tokio::select! {
                () = wait_until_leading(&handle) => handle.clone(),
                () = wait_until_leading(&second) => second.clone(),
            }
        };
        let leader = leader.await;
        set_with_retries(&leader, "b", 2).await;
        standby.stop().await;
        restarted.stop().await;
    }
}
