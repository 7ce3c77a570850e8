//! Leadership: one replica leads, another takes over, and a writer without the lease commits
//! nothing.

use std::time::Duration;

use hayward_publication::CommitError;
use hayward_testkit::database;

use crate::fixture::{SCHEMA, get, pool, set, start, wait_until_leading};

/// Another replica has the lease (I7).
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_an_old_epoch_commits_nothing() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "old", Duration::from_secs(30)).await;
    wait_until_leading(&handle).await;
    set(&handle, "before", 1).await.expect("committed");
    // Another replica takes the lease while this one still believes that it has it.
    let pool = pool(&database).await;
    sqlx::query("update writer set epoch = epoch + 1, expires_at = 'infinity'")
        .execute(&pool)
        .await
        .expect("deposed");
    assert!(matches!(
        set(&handle, "after", 2).await,
        Err(CommitError::Standby)
    ));
    let entries: i64 = sqlx::query_scalar("select count(*) from entry where key = 'after'")
        .fetch_one(&pool)
        .await
        .expect("counted");
    assert_eq!(entries, 0);
    assert_eq!(
        get(&handle, "after"),
        None,
        "uncommitted changes are not visible"
    );
    committer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_leads_and_the_other_takes_over() {
    let database = database(&[SCHEMA]).await;
    let lease = Duration::from_millis(800);
    let (one, first) = start(&database, "one", lease).await;
    wait_until_leading(&first).await;
    let (two, second) = start(&database, "two", lease).await;
    set(&first, "a", 1).await.expect("committed");
    assert!(matches!(
        set(&second, "b", 1).await,
        Err(CommitError::Standby)
    ));
    let epoch = first.publisher().leading().expect("leads");
    one.stop().await;
    wait_until_leading(&second).await;
    assert!(second.publisher().leading().expect("leads") > epoch);
    assert_eq!(get(&second, "a"), Some(1));
    set(&second, "b", 2).await.expect("committed");
    two.stop().await;
}
