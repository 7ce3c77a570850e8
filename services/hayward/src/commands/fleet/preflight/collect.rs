//! Reads the facts of `hayward preflight` from the database, the services and the disk. A source
//! that fails does not stop the other sources.

use std::time::Duration;

use hayward_postgres::contractions;
use hayward_service::health::Status;
use hayward_service::{Clock as _, SystemClock};
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, PgConnection};

use super::Arguments;
use super::facts::{Database, Fact, Facts, PendingMigration, Schema};
use crate::backup::admin_database::{AdminDatabase, server_version};
use crate::backup::manifest::find_newest;
use crate::backup::revision_histories::read_histories;
use crate::commands::operate::doctor::disk_space;
use crate::connection::{Role, Service, Session};
use crate::output::error_text;
use crate::prepare::{PUBLICATION, SERVICES};

/// Timeout of a status request. A slower service counts as down.
const TIMEOUT: Duration = Duration::from_secs(5);

pub async fn collect_facts(session: &Session, arguments: &Arguments) -> Facts {
    let now = SystemClock.now();
    let state = session.state();
    let backups = arguments.backups.clone();
    let backups = backups.unwrap_or_else(|| state.join("backups"));
    let [
        job_converter,
        rm_scheduler,
        container_manager,
        node_status,
        blocklist,
    ] = Service::ALL.map(|service| read_status(session, service));
    let services = async {
        tokio::join!(
            job_converter,
            rm_scheduler,
            container_manager,
            node_status,
            blocklist
        )
    };
    let (database, services) = tokio::join!(read_database(session, arguments), services);
    Facts {
        now,
        database: database.map_err(|error| first_error_line(&error)),
        services: <[_; 5]>::from(services).into(),
        disk: disk_space(state),
        backup: find_newest(&backups).map(|(_, manifest)| manifest.made_at),
        max_backup_age_hours: arguments.backup_hours,
    }
}

fn first_error_line(error: &anyhow::Error) -> String {
    let text = error_text::describe(error);
    text.lines().next().unwrap_or_default().to_owned()
}

async fn read_status(session: &Session, service: Service) -> (&'static str, Fact<Status>) {
    let response = async {
        let client = session.client(service, Role::Reader)?;
        anyhow::Ok(client.get_with_timeout("/v1/status", TIMEOUT).await?)
    };
    (
        service.name(),
        response.await.map_err(|error| first_error_line(&error)),
    )
}

async fn read_database(session: &Session, arguments: &Arguments) -> anyhow::Result<Database> {
    let admin = arguments.access.open(session.state()).await?;
    let database = read_database_facts(&admin).await;
    admin.close().await;
    database
}

/// Reads version, clock, permissions, histories and migrations of the database.
async fn read_database_facts(admin: &AdminDatabase) -> anyhow::Result<Database> {
    let mut connection = admin.connect().await?;
    let connection = &mut connection;
    let sent_at = SystemClock.now();
    let query = "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool,
                           (extract(epoch from clock_timestamp()) * 1000)::int8";
    let (read_only, server_clock_ms): (bool, i64) =
        sqlx::query_as(query).fetch_one(&mut *connection).await?;
    let mut database = Database {
        version: server_version(connection).await?,
        read_only,
        clock_ahead_ms: server_clock_ms - sent_at.unix_ms(),
        missing_permissions: missing_permissions(connection).await?,
        schemas: Vec::new(),
    };
    let histories = read_histories(connection).await?;
    for (_, schema) in SERVICES {
        let mut report = Schema {
            name: schema.name,
            exists: schema_exists(connection, schema.name).await?,
            ..Schema::default()
        };
        report.went_back = histories
            .get(schema.name)
            .and_then(|history| history.went_back.clone());
        let table = format!("_{}_migrations", PUBLICATION.name);
        compare_migrations(connection, &mut report, &table, PUBLICATION.migrator).await?;
        compare_migrations(connection, &mut report, "_migrations", schema.migrator).await?;
        database.schemas.push(report);
    }
    Ok(database)
}

async fn schema_exists(connection: &mut PgConnection, schema: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select to_regnamespace($1) is not null")
        .bind(schema)
        .fetch_one(connection)
        .await
}

/// One row of the query in [`missing_permissions`]: may create roles, may create schemas, number of
/// missing roles, number of missing schemas, schemas whose owner role excludes the administrator,
/// schemas with another owner.
type PermissionsRow = (bool, bool, i64, i64, Vec<String>, Vec<String>);

/// Returns the missing permissions that would make `hayward prepare` fail.
async fn missing_permissions(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let names: Vec<&str> = SERVICES.iter().map(|(_, schema)| schema.name).collect();
    let query = "
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
    let (
        may_create_roles,
        may_create_schemas,
        missing_roles,
        missing_schemas,
        without_membership,
        with_other_owner,
    ): PermissionsRow = sqlx::query_as(query)
        .bind(names)
        .fetch_one(connection)
        .await?;
    let mut missing_permissions = Vec::new();
    if missing_roles > 0 && !may_create_roles {
        missing_permissions.push("may not create the roles that are missing".to_owned());
    }
    if missing_schemas > 0 && !may_create_schemas {
        missing_permissions.push("may not create the schemas that are missing".to_owned());
    }
    for name in without_membership.iter().filter(|_| !may_create_roles) {
        missing_permissions.push(format!("is no member of {name}_owner"));
    }
    for name in with_other_owner {
        missing_permissions.push(format!(
            "finds the schema {name} in other hands than {name}_owner's"
        ));
    }
    Ok(missing_permissions)
}

/// Compares the applied migrations with those of this version.
async fn compare_migrations(
    connection: &mut PgConnection,
    schema: &mut Schema,
    table: &str,
    migrator: &Migrator,
) -> Result<(), sqlx::Error> {
    let name = format!("{}.{table}", schema.name);
    let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(&name)
        .fetch_one(&mut *connection)
        .await?;
    // Version, checksum and success of each migration in the database.
    let mut applied: Vec<(i64, Vec<u8>, bool)> = Vec::new();
    if exists {
        let query = format!("select version, checksum, success from {name}");
        let query = sqlx::query_as(AssertSqlSafe(query));
        applied = query.fetch_all(connection).await?;
    }
    for migration in migrator.iter() {
        let version = migration.version;
        match applied.iter().find(|(applied, ..)| *applied == version) {
            None => schema.pending.push(PendingMigration {
                version,
                description: migration.description.to_string(),
                contractions: contractions(migration.sql.as_str()),
            }),
            Some((_, _, false)) => schema.broken.push(version),
            Some((_, checksum, true)) if **checksum != *migration.checksum => {
                schema.changed.push(version);
            }
            Some(_) => {}
        }
    }
    let is_known = |version: i64| migrator.iter().any(|it| it.version == version);
    schema.unknown += applied.iter().filter(|(it, ..)| !is_known(*it)).count();
    Ok(())
}
