//! Prepares a database, from an empty server to migrated schemas. The preparation can be repeated.
//!
//! Each schema has two roles: the owner role, which applies migrations, and the runner role, with
//! which the service connects.
//!
//! Invariants: a runner role can access the rows of its own schema only. Tables belong to the owner
//! role, so a service cannot alter its tables. Repeated and concurrent runs end in the same state
//! as a single run.
//!
//! Migrations shared by several services are applied in each of their schemas. A separate table
//! records them, so that both lists of migrations can start at one.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use crate::connect_error::{ConnectError, NO_SUCH_DATABASE, sql_state};

/// Creates the roles and the schema of one service.
const BOOTSTRAP: &str = include_str!("bootstrap.sql");
/// Grants the runner role access to the rows, after the migrations.
const RIGHTS: &str = include_str!("rights.sql");
/// SQLSTATEs of a database that a concurrent run has created: `duplicate_database` from the check,
/// `unique_violation` from the index.
const DATABASE_EXISTS: [&str; 2] = ["42P04", "23505"];
/// SQLSTATEs of a concurrent change of the same role: `internal_error` ("tuple concurrently
/// updated"), `unique_violation`, `duplicate_object`, `serialization_failure` and
/// `deadlock_detected`.
const CONCURRENT_ROLE_CHANGE: [&str; 5] = ["XX000", "23505", "42710", "40001", "40P01"];

/// Advisory lock that serializes preparation within one database. The number is arbitrary.
const PREPARE_LOCK_KEY: i64 = 0x6861_7977_6172_6401;
/// Attempts to create roles. Roles belong to the server, so concurrent runs for two databases may
/// change the same row.
const ROLE_ATTEMPTS: u32 = 10;

/// The schema of one service.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'a> {
    /// Name of the schema and of its runner role. The owner role is `<name>_owner`.
    pub name: &'a str,
    /// Migrations of the service, recorded in `_migrations`.
    pub migrator: &'a Migrator,
    /// Migrations from shared crates. They run first.
    pub shared: &'a [SharedMigrations<'a>],
}

/// Migrations that several schemas share.
#[derive(Clone, Copy, Debug)]
pub struct SharedMigrations<'a> {
    /// Name of the list. Its migrations are recorded in the table `_<name>_migrations`.
    pub name: &'a str,
    pub migrator: &'a Migrator,
}

/// Why a database could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("the admin address of the database cannot be used")]
    Address(#[source] sqlx::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot create database {name}")]
    Create {
        name: String,
        #[source]
        source: sqlx::Error,
    },
    #[error("cannot remove database {name}")]
    Drop {
        name: String,
        #[source]
        source: sqlx::Error,
    },
    #[error("cannot make the roles and the schema {schema}")]
    Roles {
        schema: String,
        #[source]
        source: sqlx::Error,
    },
    #[error("cannot apply the migrations of {schema} recorded in {table}")]
    Migrate {
        schema: String,
        table: String,
        #[source]
        source: MigrateError,
    },
}

/// Prepares the database of `admin_url`, and creates it if it is missing.
///
/// The admin must be able to create roles and, if needed, databases. It need not be a superuser.
/// `passwords` contains the passwords of runner roles. A role without an entry keeps its password.
/// On a private server such a role has no password.
pub async fn prepare(
    admin_url: &str,
    schemas: &[Schema<'_>],
    passwords: &BTreeMap<String, String>,
) -> Result<(), PrepareError> {
    let options = PgConnectOptions::from_str(admin_url)
        .map_err(PrepareError::Address)?
        .application_name("hayward prepare");
    let mut connection = open_or_create(admin_url, &options).await?;
    sqlx::query("select pg_advisory_lock($1)")
        .bind(PREPARE_LOCK_KEY)
        .execute(&mut connection)
        .await
        .map_err(PrepareError::Address)?;
    for schema in schemas {
        let password = passwords.get(schema.name).map_or("", String::as_str);
        create_roles(&mut connection, schema.name, password).await?;
        migrate(&mut connection, schema).await?;
    }
    // The end of the connection releases the lock, here and at every early return.
    connection.close().await.map_err(PrepareError::Address)
}

/// Derives the address for a role from that of the admin, with the same server and database.
pub fn role_url(
    admin_url: &str,
    role: &str,
    password: Option<&str>,
) -> Result<String, sqlx::Error> {
    let mut options = PgConnectOptions::from_str(admin_url)?.username(role);
    if let Some(password) = password {
        options = options.password(password);
    }
    Ok(to_url(&options))
}

/// Writes the options as a URL. The driver writes a file as `file: /x` and would then search for a
/// file of that name.
fn to_url(options: &PgConnectOptions) -> String {
    let mut url = options.to_url_lossy();
    let pairs = url.query_pairs().into_owned().map(|(name, value)| {
        let file = value.strip_prefix("file: ").map(ToOwned::to_owned);
        (name, file.unwrap_or(value))
    });
    let pairs: Vec<(String, String)> = pairs.collect();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    url.to_string()
}

/// Returns the newest version of the tables in these migrations.
pub fn newest_version(migrator: &Migrator) -> Option<u64> {
    let versions = migrator.iter().map(|migration| migration.version);
    versions
        .max()
        .and_then(|version| u64::try_from(version).ok())
}

/// Creates the database of `admin_url` as a copy of `template`, which must have no connections. An
/// existing database is not changed.
pub async fn create_database(admin_url: &str, template: &str) -> Result<(), PrepareError> {
    let options = PgConnectOptions::from_str(admin_url).map_err(PrepareError::Address)?;
    create(&options, template).await
}

/// Removes the database of `admin_url` if it exists. Ends its connections first.
pub async fn drop_database(admin_url: &str) -> Result<(), PrepareError> {
    let options = PgConnectOptions::from_str(admin_url).map_err(PrepareError::Address)?;
    let name = database_name(&options).to_owned();
    let to_error = |source| PrepareError::Drop {
        name: name.clone(),
        source,
    };
    let mut maintenance = connect_maintenance(&options).await.map_err(to_error)?;
    let drop = format!(
        "drop database if exists {} with (force)",
        quote_identifier(&name)
    );
    let result = maintenance.execute(AssertSqlSafe(drop)).await;
    result.map_err(to_error)?;
    maintenance.close().await.map_err(to_error)
}

async fn open_or_create(
    url: &str,
    options: &PgConnectOptions,
) -> Result<PgConnection, PrepareError> {
    match options.connect().await {
        Err(error) if sql_state(&error).as_deref() == Some(NO_SUCH_DATABASE) => {}
        other => return other.map_err(|error| ConnectError::new(url, error).into()),
    }
    // `template0` accepts no connections. A connection to a template would prevent the copy.
    create(options, "template0").await?;
    let result = options.connect().await;
    result.map_err(|error| ConnectError::new(url, error).into())
}

async fn create(options: &PgConnectOptions, template: &str) -> Result<(), PrepareError> {
    let name = database_name(options);
    let to_error = |source| PrepareError::Create {
        name: name.to_owned(),
        source,
    };
    let mut maintenance = connect_maintenance(options).await.map_err(to_error)?;
    let create = format!(
        "create database {} template {} encoding 'UTF8'",
        quote_identifier(name),
        quote_identifier(template)
    );
    match maintenance.execute(AssertSqlSafe(create)).await {
        // A concurrent run has created the database.
        Err(error) if has_sql_state(&error, &DATABASE_EXISTS) => {}
        Err(error) => return Err(to_error(error)),
        Ok(_) => tracing::debug!(database = name, "database created"),
    }
    maintenance.close().await.map_err(to_error)
}

/// Returns the name of the database. Postgres assumes the name of the user if the address has none.
fn database_name(options: &PgConnectOptions) -> &str {
    let database = options.get_database();
    database.unwrap_or_else(|| options.get_username())
}

/// Opens a connection for creating and removing databases. It uses none of our databases.
async fn connect_maintenance(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    options.clone().database("postgres").connect().await
}

fn has_sql_state(error: &sqlx::Error, codes: &[&str]) -> bool {
    sql_state(error).is_some_and(|code| codes.contains(&code.as_str()))
}

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Creates the roles and the schema. Repeats the attempt after a conflict with a concurrent run.
async fn create_roles(
    connection: &mut PgConnection,
    schema: &str,
    password: &str,
) -> Result<(), PrepareError> {
    let to_error = |source| PrepareError::Roles {
        schema: schema.to_owned(),
        source,
    };
    let mut attempt = 1;
    loop {
        match run_bootstrap(connection, schema, password).await {
            // A concurrent run for another database of this server has changed the same role. Its
            // change is the one that we want, so the next attempt finds it.
            Err(error)
                if attempt < ROLE_ATTEMPTS && has_sql_state(&error, &CONCURRENT_ROLE_CHANGE) =>
            {
                attempt += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other.map_err(to_error),
        }
    }
}

/// Runs [`BOOTSTRAP`], which reads its parameters from settings of the session.
async fn run_bootstrap(
    connection: &mut PgConnection,
    schema: &str,
    password: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "select set_config('hayward.schema', $1, false), set_config('hayward.password', $2, false)",
    )
    .bind(schema)
    .bind(password)
    .execute(&mut *connection)
    .await?;
    connection.execute(sqlx::raw_sql(BOOTSTRAP)).await?;
    sqlx::query("select set_config('hayward.password', '', false)")
        .execute(connection)
        .await?;
    Ok(())
}

/// Applies the migrations as the owner, so that the owner owns every table.
async fn migrate(connection: &mut PgConnection, schema: &Schema<'_>) -> Result<(), PrepareError> {
    let to_roles_error = |source| PrepareError::Roles {
        schema: schema.name.to_owned(),
        source,
    };
    sqlx::query(
        "select set_config('role', $1 || '_owner', false),
                set_config('search_path', quote_ident($1), false)",
    )
    .bind(schema.name)
    .execute(&mut *connection)
    .await
    .map_err(to_roles_error)?;
    for shared in schema.shared {
        let table = format!("_{}_migrations", shared.name);
        apply_migrations(connection, schema.name, table, shared.migrator).await?;
    }
    apply_migrations(
        connection,
        schema.name,
        "_migrations".to_owned(),
        schema.migrator,
    )
    .await?;
    connection
        .execute(sqlx::raw_sql(RIGHTS))
        .await
        .map_err(to_roles_error)?;
    connection
        .execute("reset role; reset search_path")
        .await
        .map_err(to_roles_error)?;
    Ok(())
}

async fn apply_migrations(
    connection: &mut PgConnection,
    schema: &str,
    table: String,
    migrator: &Migrator,
) -> Result<(), PrepareError> {
    let mut migrator = Migrator::with_migrations(migrator.iter().cloned().collect());
    migrator.dangerous_set_table_name(table.clone());
    // An older version ignores newer migrations, so that a rollback is possible (A17).
    migrator.set_ignore_missing(true);
    migrator
        .run_direct(None, connection, false)
        .await
        .map_err(|source| PrepareError::Migrate {
            schema: schema.to_owned(),
            table,
            source,
        })
}
