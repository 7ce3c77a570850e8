//! Connects as administrator to the database that is backed up or restored. A flag or variable
//! names the database. Without one, it is the private Postgres server of the state directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hayward_postgres::{Embedded, Settings};
use hayward_service::config::insecure_modes::unencrypted_database_warning;
use sqlx::PgConnection;

use crate::output::note;
use crate::prepare::PRIVATE_DATABASE;

/// Address of the database, and the keys of its fleet.
#[derive(Debug, Clone, clap::Args)]
pub struct AdminAccess {
    /// Address of the database as its administrator. Default: `DATABASE_URL`, else the private
    /// Postgres of the state directory.
    #[arg(
        long,
        env = "HAYWARD_ADMIN_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub admin_url: Option<String>,
    /// File with that address. Its password then appears neither in the arguments nor in the
    /// environment.
    #[arg(
        long,
        env = "HAYWARD_ADMIN_URL_FILE",
        value_name = "FILE",
        conflicts_with = "admin_url"
    )]
    pub admin_url_file: Option<PathBuf>,
    /// The keys directory. Default: that of the state directory.
    #[arg(long, env = "HAYWARD_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

/// A database that can be reached with administrator rights.
pub struct AdminDatabase {
    pub url: String,
    /// True for the private server of the state directory.
    pub is_private: bool,
    /// The private server. `None` for a named database.
    server: Option<Embedded>,
}

impl AdminAccess {
    /// Returns the keys directory.
    pub fn keys(&self, state: &Path) -> PathBuf {
        self.keys.clone().unwrap_or_else(|| state.join("keys"))
    }

    /// Returns the address from a flag or variable. Returns `None` if neither is set.
    ///
    /// # Errors
    /// When the file with the address cannot be read.
    pub fn explicit_url(&self) -> anyhow::Result<Option<String>> {
        if let Some(file) = &self.admin_url_file {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            return Ok(Some(text.trim().to_owned()));
        }
        let variable = || std::env::var("DATABASE_URL").ok();
        let explicit_url = self.admin_url.clone().or_else(variable);
        Ok(explicit_url.filter(|url| !url.is_empty()))
    }

    /// Finds the database like [`find`](Self::find). Fails if there is none.
    pub async fn open(&self, state: &Path) -> anyhow::Result<AdminDatabase> {
        let admin = self.find(state).await?;
        admin.with_context(|| {
            format!(
                "there is no private Postgres in {}: say which state directory with --state, or \
                 which database with --admin-url",
                state.display()
            )
        })
    }

    /// Finds the database. Starts the private server unless it already runs. Returns `None` if the
    /// state directory has no private server yet.
    pub async fn find(&self, state: &Path) -> anyhow::Result<Option<AdminDatabase>> {
        if let Some(url) = self.explicit_url()? {
            if let Some(warning) = unencrypted_database_warning(&url) {
                note(&format!("the connection is not encrypted: {warning}"));
            }
            return Ok(Some(AdminDatabase {
                url,
                is_private: false,
                server: None,
            }));
        }
        if !Settings::new(state.join("pg")).is_initialized() {
            return Ok(None);
        }
        start_private(state).await.map(Some)
    }
}

/// Starts the private server of this state directory. Creates the server if it is missing.
pub async fn start_private(state: &Path) -> anyhow::Result<AdminDatabase> {
    let server = Embedded::start(Settings::new(state.join("pg"))).await?;
    Ok(AdminDatabase {
        url: server.url(PRIVATE_DATABASE),
        is_private: true,
        server: Some(server),
    })
}

impl AdminDatabase {
    pub async fn connect(&self) -> anyhow::Result<PgConnection> {
        let connection = hayward_postgres::connect_one(&self.url).await;
        connection.context("cannot reach the database as its administrator")
    }

    /// Connects to the database. Returns `None` if the server has no such database.
    pub async fn connect_if_exists(&self) -> anyhow::Result<Option<PgConnection>> {
        let connection = hayward_postgres::connect_if_exists(&self.url).await;
        connection.context("cannot reach the database as its administrator")
    }

    /// Stops the private server if this process started it.
    pub async fn close(self) {
        if let Some(server) = self.server {
            server.stop().await;
        }
    }
}

/// Returns the major version of the server.
pub async fn server_version(connection: &mut PgConnection) -> anyhow::Result<u32> {
    let query = "select current_setting('server_version_num')::int4";
    // The number of version 15.8 is 150008.
    let number: i32 = sqlx::query_scalar(query).fetch_one(connection).await?;
    Ok(u32::try_from(number).unwrap_or(0) / 10_000)
}

/// Returns the names of the settings that the server knows.
pub async fn setting_names(connection: &mut PgConnection) -> anyhow::Result<BTreeSet<String>> {
    let names: Vec<String> = sqlx::query_scalar("select name from pg_settings")
        .fetch_all(connection)
        .await?;
    Ok(names.into_iter().collect())
}
