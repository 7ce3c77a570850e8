//! The role of each service can change its own rows in the database and no others. Every table of
//! every schema is checked, so that a new table is covered too (S25).

use hayward::prepare::SERVICES;
use hayward_testkit::{TestDatabase, TestServer};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// Postgres code of a refusal for missing rights.
const FORBIDDEN: &str = "42501";

async fn fleet() -> (TestServer, TestDatabase) {
    let server = TestServer::start().await;
    let database = server.database(&SERVICES.map(|(_, schema)| schema)).await;
    (server, database)
}

async fn open(database: &TestDatabase, role: &str) -> PgConnection {
    let url = database.url(role);
    PgConnection::connect(&url).await.expect("a connection")
}

/// Runs a statement and rolls it back.
async fn attempt(connection: &mut PgConnection, sql: &str) -> Result<(), String> {
    let mut tx = connection.begin().await.expect("a transaction");
    let done = tx.execute(AssertSqlSafe(sql.to_owned())).await;
    tx.rollback().await.expect("taken back");
    done.map(drop)
        .map_err(|error| code(&error).unwrap_or_else(|| error.to_string()))
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Returns the statements that are not refused for missing rights.
async fn let_through(connection: &mut PgConnection, all: &[String]) -> Vec<String> {
    let mut through = Vec::new();
    for sql in all {
        let outcome = attempt(connection, sql).await;
        if outcome.as_ref().err().map(String::as_str) != Some(FORBIDDEN) {
            through.push(format!("{sql}: {outcome:?}"));
        }
    }
    through
}

struct Table {
    schema: String,
    name: String,
}

async fn tables(database: &TestDatabase) -> Vec<Table> {
    let mut root = open(database, "postgres").await;
    let schemas = SERVICES.map(|(_, schema)| schema.name.to_owned()).to_vec();
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select schemaname::text, tablename::text from pg_tables where schemaname = any($1)",
    )
    .bind(schemas)
    .fetch_all(&mut root)
    .await
    .expect("tables");
    let tables = rows.into_iter();
    tables
        .map(|(schema, name)| Table { schema, name })
        .collect()
}

fn statements_on_neighbours(table: &Table) -> Vec<String> {
    let name = format!("{}.{}", table.schema, table.name);
    vec![
        format!("select * from {name} limit 1"),
        format!("insert into {name} default values"),
        format!("delete from {name}"),
        format!("lock table {name} in access share mode"),
        format!("truncate {name}"),
        format!("alter table {name} add column evil int"),
        format!("drop table {name}"),
    ]
}

fn statements_on_own_schema(table: &Table) -> Vec<String> {
    let name = format!("{}.{}", table.schema, table.name);
    let mut all = vec![
        format!("truncate {name}"),
        format!("alter table {name} add column evil int"),
        format!("alter table {name} disable trigger all"),
        format!("alter table {name} owner to current_user"),
        format!("drop table {name}"),
        format!("create index on {name} ((1))"),
    ];
    if table.name == "audit" || table.name == "audit_anchor" || table.name.ends_with("_migrations")
    {
        all.push(format!("delete from {name}"));
    }
    if table.name == "audit" || table.name == "audit_anchor" {
        all.push(format!("update {name} set number = 0"));
    }
    if table.name == "audit_anchor" {
        all.push(format!(
            "insert into {name} (number, revision, hash) values (1, 1, '')"
        ));
    }
    all
}

fn statements_on_the_server(me: &str) -> Vec<String> {
    let mut all: Vec<String> = [
        "set role postgres",
        "set session authorization postgres",
        "create role evil",
        "create schema evil",
        "create table public.evil (n int)",
        "select pg_read_file('/etc/passwd')",
        "copy (select 1) to program 'true'",
        "select * from pg_authid",
    ]
    .map(str::to_owned)
    .into();
    all.push(format!("alter role {me} superuser"));
    all.push(format!("create table {me}.evil (n int)"));
    all.push(format!("set role {me}_owner"));
    for (_, schema) in SERVICES.iter().filter(|(_, schema)| schema.name != me) {
        let other = schema.name;
        all.push(format!("set role {other}"));
        all.push(format!("set role {other}_owner"));
        all.push(format!("grant {other} to {me}"));
        all.push(format!("alter role {other} password 'x'"));
        all.push(format!("select {other}.prune_audit()"));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_reaches_its_rows_and_nothing_else() {
    let (server, database) = fleet().await;
    let tables = tables(&database).await;
    assert!(tables.len() > 40, "{}", tables.len());
    for (_, schema) in SERVICES {
        let me = schema.name;
        let mut connection = open(&database, me).await;
        let (own, others): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.schema == me);
        let mut all = statements_on_the_server(me);
        all.extend(others.into_iter().flat_map(statements_on_neighbours));
        all.extend(own.into_iter().flat_map(statements_on_own_schema));
        let through = let_through(&mut connection, &all).await;
        assert_eq!(through, [""; 0], "as {me}");
        // This is a counter-check: a role may change its own tables.
        for sql in [
            "select * from audit",
            "select * from audit_anchor",
            "select prune_audit()",
            "update writer set holder = 'me'",
            "delete from entry",
        ] {
            assert_eq!(attempt(&mut connection, sql).await, Ok(()), "{sql} as {me}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_have_no_extra_rights_and_bounded_timeouts() {
    let (server, database) = fleet().await;
    let mut root = open(&database, "postgres").await;
    for (_, schema) in SERVICES {
        let plain: Vec<(String, bool)> = sqlx::query_as(
            "select rolname::text, rolcanlogin from pg_roles where rolname in ($1, $1 || '_owner')
                and not (rolsuper or rolcreaterole or rolcreatedb or rolreplication
                    or rolbypassrls)
                and not exists (select from pg_auth_members where member = pg_roles.oid)
             order by rolname",
        )
        .bind(schema.name)
        .fetch_all(&mut root)
        .await
        .expect("roles");
        let owner = format!("{}_owner", schema.name);
        assert_eq!(plain, [(schema.name.to_owned(), true), (owner, false)]);
        // The connection has no settings of a service, like one of psql.
        let mut bare = open(&database, schema.name).await;
        let waits: Vec<String> = sqlx::query_scalar(
            "select current_setting(name) from unnest(array['statement_timeout', 'lock_timeout',
                'idle_in_transaction_session_timeout']) as name",
        )
        .fetch_all(&mut bare)
        .await
        .expect("settings");
        assert_eq!(waits, ["20s", "5s", "10s"], "{}", schema.name);
    }
    server.stop().await;
}
