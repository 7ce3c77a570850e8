//! `hayward restore`: restores a backup, or accepts the content of a database that went back in
//! time. (R9)

mod accept_loss;
mod effects;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hayward_service::Keys;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::backup::admin_database::{
    AdminAccess, AdminDatabase, server_version, setting_names, start_private,
};
use crate::backup::copy_keys;
use crate::backup::manifest::RestoreSource;
use crate::backup::restore_dump::{Target, Tools};
use crate::backup::revision_histories::{
    History, allow_writes_statement, read_histories, read_writers,
};
use crate::output::{Output, note, print};
use crate::prepare::{self, SERVICES};
use crate::state_directory::{self, State};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// A folder that `hayward backup` made, or a file of `pg_dump -Fc`.
    #[arg(
        value_name = "BACKUP",
        required_unless_present = "accept_loss",
        conflicts_with = "accept_loss"
    )]
    pub from: Option<PathBuf>,
    #[command(flatten)]
    pub access: AdminAccess,
    /// Check everything and show what would be lost; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Accept that the database went back in time and the fleet is read-only. The fleet continues
    /// with the content of the database. Later writes are lost, and processes started for them end.
    #[arg(long)]
    pub accept_loss: bool,
}

pub async fn run(out: Output, state: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<()> {
    let state = state.unwrap_or_else(state_directory::default_dir);
    let Some(from) = &arguments.from else {
        return accept_loss::run(out, &state, &arguments).await;
    };
    let source = RestoreSource::open(from)?;
    // The lock prevents the start of a fleet in this state directory.
    let _lock = match arguments.access.explicit_url()? {
        Some(_) => None,
        None => Some(State::open(&state).context("a restore is for a fleet that is stopped")?),
    };
    let keys = arguments.access.keys(&state);
    let tools = Tools::find().await?;
    tools.check_dump(&source.dump).await?;
    let restore = Restore {
        source: &source,
        tools: &tools,
        keys: &keys,
        dry_run: arguments.dry_run,
    };
    let admin = match arguments.access.find(&state).await? {
        // This machine has no database yet. Only a dry run can do without one.
        None if arguments.dry_run => None,
        None => Some(start_private(&state).await?),
        found => found,
    };
    let result = restore.run(admin.as_ref()).await;
    if let Some(admin) = admin {
        admin.close().await;
    }
    let (before, after) = result?;
    let effects = effects::RestoreEffects {
        source: &source,
        before: &before,
    };
    if out.json {
        return out.json(&json!({
            "done": !arguments.dry_run,
            "before": before,
            "backup": source.manifest,
            "after": after,
        }));
    }
    print(&effects.render(&out.renderer(), arguments.dry_run))
}

/// Revision history of each service, by schema.
type Histories = BTreeMap<String, History>;

/// One restore of a backup.
struct Restore<'a> {
    source: &'a RestoreSource,
    tools: &'a Tools,
    keys: &'a Path,
    dry_run: bool,
}

impl Restore<'_> {
    /// Returns the histories before and after the restore. A dry run returns no histories after the
    /// restore. Without a server only a dry run is possible.
    async fn run(
        &self,
        admin: Option<&AdminDatabase>,
    ) -> anyhow::Result<(Histories, Option<Histories>)> {
        let before = if let Some(admin) = admin {
            self.histories_before(admin).await?
        } else {
            hayward_postgres::binaries()?;
            Histories::new()
        };
        let keys = keys_for(self.source, self.keys, self.dry_run)?;
        let Some(admin) = admin.filter(|_| !self.dry_run) else {
            return Ok((before, None));
        };
        let keys = Keys::open(keys)?;
        // A dump has no roles, and the administrator must be a member of the owner roles. A missing
        // database is created.
        prepare::set_up_database(&keys, &admin.url, admin.is_private).await?;
        let after = self.restore_and_migrate(admin, &keys, &before).await?;
        verify(self.source, &before, &after)?;
        Ok((before, Some(after)))
    }

    /// Reads the current histories. They are empty if the database does not exist.
    async fn histories_before(&self, admin: &AdminDatabase) -> anyhow::Result<Histories> {
        let Some(mut connection) = admin.connect_if_exists().await? else {
            return Ok(Histories::new());
        };
        self.tools
            .check_versions(server_version(&mut connection).await?)?;
        if let Some(reason) = read_writers(&mut connection).await?.refusal() {
            bail!("nothing was changed: {reason}");
        }
        let before = read_histories(&mut connection).await?;
        connection.close().await?;
        Ok(before)
    }

    /// Restores the dump, migrates it to this version, and returns the new histories.
    async fn restore_and_migrate(
        &self,
        admin: &AdminDatabase,
        keys: &Keys,
        before: &Histories,
    ) -> anyhow::Result<Histories> {
        let mut connection = admin.connect().await?;
        self.tools
            .check_versions(server_version(&mut connection).await?)?;
        let target = Target {
            url: &admin.url,
            histories_before: before,
            settings: &setting_names(&mut connection).await?,
        };
        self.tools.restore(&self.source.dump, target).await?;
        // This call migrates an older dump to this version, and grants the roles their permissions
        // again.
        let migrated = prepare::set_up_database(keys, &admin.url, admin.is_private).await;
        migrated.context(
            "the rows are back, but this version cannot migrate them: use the version that made \
             the backup, or a newer one",
        )?;
        for (_, schema) in SERVICES {
            connection
                .execute(AssertSqlSafe(allow_writes_statement(schema.name)))
                .await?;
        }
        let after = read_histories(&mut connection).await?;
        connection.close().await?;
        Ok(after)
    }
}

/// Returns the directory of keys to use. Existing keys stay, because tokens were signed with them.
/// Missing keys come from the backup.
fn keys_for<'a>(source: &RestoreSource, keys: &'a Path, dry_run: bool) -> anyhow::Result<&'a Path> {
    let issuer = |dir: &Path| std::fs::read(dir.join("issuer.pub.pem")).ok();
    let Some(current) = issuer(keys) else {
        match &source.keys {
            Some(from_backup) if !dry_run => copy_keys(from_backup, keys)?,
            Some(_) => {}
            None => bail!(
                "there are no keys in {}, and none in the backup: say where they are with --keys",
                keys.display()
            ),
        }
        return Ok(keys);
    };
    let from_backup = source.keys.as_deref().and_then(issuer);
    if from_backup.is_some_and(|from_backup| from_backup != current) {
        note(&format!(
            "the keys in {} are not those of the backup, and stay: old tokens are not good here",
            keys.display()
        ));
    }
    Ok(keys)
}

/// Checks that the restored rows are those of the backup, with a new history.
fn verify(source: &RestoreSource, before: &Histories, after: &Histories) -> anyhow::Result<()> {
    for (_, schema) in SERVICES {
        let name = schema.name;
        let restored = after
            .get(name)
            .with_context(|| format!("{name} is missing"))?;
        let saved = source
            .manifest
            .as_ref()
            .and_then(|it| it.histories.get(name));
        if let Some(saved) = saved
            && (saved.revision != restored.revision || saved.lineage == restored.lineage)
        {
            bail!("{name} is not what was saved: {restored:?}, and {saved:?} was");
        }
        if before
            .get(name)
            .is_some_and(|before| before.epoch >= restored.epoch)
        {
            bail!("{name} has an epoch of a previous history: {restored:?}");
        }
    }
    Ok(())
}

/// Executes statements on several schemas in one transaction.
async fn execute_in_one_transaction(
    connection: &mut PgConnection,
    statements: &[String],
) -> anyhow::Result<()> {
    let mut tx = connection.begin().await?;
    for statement in statements {
        tx.execute(AssertSqlSafe(statement.clone())).await?;
    }
    Ok(tx.commit().await?)
}
