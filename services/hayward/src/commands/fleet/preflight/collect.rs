//! Reads facts from the database, the services and the disk. A source that fails does not stop the
//! others.

use std::time::Duration;

use hayward_postgres::contractions;
use hayward_service::health::Status;
use hayward_service::{Clock as _, SystemClock};
use hayward_vocabulary::Timestamp;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, PgConnection};

use super::Arguments;
use super::facts::{Answer, Database, Facts, Pending, Schema};
use crate::backup::database::{Admin, version};
use crate::backup::history::histories;
use crate::backup::manifest::newest;
use crate::commands::operate::doctor::disk_space;
use crate::connection::{Role, Service, Session};
use crate::output::fault;
use crate::prepare::{PUBLICATION, SERVICES};

const PATIENCE: Duration = Duration::from_secs(5);

pub async fn all(session: &Session, arguments: &Arguments) -> Facts {
    let at = SystemClock.now();
    let state = session.state();
    let backups = arguments.backups.clone();
    let backups = backups.unwrap_or_else(|| state.join("backups"));
    let [jobs, rounds, containers, nodes, blocks] =
        Service::ALL.map(|service| status(session, service));
    let services = async { tokio::join!(jobs, rounds, containers, nodes, blocks) };
    let (database, services) = tokio::join!(database(session, arguments), services);
    Facts {
        at,
        database: database.map_err(|error| error_text(&error)),
        services: <[_; 5]>::from(services).into(),
        disk: disk_space(state),
        backup: newest(&backups).map(|(_, manifest)| manifest.made_at),
        backup_hours: arguments.backup_hours,
    }
}

fn error_text(error: &anyhow::Error) -> String {
    let text = fault::describe(error);
    text.lines().next().unwrap_or_default().to_owned()
}

async fn status(session: &Session, service: Service) -> (&'static str, Answer<Status>) {
    let answer = async {
        let client = session.client(service, Role::Reader)?;
        anyhow::Ok(client.get_with_timeout("/v1/status", PATIENCE).await?)
    };
    (
        service.name(),
        answer.await.map_err(|error| error_text(&error)),
    )
}

async fn database(session: &Session, arguments: &Arguments) -> anyhow::Result<Database> {
    let admin = arguments.access.open(session.state()).await?;
    let found = read_facts(&admin).await;
    admin.close().await;
    found
}

async fn read_facts(admin: &Admin) -> anyhow::Result<Database> {
    let mut connection = admin.connect().await?;
    let connection = &mut connection;
    let sent_at = SystemClock.now();
    let query = "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool,
                           (extract(epoch from clock_timestamp()) * 1000)::int8";
    let (read_only, clock): (bool, i64) = sqlx::query_as(query).fetch_one(&mut *connection).await?;
    let mut found = Database {
        version: version(connection).await?,
        read_only,
        ahead_ms: ahead(clock, sent_at),
        lacks: lacks(connection).await?,
        schemas: Vec::new(),
    };
    let histories = histories(connection).await?;
    for (_, schema) in SERVICES {
        let mut it = Schema {
            name: schema.name,
            is_there: is_there(connection, schema.name).await?,
            ..Schema::default()
        };
        it.went_back = histories
            .get(schema.name)
            .and_then(|history| history.went_back.clone());
        let shared = format!("_{}_migrations", PUBLICATION.name);
        compare(connection, &mut it, &shared, PUBLICATION.migrator).await?;
        compare(connection, &mut it, "_migrations", schema.migrator).await?;
        found.schemas.push(it);
    }
    Ok(found)
}

fn ahead(clock_ms: i64, sent_at: Timestamp) -> i64 {
    clock_ms - sent_at.unix_ms()
}

async fn is_there(connection: &mut PgConnection, schema: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select to_regnamespace($1) is not null")
        .bind(schema)
        .fetch_one(connection)
        .await
}

/// One row of the query in [`lacks`]: may create roles, may create schemas, number of missing
/// roles, number of missing schemas, schemas whose owner role excludes the administrator, schemas
/// with another owner.
type Rights = (bool, bool, i64, i64, Vec<String>, Vec<String>);

/// Returns the missing permissions that would make `hayward prepare` fail.
async fn lacks(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let names: Vec<&str> = SERVICES.iter().map(|(_, schema)| schema.name).collect();
    let rights = "
        select (select rolsuper or rolcreaterole from pg_roles where rolname = current_user),
               has_database_privilege(current_database(), 'create'),
               (select count(*) from unnest($1::text[]) as it (name)
                 where to_regrole(name) is null or to_regrole(name || '_owner') is null),
               (select count(*) from unnest($1::text[]) as it (name)
                 where to_regnamespace(name) is null),
               (select coalesce(array_agg(name), '{}') from unnest($1::text[]) as it (name)
                 where to_regrole(name || '_owner') is not null
                   and not pg_has_role(current_user, name || '_owner', 'member')),
               (select coalesce(array_agg(nspname::text), '{}') from pg_namespace
                 where nspname = any($1)
                   and pg_get_userbyid(nspowner) <> nspname || '_owner')";
    let (roles, schemas, no_role, no_schema, strangers, foreign): Rights = sqlx::query_as(rights)
        .bind(names)
        .fetch_one(connection)
        .await?;
    let mut lacks = Vec::new();
    if no_role > 0 && !roles {
        lacks.push("may not create the roles that are missing".to_owned());
    }
    if no_schema > 0 && !schemas {
        lacks.push("may not create the schemas that are missing".to_owned());
    }
    for name in strangers.iter().filter(|_| !roles) {
        lacks.push(format!("is no member of {name}_owner"));
    }
    for name in foreign {
        lacks.push(format!(
            "finds the schema {name} in other hands than {name}_owner's"
        ));
    }
    Ok(lacks)
}

/// Compares the applied migrations with those of this version.
async fn compare(
    connection: &mut PgConnection,
    schema: &mut Schema,
    table: &str,
    migrator: &Migrator,
) -> Result<(), sqlx::Error> {
    let name = format!("{}.{table}", schema.name);
    let there: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(&name)
        .fetch_one(&mut *connection)
        .await?;
    let mut applied: Vec<(i64, Vec<u8>, bool)> = Vec::new();
    if there {
        let rows = format!("select version, checksum, success from {name}");
        let rows = sqlx::query_as(AssertSqlSafe(rows));
        applied = rows.fetch_all(connection).await?;
    }
    for migration in migrator.iter() {
        let version = migration.version;
        match applied.iter().find(|(applied, ..)| *applied == version) {
            None => schema.pending.push(Pending {
                version,
                description: migration.description.to_string(),
                contractions: contractions(migration.sql.as_str()),
            }),
            Some((_, _, false)) => schema.broken.push(version),
            Some((_, sum, true)) if **sum != *migration.checksum => schema.changed.push(version),
            Some(_) => {}
        }
    }
    let known = |version: i64| migrator.iter().any(|it| it.version == version);
    schema.unknown += applied.iter().filter(|(it, ..)| !known(*it)).count();
    Ok(())
}
