//! The Postgres of a fleet: an external database, or a private server. (D10)

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use hayward_postgres::{Embedded, Settings};
use hayward_publication::WENT_BACK;
use hayward_service::Keys;
use sqlx::Connection as _;

use crate::backup::revision_histories::read_histories;
use crate::prepare;

/// Checks that the services may write. After a database went back in time, none of them would
/// become leader. (R9)
async fn check_writable(url: &str) -> anyhow::Result<()> {
    let mut connection = hayward_postgres::connect_one(url).await?;
    let histories = read_histories(&mut connection).await?;
    connection.close().await?;
    let blocked_schema = histories
        .into_iter()
        .find_map(|(schema, it)| Some((schema, it.went_back?)));
    if let Some((schema, reason)) = blocked_schema {
        bail!(
            "{WENT_BACK}, and nothing is written in {schema}: {reason}; put a newer backup back \
             (`hayward restore BACKUP`), or go on with what is left (`hayward restore \
             --accept-loss`)"
        );
    }
    Ok(())
}

/// A prepared database, and its server if this process runs it.
pub struct Database {
    /// Database address by role. Each service has a role.
    pub urls: BTreeMap<String, String>,
    /// The private server. `None` for an external database.
    server: Option<Embedded>,
}

impl Database {
    /// Opens the database at `url`. If it is `None`, runs a private server in `dir`.
    pub async fn open(url: Option<&str>, dir: &Path, keys: &Keys) -> anyhow::Result<Self> {
        if let Some(url) = url {
            let urls = prepare::set_up_database(keys, url, false)
                .await
                .context("cannot prepare the database that DATABASE_URL names")?;
            check_writable(url).await?;
            return Ok(Self { urls, server: None });
        }
        let server = Embedded::start(Settings::new(dir)).await?;
        let urls =
            prepare::set_up_database(keys, &server.url(prepare::PRIVATE_DATABASE), true).await?;
        check_writable(&server.url(prepare::PRIVATE_DATABASE)).await?;
        Ok(Self {
            urls,
            server: Some(server),
        })
    }

    /// Describes the database for the greeting of `hayward up`.
    pub fn describe(&self) -> String {
        match &self.server {
            Some(server) => format!("private Postgres (process {})", server.pid()),
            None => "the Postgres that DATABASE_URL names".to_owned(),
        }
    }

    /// Returns the process id of the private server. Returns `None` for an external database.
    pub fn pid(&self) -> Option<i32> {
        self.server.as_ref().map(Embedded::pid)
    }

    pub async fn stop(self) {
        if let Some(server) = self.server {
            server.stop().await;
        }
    }
}
