//! The database with which `sqlx` checks our queries at compile time.
//!
//! `serve HOME` runs a private server until it is stopped. `apply HOME ROOT` creates one schema per
//! service from the migrations under ROOT, and prints the addresses as lines for a shell. It
//! creates a schema with an edited migration again. It leaves other schemas unchanged, so that
//! concurrent builds are not disturbed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use hayward_postgres::{Embedded, PrepareError, Schema, Settings, SharedMigrations, prepare};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

const DATABASE: &str = "hayward";
const SERVICES: [&str; 5] = [
    "node-status",
    "blocklist",
    "job-converter",
    "rm-scheduler",
    "container-manager",
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve", home] => serve(Settings::new(*home)).await,
        ["apply", home, root] => apply(Settings::new(*home), Path::new(root)).await,
        _ => bail!("usage: sqlx_database serve HOME | apply HOME ROOT"),
    }
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let server = Embedded::start(settings).await?;
    // Another process already runs the server of this folder.
    if !server.is_owner() {
        return Ok(());
    }
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = server.wait_until_ended() => bail!("the server ended by itself"),
    }
    server.stop().await;
    Ok(())
}

async fn apply(settings: Settings, root: &Path) -> anyhow::Result<()> {
    let server = Embedded::attach(settings).await?;
    let admin = server.url(DATABASE);
    let publication = read_migrations(&root.join("shared/publication/migrations")).await?;
    let shared = [SharedMigrations {
        name: "publication",
        migrator: &publication,
    }];
    let mut failures = Vec::new();
    // The additional schema checks the queries of the crate `publication` itself.
    for name in SERVICES.iter().chain(&["publication"]) {
        let role = name.replace('-', "_");
        let migrator = match *name {
            "publication" => Migrator::with_migrations(Vec::new()),
            service => {
                read_migrations(&root.join("services").join(service).join("migrations")).await?
            }
        };
        let schema = Schema {
            name: &role,
            migrator: &migrator,
            shared: &shared,
        };
        // One broken migration does not prevent the check of the others.
        if let Err(error) = prepare_schema(&admin, &schema).await {
            failures.push(format!("{error:#}"));
        }
        println!(
            "export {}_SQLX_URL='{}'",
            role.to_uppercase(),
            server.role_url(&role, DATABASE)
        );
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// Reads the migrations in a folder. A missing folder means no migrations.
async fn read_migrations(folder: &Path) -> anyhow::Result<Migrator> {
    if !folder.is_dir() {
        return Ok(Migrator::with_migrations(Vec::new()));
    }
    Migrator::new(folder)
        .await
        .with_context(|| format!("cannot read {}", folder.display()))
}

/// Prepares a schema. Creates it again if one of its migrations was edited.
async fn prepare_schema(admin: &str, schema: &Schema<'_>) -> anyhow::Result<()> {
    let schemas = std::slice::from_ref(schema);
    match prepare(admin, schemas, &BTreeMap::new()).await {
        // A migration was edited after it had been applied. The schema is created again below.
        Err(PrepareError::Migrate {
            source: MigrateError::VersionMismatch(_) | MigrateError::VersionMissing(_),
            ..
        }) => {}
        other => return other.with_context(|| format!("cannot prepare {}", schema.name)),
    }
    let mut connection = PgConnection::connect(admin).await?;
    let drop_schema = format!("drop schema if exists \"{}\" cascade", schema.name);
    connection.execute(AssertSqlSafe(drop_schema)).await?;
    connection.close().await?;
    prepare(admin, schemas, &BTreeMap::new())
        .await
        .with_context(|| format!("cannot prepare {} again", schema.name))
}
