//! Which Postgres a fleet uses (decision D10): the one it is given, or a private one of its own.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use hayward_postgres::{Embedded, Settings};
use hayward_service::Keys;

use crate::prepare;

/// The name of the database in a private server.
const NAME: &str = "hayward";

/// A prepared database, and the server when it is ours to end.
pub struct Database {
    /// Address by role.
    pub urls: BTreeMap<String, String>,
    server: Option<Embedded>,
}

impl Database {
    /// Uses `given` when there is one, else runs a private server in `home`.
    pub async fn open(given: Option<&str>, home: &Path, keys: &Keys) -> anyhow::Result<Self> {
        if let Some(url) = given {
            let urls = prepare::database(keys, url, false)
                .await
                .context("cannot prepare the database that DATABASE_URL names")?;
            return Ok(Self { urls, server: None });
        }
        let server = Embedded::start(Settings::new(home)).await?;
        let urls = prepare::database(keys, &server.url(NAME), true).await?;
        Ok(Self {
            urls,
            server: Some(server),
        })
    }

    pub fn describe(&self) -> String {
        match &self.server {
            Some(server) => format!("private Postgres (process {})", server.pid()),
            None => "the Postgres that DATABASE_URL names".to_owned(),
        }
    }

    /// The process of the private server.
    pub fn pid(&self) -> Option<i32> {
        self.server.as_ref().map(Embedded::pid)
    }

    pub async fn stop(self) {
        if let Some(server) = self.server {
            server.stop().await;
        }
    }
}
