//! A role has access to its own schema only, even after repeated and concurrent preparation.
#![expect(
    clippy::unwrap_used,
    reason = "a test that fails here has found something"
)]

use std::collections::BTreeMap;

use hayward_postgres::{
    Embedded, PrepareError, Schema, Settings, SharedMigrations, connect, prepare,
};
use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};

// The migrations of `one` and of `two` each create a table `thing`. The shared migrations `both`
// create a table `heard` in each schema.
static ONE: Migrator = sqlx::migrate!("tests/migrations/one");
static TWO: Migrator = sqlx::migrate!("tests/migrations/two");
static BOTH: Migrator = sqlx::migrate!("tests/migrations/both");

const SHARED: &[SharedMigrations<'static>] = &[SharedMigrations {
    name: "both",
    migrator: &BOTH,
}];
const SCHEMAS: &[Schema<'static>] = &[
    Schema {
        name: "one",
        migrator: &ONE,
        shared: SHARED,
    },
    Schema {
        name: "two",
        migrator: &TWO,
        shared: SHARED,
    },
];

/// SQLSTATE of a refusal because of missing privileges.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

async fn start_server() -> (Embedded, tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::Builder::new()
        .prefix("hayward-pg-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let settings = Settings {
        durable: false,
        ..Settings::new(home.path().join("pg"))
    };
    (Embedded::start(settings).await.unwrap(), home)
}

async fn open(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// Runs a statement that must fail. Returns the SQLSTATE of the refusal.
async fn refused_code(connection: &mut PgConnection, sql: &'static str) -> String {
    let error = sqlx::raw_sql(sql).execute(connection).await.expect_err(sql);
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.unwrap_or_default().into_owned()
}

async fn execute(connection: &mut PgConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.expect(sql);
}

#[tokio::test]
async fn a_runner_accesses_its_own_rows_only() {
    let (server, _home) = start_server().await;
    prepare(&server.url("fleet"), SCHEMAS, &BTreeMap::new())
        .await
        .unwrap();
    let mut one = open(&server.role_url("one", "fleet")).await;
    execute(
        &mut one,
        "insert into thing (word) values ('mine'); update thing set word = 'still mine';
         select word from one.thing; delete from thing; insert into heard values ('two')",
    )
    .await;
    for sql in [
        "select word from two.thing",
        "insert into two.thing (word) values ('theirs')",
        "update two.thing set word = ''",
        "delete from two.heard",
        "select 1 from two._migrations",
        // Only the owner may change its tables.
        "create table extra (n int)",
        "create table public.extra (n int)",
        "alter table thing add column n int",
        "drop table thing",
        "truncate thing",
        "delete from _migrations",
        "update _both_migrations set success = false",
        "set role one_owner",
        "set role two",
        "create schema three",
        "create role three",
    ] {
        assert_eq!(
            refused_code(&mut one, sql).await,
            INSUFFICIENT_PRIVILEGE,
            "{sql}"
        );
    }
    // The search path contains only the schema of the role, so the same name means another table.
    let mut two = open(&server.role_url("two", "fleet")).await;
    let rows: i64 = sqlx::query_scalar("select count(*) from thing")
        .fetch_one(&mut two)
        .await
        .unwrap();
    assert_eq!(rows, 0);
    server.stop().await;
}

#[tokio::test]
async fn repeated_and_concurrent_preparation_changes_nothing() {
    let (server, _home) = start_server().await;
    let (fleet, other) = (server.url("fleet"), server.url("other"));
    let none = BTreeMap::new();
    let (all, first, second, other_database) = tokio::join!(
        prepare(&fleet, SCHEMAS, &none),
        prepare(&fleet, &SCHEMAS[..1], &none),
        prepare(&fleet, &SCHEMAS[1..], &none),
        prepare(&other, SCHEMAS, &none),
    );
    for result in [all, first, second, other_database] {
        result.unwrap();
    }
    let mut one = open(&server.role_url("one", "fleet")).await;
    execute(&mut one, "insert into thing (word) values ('stored')").await;
    prepare(&fleet, SCHEMAS, &none).await.unwrap();
    let rows: i64 = sqlx::query_scalar("select count(*) from thing")
        .fetch_one(&mut one)
        .await
        .unwrap();
    assert_eq!(rows, 1);
    server.stop().await;
}

#[tokio::test]
async fn an_admin_without_superuser_rights_is_enough() {
    let (server, _home) = start_server().await;
    let mut superuser = open(&server.url("postgres")).await;
    execute(
        &mut superuser,
        "create role clerk login createdb createrole",
    )
    .await;
    let admin = server.role_url("clerk", "fleet");
    let passwords = BTreeMap::from([("one".to_owned(), "it's a \"secret\"".to_owned())]);
    prepare(&admin, SCHEMAS, &passwords).await.unwrap();
    prepare(&admin, SCHEMAS, &passwords).await.unwrap();
    let roles_with_password: Vec<String> = sqlx::query_scalar(
        "select rolname::text from pg_authid where rolname in ('one', 'two') \
         and rolpassword is not null",
    )
    .fetch_all(&mut superuser)
    .await
    .unwrap();
    assert_eq!(roles_with_password, ["one"]);
    let mut two = open(&server.role_url("two", "fleet")).await;
    assert_eq!(
        refused_code(&mut two, "select word from one.thing").await,
        INSUFFICIENT_PRIVILEGE
    );
    server.stop().await;
}

#[tokio::test]
async fn an_edited_migration_is_refused() {
    let (server, _home) = start_server().await;
    let admin = server.url("fleet");
    prepare(&admin, &SCHEMAS[..1], &BTreeMap::new())
        .await
        .unwrap();
    // The migration 1 of `both` differs from the applied migration 1 of `one`.
    let edited = [Schema {
        migrator: &BOTH,
        ..SCHEMAS[0]
    }];
    let error = prepare(&admin, &edited, &BTreeMap::new())
        .await
        .unwrap_err();
    let PrepareError::Migrate { schema, table, .. } = error else {
        panic!("unexpected: {error}");
    };
    assert_eq!((schema.as_str(), table.as_str()), ("one", "_migrations"));
    server.stop().await;
}

#[tokio::test]
async fn a_pool_has_timeouts_and_a_name() {
    let (server, _home) = start_server().await;
    prepare(&server.url("fleet"), SCHEMAS, &BTreeMap::new())
        .await
        .unwrap();
    let pool = connect(&server.role_url("one", "fleet"), 2).await.unwrap();
    let name: String = sqlx::query_scalar("show application_name")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(name, "hayward one");
    // A timeout of 0 means that there is none.
    let unlimited: i64 = sqlx::query_scalar(
        "select count(*) from pg_settings where setting = '0' and name in
         ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(unlimited, 0);
    server.stop().await;
}

/// A migration that fails halfway changes nothing, and its corrected version can be applied (F48).
#[tokio::test]
async fn an_aborted_migration_leaves_a_usable_system() {
    let (server, home) = start_server().await;
    let admin = server.url("halves");
    let folder = home.path().join("migrations");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("0001_whole.sql"),
        "create table whole (id int);",
    )
    .unwrap();
    let second = folder.join("0002_half.sql");
    let second_sql = "alter table whole add column more int; create table half (id int);";
    std::fs::write(&second, format!("{second_sql} select 1 / 0;")).unwrap();
    let prepare_halves = async || {
        let migrator = Migrator::new(folder.as_path()).await.unwrap();
        let schemas = [Schema {
            name: "halves",
            migrator: &migrator,
            shared: SHARED,
        }];
        prepare(&admin, &schemas, &BTreeMap::new()).await
    };
    let result = prepare_halves().await;
    assert!(
        matches!(result, Err(PrepareError::Migrate { .. })),
        "{result:?}"
    );
    let mut owner = open(&admin).await;
    let count = "select (select count(*) from halves._migrations)
                      + (select count(*) from pg_class where relname = 'half')
                      + (select count(*) from pg_attribute
                          where attrelid = 'halves.whole'::regclass and attname = 'more')";
    let count: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut owner)
        .await
        .unwrap();
    assert_eq!(
        count, 1,
        "the first migration is recorded, and nothing of the second remains"
    );
    // Without the second migration, the previous version of the service can use its table.
    std::fs::remove_file(&second).unwrap();
    prepare_halves().await.unwrap();
    let mut runner = open(&server.role_url("halves", "halves")).await;
    let insert = sqlx::raw_sql("insert into whole (id) values (1)");
    insert.execute(&mut runner).await.unwrap();

    std::fs::write(&second, second_sql).unwrap();
    prepare_halves().await.unwrap();
    let rows: i64 = sqlx::query_scalar("select count(*) from whole where more is null")
        .fetch_one(&mut runner)
        .await
        .unwrap();
    assert_eq!(rows, 1);
    drop((owner, runner));
    server.stop().await;
}
