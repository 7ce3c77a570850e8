//! The database role of each service can change rows of its own tables and nothing else. The tests
//! read the list of tables from the database, so they cover new tables too (S25).

use hayward::prepare::SERVICES;
use hayward_testkit::{TestDatabase, TestServer};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// Postgres code of a refusal for missing rights.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

async fn start_database() -> (TestServer, TestDatabase) {
    let server = TestServer::start().await;
    let database = server.database(&SERVICES.map(|(_, schema)| schema)).await;
    (server, database)
}

async fn connect(database: &TestDatabase, role: &str) -> PgConnection {
    let url = database.url(role);
    PgConnection::connect(&url).await.expect("a connection")
}

/// Runs a statement and rolls it back.
async fn execute_and_roll_back(connection: &mut PgConnection, sql: &str) -> Result<(), String> {
    let mut tx = connection.begin().await.expect("a transaction");
    let result = tx.execute(AssertSqlSafe(sql.to_owned())).await;
    tx.rollback().await.expect("rolled back");
    result
        .map(drop)
        .map_err(|error| sql_state(&error).unwrap_or_else(|| error.to_string()))
}

fn sql_state(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Returns the statements that are not refused for missing rights.
async fn permitted_statements(connection: &mut PgConnection, statements: &[String]) -> Vec<String> {
    let mut permitted = Vec::new();
    for sql in statements {
        let outcome = execute_and_roll_back(connection, sql).await;
        if outcome.as_ref().err().map(String::as_str) != Some(INSUFFICIENT_PRIVILEGE) {
            permitted.push(format!("{sql}: {outcome:?}"));
        }
    }
    permitted
}

struct Table {
    schema: String,
    name: String,
}

async fn read_tables(database: &TestDatabase) -> Vec<Table> {
    let mut admin = connect(database, "postgres").await;
    let schemas = SERVICES.map(|(_, schema)| schema.name.to_owned()).to_vec();
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select schemaname::text, tablename::text from pg_tables where schemaname = any($1)",
    )
    .bind(schemas)
    .fetch_all(&mut admin)
    .await
    .expect("tables");
    let tables = rows.into_iter();
    tables
        .map(|(schema, name)| Table { schema, name })
        .collect()
}

/// Returns statements that a role must not run on a table of another service.
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

/// Returns statements that a role must not run on a table of its own service.
fn statements_on_own_schema(table: &Table) -> Vec<String> {
    let name = format!("{}.{}", table.schema, table.name);
    let mut statements = vec![
        format!("truncate {name}"),
        format!("alter table {name} add column evil int"),
        format!("alter table {name} disable trigger all"),
        format!("alter table {name} owner to current_user"),
        format!("drop table {name}"),
        format!("create index on {name} ((1))"),
    ];
    if table.name == "audit" || table.name == "audit_anchor" || table.name.ends_with("_migrations")
    {
        statements.push(format!("delete from {name}"));
    }
    if table.name == "audit" || table.name == "audit_anchor" {
        statements.push(format!("update {name} set number = 0"));
    }
    if table.name == "audit_anchor" {
        statements.push(format!(
            "insert into {name} (number, revision, hash) values (1, 1, '')"
        ));
    }
    statements
}

/// Returns statements that a role must not run anywhere.
fn statements_on_the_server(role: &str) -> Vec<String> {
    let mut statements: Vec<String> = [
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
    statements.push(format!("alter role {role} superuser"));
    statements.push(format!("create table {role}.evil (n int)"));
    statements.push(format!("set role {role}_owner"));
    for (_, schema) in SERVICES.iter().filter(|(_, schema)| schema.name != role) {
        let other = schema.name;
        statements.push(format!("set role {other}"));
        statements.push(format!("set role {other}_owner"));
        statements.push(format!("grant {other} to {role}"));
        statements.push(format!("alter role {other} password 'x'"));
        statements.push(format!("select {other}.prune_audit()"));
    }
    statements
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_role_can_change_only_its_own_rows() {
    let (server, database) = start_database().await;
    let tables = read_tables(&database).await;
    assert!(tables.len() > 40, "{}", tables.len());
    for (_, schema) in SERVICES {
        let role = schema.name;
        let mut connection = connect(&database, role).await;
        let (own, others): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.schema == role);
        let mut statements = statements_on_the_server(role);
        statements.extend(others.into_iter().flat_map(statements_on_neighbours));
        statements.extend(own.into_iter().flat_map(statements_on_own_schema));
        let permitted = permitted_statements(&mut connection, &statements).await;
        assert_eq!(permitted, [""; 0], "as {role}");
        // A role may read and change rows of its own tables. Without this check, a role without any
        // rights would pass.
        for sql in [
            "select * from audit",
            "select * from audit_anchor",
            "select prune_audit()",
            "update writer set holder = 'me'",
            "delete from entry",
        ] {
            assert_eq!(
                execute_and_roll_back(&mut connection, sql).await,
                Ok(()),
                "{sql} as {role}"
            );
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_have_no_extra_rights_and_bounded_timeouts() {
    let (server, database) = start_database().await;
    let mut admin = connect(&database, "postgres").await;
    for (_, schema) in SERVICES {
        let roles: Vec<(String, bool)> = sqlx::query_as(
            "select rolname::text, rolcanlogin from pg_roles where rolname in ($1, $1 || '_owner')
                and not (rolsuper or rolcreaterole or rolcreatedb or rolreplication
                    or rolbypassrls)
                and not exists (select from pg_auth_members where member = pg_roles.oid)
             order by rolname",
        )
        .bind(schema.name)
        .fetch_all(&mut admin)
        .await
        .expect("roles");
        let owner = format!("{}_owner", schema.name);
        assert_eq!(roles, [(schema.name.to_owned(), true), (owner, false)]);
        // The connection has no settings of a service, like one of psql.
        let mut connection = connect(&database, schema.name).await;
        let timeouts: Vec<String> = sqlx::query_scalar(
            "select current_setting(name) from unnest(array['statement_timeout', 'lock_timeout',
                'idle_in_transaction_session_timeout']) as name",
        )
        .fetch_all(&mut connection)
        .await
        .expect("settings");
        assert_eq!(timeouts, ["20s", "5s", "10s"], "{}", schema.name);
    }
    server.stop().await;
}
