//! The committer with a real PostgreSQL: an answered change is durable, an unfenced change is not
//! written, and uncommitted changes are not visible.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hayward_postgres::Schema;
use hayward_publication::{
    Batch, CommitError, Committed, Committer, Cursor, DryRunSupport, Handle, Ledger, MIGRATOR,
    Moment, Reply, Wake, committer,
};
use hayward_service::http::origin::{Origin, RefusalObserver as _};
use hayward_service::{Principal, Scope, SystemClock};
use hayward_testkit::{TestDatabase, TestServer, database};
use sqlx::{Connection as _, PgConnection, PgPool};

const NUMBERS: &str = "numbers";
const SCHEMA: Schema<'static> = Schema {
    name: "publication",
    migrator: &MIGRATOR,
    shared: &[],
};
const PATIENCE: Duration = Duration::from_secs(20);

/// A minimal ledger: named numbers that exist only in their publication.
#[derive(Clone)]
struct Numbers {
    /// The last number set in this term.
    last: Option<u64>,
}

enum Command {
    Set(String, Option<u64>, Reply<u64>),
    Panic(Reply<()>),
    Last(Reply<Option<u64>>),
}

impl Ledger for Numbers {
    type Command = Command;
    type Rows = ();
    type Context = ();

    async fn load(
        _tx: &mut PgConnection,
        _moment: &Moment,
        _context: &Arc<()>,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self { last: None })
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<()>) {
        match command {
            Command::Set(key, Some(number), reply) => {
                self.last = Some(number);
                batch.publish(NUMBERS, "", &key, &number);
                batch.answer(reply, moment.revision);
            }
            Command::Set(key, None, reply) => {
                batch.withdraw(NUMBERS, "", &key);
                batch.answer(reply, moment.revision);
            }
            Command::Last(reply) => batch.answer(reply, self.last),
            Command::Panic(_reply) => panic!("a record that panics its reader"),
        }
    }

    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::Set(..) => DryRunSupport::OnCopy(Box::new(self.clone())),
            Command::Panic(_) | Command::Last(_) => DryRunSupport::Unsupported,
        }
    }

    fn round(&mut self, _moment: &Moment, _batch: &mut Batch<()>) -> Wake {
        Wake::OnNews
    }

    fn weight((): &()) -> usize {
        0
    }

    async fn write((): (), _tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        Ok(())
    }
}

async fn pool(database: &TestDatabase) -> PgPool {
    hayward_postgres::connect(&database.url("publication"), 3)
        .await
        .expect("a connection")
}

async fn start(
    database: &TestDatabase,
    holder: &str,
    lease: Duration,
) -> (Committer, Handle<Command>) {
    let settings = committer::Settings::new("test", holder, lease);
    let clock = Arc::new(SystemClock);
    Committer::start::<Numbers>(
        settings,
        pool(database).await,
        &[NUMBERS],
        clock,
        Arc::new(()),
    )
}

async fn leads(handle: &Handle<Command>) {
    let mut terms = handle.publisher().terms();
    let leading = terms.wait_for(|_| handle.publisher().leading().is_ok());
    tokio::time::timeout(PATIENCE, leading)
        .await
        .expect("leads in time")
        .expect("still there");
}

async fn set(
    handle: &Handle<Command>,
    key: &str,
    number: u64,
) -> Result<Committed<u64>, CommitError> {
    handle
        .ask(|reply| Command::Set(key.to_owned(), Some(number), reply))
        .await
}

/// Sets a number and retries until it succeeds, as a caller does after `Unavailable`.
async fn set_at_last(handle: &Handle<Command>, key: &str, number: u64) -> Committed<u64> {
    let attempt = async {
        loop {
            leads(handle).await;
            if let Ok(committed) = set(handle, key, number).await {
                return committed;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, attempt)
        .await
        .expect("committed in time")
}

fn get(handle: &Handle<Command>, key: &str) -> Option<u64> {
    handle.publisher().get(NUMBERS, "", key)
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_commands_are_durable_and_grouped_into_commits() {
    let database = database(&[SCHEMA]).await;
    let (first, handle) = start(&database, "first", Duration::from_secs(5)).await;
    leads(&handle).await;
    let asks = (0..200_u64).map(|number| {
        let handle = handle.clone();
        tokio::spawn(async move { set(&handle, &format!("k{number}"), number).await })
    });
    let mut revisions = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        let committed = ask.await.expect("no panic").expect("committed");
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
    leads(&handle).await;
    for number in 0..200 {
        assert_eq!(get(&handle, &format!("k{number}")), Some(number));
    }
    assert_eq!(handle.publisher().revision(), last);
    second.stop().await;
}

/// Makes a change like a request with this query and this `If-Revision`.
async fn asked(
    handle: &Handle<Command>,
    (query, only_at): (&str, Option<u64>),
    command: impl FnOnce(Reply<u64>) -> Command,
) -> Result<Committed<u64>, CommitError> {
    let mut request = Request::builder()
        .method("PUT")
        .uri(format!("/v1/numbers?{query}"));
    if let Some(revision) = only_at {
        request = request.header("if-revision", revision);
    }
    let ann = Arc::new(Principal::new("ann", [Scope::Operator]));
    let origin = Origin::from_request(&request.body(Body::empty()).expect("a request"), Some(ann));
    origin.scope(handle.ask(command)).await
}

fn to(number: u64) -> impl FnOnce(Reply<u64>) -> Command {
    move |reply| Command::Set("a".to_owned(), Some(number), reply)
}

/// `If-Revision` names the revision (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_change_is_made_only_at_the_revision_of_its_dry_run() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    let first = set(&handle, "a", 1).await.expect("committed").revision;
    let tried = asked(&handle, ("dry_run=true", None), to(2))
        .await
        .expect("tried");
    assert_eq!(
        (tried.revision, get(&handle, "a")),
        (first, Some(1)),
        "nothing was changed"
    );
    assert_eq!(handle.publisher().revision(), first);
    let done = asked(&handle, ("", Some(tried.revision)), to(2))
        .await
        .expect("done");
    assert_eq!((done.revision, get(&handle, "a")), (first + 1, Some(2)));
    let moved = asked(&handle, ("", Some(tried.revision)), to(3)).await;
    let Err(CommitError::Moved { asked: at, now }) = moved else {
        panic!("{moved:?}");
    };
    assert_eq!((at, now), (first, first + 1));
    let ahead = asked(&handle, ("", Some(first + 9)), to(3)).await;
    assert!(matches!(ahead, Err(CommitError::Moved { .. })));
    assert_eq!(get(&handle, "a"), Some(2));
    // A conditional dry run is refused for the same reason.
    let moved = asked(&handle, ("dry_run=true", Some(first)), to(3)).await;
    assert!(matches!(moved, Err(CommitError::Moved { .. })));
    committer.stop().await;
}

/// The others are refused as moved (A10).
#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_many_changes_at_the_same_revision_is_made() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    let at = set(&handle, "a", 0).await.expect("committed").revision;
    let asks = (1..=50).map(|number| {
        let handle = handle.clone();
        tokio::spawn(async move { asked(&handle, ("", Some(at)), to(number)).await.is_ok() })
    });
    let mut done = 0;
    for ask in asks.collect::<Vec<_>>() {
        done += u32::from(ask.await.expect("no panic"));
    }
    assert_eq!((done, handle.publisher().revision()), (1, at + 1));
    committer.stop().await;
}

/// The request had `dry_run=true` (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_dry_run_is_refused_and_not_applied() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    let request = Request::builder()
        .method("POST")
        .uri("/v1/numbers?dry_run=true");
    let origin = Origin::from_request(&request.body(Body::empty()).expect("a request"), None);
    let refused = origin.scope(handle.ask(Command::Panic)).await;
    assert!(matches!(refused, Err(CommitError::NoDryRun)), "{refused:?}");
    set(&handle, "a", 1).await.expect("it leads on");
    committer.stop().await;
}

/// Another replica has the lease (I7).
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_an_old_epoch_commits_nothing() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "old", Duration::from_secs(30)).await;
    leads(&handle).await;
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
    leads(&first).await;
    let (two, second) = start(&database, "two", lease).await;
    set(&first, "a", 1).await.expect("committed");
    assert!(matches!(
        set(&second, "b", 1).await,
        Err(CommitError::Standby)
    ));
    let epoch = first.publisher().leading().expect("leads");
    one.stop().await;
    leads(&second).await;
    assert!(second.publisher().leading().expect("leads") > epoch);
    assert_eq!(get(&second, "a"), Some(1));
    set(&second, "b", 2).await.expect("committed");
    two.stop().await;
}

/// Only a trusted reader is evidence (R9).
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_from_the_future_stops_all_writing() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    set(&handle, "a", 1).await.expect("committed");
    let publisher = handle.publisher();
    let future = Cursor {
        lineage: publisher.lineage(),
        revision: 1_000,
    }
    .to_string();
    // An untrusted reader is not believed and gets everything.
    let ask =
        |trusted| publisher.updates_since((NUMBERS, ""), Some(&future), Duration::ZERO, trusted);
    assert!(ask(false).await.expect("answered").0.full);
    assert!(matches!(ask(true).await, Err(CommitError::WentBack(_))));
    assert!(matches!(
        set(&handle, "b", 1).await,
        Err(CommitError::WentBack(_))
    ));
    committer.stop().await;
}

async fn stops(handle: &Handle<Command>) -> String {
    let mut terms = handle.publisher().terms();
    let found = terms.wait_for(|_| {
        let leading = handle.publisher().leading();
        matches!(leading, Err(CommitError::WentBack(_)))
    });
    let found = tokio::time::timeout(PATIENCE, found).await;
    drop(found.expect("noticed in time").expect("still there"));
    handle
        .publisher()
        .leading()
        .expect_err("it went back")
        .to_string()
}

async fn run(pool: &PgPool, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(pool).await;
    assert_eq!(done.expect(sql).rows_affected(), 1);
}

/// A process that wrote more than the database contains detects this, even without a write. No
/// restart and no other replica continues until the rows have another lineage (R9).
#[tokio::test(flavor = "multi_thread")]
async fn older_rows_stop_all_replicas_until_they_have_another_lineage() {
    let database = database(&[SCHEMA]).await;
    let lease = Duration::from_millis(500);
    for older in [
        "update writer set revision = revision - 1",
        "update writer set epoch = epoch - 1, expires_at = '-infinity'",
    ] {
        let (committer, handle) = start(&database, "one", lease).await;
        leads(&handle).await;
        set_at_last(&handle, "a", 1).await;
        set_at_last(&handle, "a", 2).await;
        let pool = pool(&database).await;
        run(&pool, older).await;
        let why = stops(&handle).await;
        assert!(why.starts_with(hayward_publication::WENT_BACK), "{why}");
        let (standby, second) = start(&database, "two", lease).await;
        assert_eq!(stops(&second).await, why);
        assert_eq!(get(&handle, "a"), Some(2), "reads still work");
        assert!(handle.publisher().readable().is_ok());
        let last = handle.read(Command::Last).await.expect("it was the leader");
        assert_eq!(last.value, Some(2), "the working set is unchanged");
        assert!(matches!(
            handle.ask(Command::Last).await,
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
        let (again, handle) = start(&database, "one", lease).await;
        assert_eq!(stops(&handle).await, why);
        assert!(set(&handle, "b", 1).await.is_err());
        assert_eq!(get(&handle, "b"), None);

        let decision = "update writer
                           set lineage = gen_random_uuid(), epoch = epoch + 1000, went_back = null";
        run(&pool, decision).await;
        let leader = async {
            tokio::select! {
                () = leads(&handle) => handle.clone(),
                () = leads(&second) => second.clone(),
            }
        };
        let leader = leader.await;
        set_at_last(&leader, "b", 2).await;
        standby.stop().await;
        again.stop().await;
    }
}

/// Earlier commits stay, and the service continues (F4).
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_command_fails_only_its_batch() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    set(&handle, "a", 1).await.expect("committed");
    let refused = handle.ask(Command::Panic).await;
    assert!(
        matches!(refused, Err(CommitError::Unavailable)),
        "{refused:?}"
    );
    set_at_last(&handle, "b", 2).await;
    assert_eq!((get(&handle, "a"), get(&handle, "b")), (Some(1), Some(2)));
    committer.stop().await;
}

/// Commands succeed again after a pause (F7).
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_database_loses_no_commit() {
    let server = TestServer::start().await;
    let database = server.database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(2)).await;
    leads(&handle).await;
    set(&handle, "a", 1).await.expect("committed");
    server.kill().await;
    server.resume().await;
    let committed = set_at_last(&handle, "b", 2).await;
    assert_eq!(get(&handle, "a"), Some(1));
    assert!(committed.revision >= 2);
    committer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_reader_is_woken_by_a_commit() {
    let database = database(&[SCHEMA]).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    let publisher = handle.publisher().clone();
    let (_, at) = publisher
        .updates_since((NUMBERS, ""), None, Duration::ZERO, true)
        .await
        .expect("everything");
    let waiting = tokio::spawn(async move {
        publisher
            .updates_since(
                (NUMBERS, ""),
                Some(&at.to_string()),
                Duration::from_secs(20),
                true,
            )
            .await
    });
    set(&handle, "a", 1).await.expect("committed");
    let (news, _) = waiting.await.expect("no panic").expect("answered");
    assert_eq!(news.changed.len(), 1);
    committer.stop().await;
}

/// The origin of a request with this name and scope.
fn origin(name: &str, scope: &str) -> Arc<Origin> {
    let request = Request::put("/v1/numbers/k").body(Body::empty());
    let scope = scope.parse::<Scope>().expect("a scope");
    let principal = Principal::new(name, [scope]);
    Origin::from_request(&request.expect("a request"), Some(Arc::new(principal)))
}

async fn set_as(handle: &Handle<Command>, origin: Arc<Origin>, key: &str) -> u64 {
    let set = origin.scope(set(handle, key, 1));
    set.await.expect("committed").revision
}

/// Revision, kind, actor, outcome and requests of each record.
async fn records(pool: &PgPool) -> Vec<(i64, String, String, String, i64)> {
    sqlx::query_as("select revision, kind, actor, outcome, requests from audit order by number")
        .fetch_all(pool)
        .await
        .expect("records")
}

/// The state and the chain end at the same revision (I19).
#[tokio::test(flavor = "multi_thread")]
async fn every_commit_has_a_record_and_the_chain_continues_after_a_kill() {
    let database = database(&[SCHEMA]).await;
    let pool = pool(&database).await;
    let (first, handle) = start(&database, "first", Duration::from_millis(400)).await;
    leads(&handle).await;
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
    let (now, all) = (handle.publisher().revision(), records(&pool).await);
    assert_eq!((all[0].1.as_str(), all[0].2.as_str()), ("operator", "ann"));
    let of_fleet = all.iter().filter(|it| it.1 == "fleet");
    assert_eq!(
        of_fleet.clone().map(|it| it.4).sum::<i64>(),
        20,
        "all agents, {all:?}"
    );
    assert!(of_fleet.count() < 20, "one record per commit");
    let mut revisions: Vec<_> = all.iter().map(|it| it.0).collect();
    revisions.dedup();
    let every: Vec<_> = (1..=i64::try_from(now).unwrap()).collect();
    assert_eq!(revisions, every, "each revision has a record");
    assert!(handle.auditor().check().await.holds());

    first.kill();
    let (second, handle) = start(&database, "second", Duration::from_secs(5)).await;
    leads(&handle).await;
    set_as(&handle, origin("ben", "submitter"), "after").await;
    let seen = handle.auditor().check().await;
    assert!(seen.holds() && seen.examined > 2, "{seen:?}");
    second.stop().await;
}

/// The role of the service can only add records (S24).
#[tokio::test(flavor = "multi_thread")]
async fn refusals_raise_no_revision_and_records_cannot_be_changed() {
    let database = database(&[SCHEMA]).await;
    let pool = pool(&database).await;
    let (committer, handle) = start(&database, "one", Duration::from_millis(400)).await;
    leads(&handle).await;
    let at = set_as(&handle, origin("ann", "operator"), "k").await;
    for _ in 0..3 {
        let request = origin("eve", "submitter").for_command();
        handle.auditor().refused(request, 403);
    }
    let refused = hayward_testkit::until("the refusals", async || {
        let all = records(&pool).await.into_iter();
        let refused: Vec<_> = all.filter(|it| it.3 == "refused").collect();
        (refused.iter().map(|it| it.4).sum::<i64>() == 3).then_some(refused)
    })
    .await;
    assert_eq!(
        (refused[0].2.as_str(), handle.publisher().revision()),
        ("eve", at)
    );
    set_as(&handle, origin("ann", "operator"), "other").await;
    assert!(handle.auditor().check().await.holds());

    for change in [
        "update audit set actor = 'x'",
        "delete from audit",
        "truncate audit",
    ] {
        let refused = sqlx::query(change).execute(&pool).await.expect_err("S25");
        assert_eq!(code(&refused).as_deref(), Some("42501"), "{change}");
    }
    let mut root = root(&database).await;
    sqlx::query("update publication.audit set actor = 'x' where number = 1")
        .execute(&mut root)
        .await
        .expect("altered");
    committer.stop().await;
    let (again, handle) = start(&database, "again", Duration::from_secs(5)).await;
    leads(&handle).await;
    let seen = handle.auditor().check().await;
    assert!(
        format!("{seen:?}").contains("record 1 is not what was written"),
        "{seen:?}"
    );
    again.stop().await;
}

/// The check starts at the anchor (I19).
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_off_chain_is_detected_and_a_pruned_one_continues() {
    let database = database(&[SCHEMA]).await;
    let pool = pool(&database).await;
    let (committer, handle) = start(&database, "one", Duration::from_secs(5)).await;
    leads(&handle).await;
    for number in 0..6 {
        set_as(&handle, origin("ann", "operator"), &format!("k{number}")).await;
    }
    let mut root = root(&database).await;
    // The rows get an old time. That breaks their hashes, but they are pruned nevertheless.
    sqlx::query("update publication.audit set at_ms = 0 where number <= 2")
        .execute(&mut root)
        .await
        .expect("altered");
    let pruned: i64 = sqlx::query_scalar("select prune_audit()")
        .fetch_one(&pool)
        .await
        .expect("pruned");
    let left = records(&pool).await;
    assert_eq!(
        (pruned, left.len()),
        (2, 4),
        "only records older than 400 days are pruned"
    );
    assert!(handle.auditor().check().await.holds(), "from the anchor on");
    let none: i64 = sqlx::query_scalar("select prune_audit()")
        .fetch_one(&pool)
        .await
        .expect("nothing to prune");
    assert_eq!(none, 0);

    sqlx::query("delete from publication.audit where number = 6")
        .execute(&mut root)
        .await
        .expect("deleted");
    let seen = handle.auditor().check().await;
    assert!(!seen.holds() && format!("{seen:?}").contains("the last records are gone"));
    committer.stop().await;
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

async fn root(database: &TestDatabase) -> PgConnection {
    let url = database.url("postgres");
    PgConnection::connect(&url).await.expect("a connection")
}
