//! `hayward backup`: saves the database and the keys in one folder. The rows of all services are of
//! the same instant. The backup is verified before it gets its name. The fleet may run meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hayward_service::{Clock as _, SystemClock};
use hayward_vocabulary::Timestamp;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::backup::admin_database::{AdminAccess, AdminDatabase, server_version};
use crate::backup::manifest::Manifest;
use crate::backup::postgres_tool::Tool;
use crate::backup::restore_dump::check_dump;
use crate::backup::revision_histories::{History, read_histories};
use crate::backup::{DUMP_FILE, KEYS_FOLDER, copy_keys, create_private_folder};
use crate::output::format::format_bytes;
use crate::output::{Output, note, print};
use crate::prepare::SERVICES;
use crate::state_directory;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Folder to create. Default: a folder in `backups` of the state directory, named by the
    /// current time.
    #[arg(value_name = "DIR")]
    pub to: Option<PathBuf>,
    #[command(flatten)]
    pub access: AdminAccess,
    /// Leave out the keys, because they are saved elsewhere. Without the keys no token is valid
    /// after a restore on another machine.
    #[arg(long)]
    pub without_keys: bool,
}

pub async fn run(out: Output, state: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<()> {
    let state = state.unwrap_or_else(state_directory::default_dir);
    let now = SystemClock.now();
    let to = arguments
        .to
        .clone()
        .unwrap_or_else(|| default_folder(&state, now));
    if to.exists() {
        bail!(
            "{} is there already: name a folder that is not",
            to.display()
        );
    }
    let keys = keys_to_copy(&arguments, &state)?;
    let admin = arguments.access.open(&state).await?;
    let result = create_backup(&admin, keys.as_deref(), &to, now).await;
    admin.close().await;
    let manifest = result?;
    if out.json {
        return out.json(&json!({ "backup": to, "manifest": manifest }));
    }
    for (schema, history) in &manifest.histories {
        if let Some(reason) = &history.went_back {
            note(&format!(
                "the backup has the current state of {schema}, which is read-only: {reason}"
            ));
        }
    }
    print(&summary_text(&to, &manifest))
}

/// Returns the folder of the backup, for example `backups/2026-11-22T221500.123Z`.
fn default_folder(state: &Path, now: Timestamp) -> PathBuf {
    state.join("backups").join(now.to_string().replace(':', ""))
}

/// Returns the keys directory to copy. Returns `None` if keys are excluded.
fn keys_to_copy(arguments: &Arguments, state: &Path) -> anyhow::Result<Option<PathBuf>> {
    let keys = arguments.access.keys(state);
    if arguments.without_keys {
        return Ok(None);
    }
    if !keys.join("issuer.pem").is_file() {
        bail!(
            "there are no keys in {}: name their folder with --keys, or say --without-keys and \
             keep them elsewhere",
            keys.display()
        );
    }
    Ok(Some(keys))
}

/// Makes the backup in a temporary folder, and renames the folder when the backup is complete.
async fn create_backup(
    admin: &AdminDatabase,
    keys: Option<&Path>,
    to: &Path,
    now: Timestamp,
) -> anyhow::Result<Manifest> {
    let mut name = to.file_name().context("a folder has a name")?.to_owned();
    name.push(".partial");
    let partial = to.with_file_name(name);
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    create_private_folder(&partial)?;
    let result = write_backup(admin, keys, &partial, now).await;
    let result = result.and_then(|manifest| {
        fs::rename(&partial, to).with_context(|| format!("cannot make {}", to.display()))?;
        Ok(manifest)
    });
    if result.is_err() {
        // The incomplete folder is useless. A failure to remove it must not hide the first error.
        drop(fs::remove_dir_all(&partial));
    }
    result
}

/// Writes the dump, the keys and the manifest into the folder.
async fn write_backup(
    admin: &AdminDatabase,
    keys: Option<&Path>,
    dir: &Path,
    now: Timestamp,
) -> anyhow::Result<Manifest> {
    let mut connection = admin.connect().await?;
    let server = server_version(&mut connection).await?;
    let (pg_dump, pg_restore) = (
        Tool::find("pg_dump").await?,
        Tool::find("pg_restore").await?,
    );
    pg_dump.check_version(server)?;
    let dump = dir.join(DUMP_FILE);
    let histories = dump_schemas(&mut connection, &pg_dump, &admin.url, &dump).await?;
    connection.close().await?;
    check_dump(&pg_restore, &dump).await?;
    fs::set_permissions(&dump, fs::Permissions::from_mode(0o600))?;
    fs::File::open(&dump)?.sync_all()?;
    if let Some(keys) = keys {
        copy_keys(keys, &dir.join(KEYS_FOLDER))?;
    }
    let manifest = Manifest::for_dump(&dump, now, server, keys.is_some(), histories)?;
    manifest.write(dir)?;
    Ok(manifest)
}

/// Dumps the five schemas. Returns their histories at the same instant, because `pg_dump` reads the
/// snapshot of the transaction that reads the histories.
async fn dump_schemas(
    connection: &mut PgConnection,
    pg_dump: &Tool,
    url: &str,
    dump: &Path,
) -> anyhow::Result<BTreeMap<String, History>> {
    let mut tx = connection
        .begin_with("begin isolation level repeatable read read only")
        .await?;
    let snapshot: String = sqlx::query_scalar("select pg_export_snapshot()")
        .fetch_one(&mut *tx)
        .await?;
    let histories = read_histories(&mut tx).await?;
    let missing = SERVICES
        .iter()
        .find(|(_, it)| !histories.contains_key(it.name));
    if let Some((service, schema)) = missing {
        bail!(
            "the database has no schema {} of {service}: it is not the database of a fleet",
            schema.name
        );
    }
    let mut command = pg_dump.command_for(url);
    command.arg("--format=custom").arg("--no-password");
    command.arg(format!("--snapshot={snapshot}"));
    for (_, schema) in SERVICES {
        command.arg(format!("--schema={}", schema.name));
    }
    command.arg("--file").arg(dump);
    pg_dump.run(command).await?;
    tx.rollback().await?;
    Ok(histories)
}

fn summary_text(to: &Path, manifest: &Manifest) -> String {
    let revisions: Vec<String> = manifest
        .histories
        .iter()
        .map(|(schema, history)| format!("{schema} {}", history.revision))
        .collect();
    let keys = if manifest.has_keys {
        "with the keys: whoever reads it may do everything"
    } else {
        "without the keys: keep those elsewhere"
    };
    format!(
        "{}\n{} of rows, {keys}; revisions: {}\nto put it back: hayward restore {}\n",
        to.display(),
        format_bytes(manifest.dump_bytes),
        revisions.join(", "),
        to.display(),
    )
}
