//! The private Postgres of the fleet, which faults stop, kill and start again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hayward::prepare::SERVICES;
use hayward_postgres::{Embedded, Settings, prepare};

const DATABASE: &str = "hayward";

pub struct Postgres {
    home: PathBuf,
    running: Option<Embedded>,
}

impl Postgres {
    pub async fn start(home: PathBuf) -> anyhow::Result<Self> {
        let mut postgres = Self {
            home,
            running: None,
        };
        postgres.ensure_running().await?;
        let schemas = SERVICES.map(|(_, schema)| schema);
        prepare(
            &postgres.url()?,
            &schemas,
            &std::collections::BTreeMap::new(),
        )
        .await?;
        Ok(postgres)
    }

    fn url(&self) -> anyhow::Result<String> {
        let running = self.running.as_ref().context("Postgres is down")?;
        Ok(running.url(DATABASE))
    }

    /// Returns the folder of the socket.
    pub fn socket_folder(&self) -> PathBuf {
        self.home.join("run")
    }

    /// Returns the database address for a role through this folder.
    pub fn role_url(role: &str, folder: &Path) -> String {
        format!(
            "postgres://{role}@localhost/{DATABASE}?host={}&sslmode=disable",
            folder.display()
        )
    }

    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    pub async fn stop(&mut self) {
        if let Some(server) = self.running.take() {
            server.stop().await;
        }
    }

    pub async fn kill(&mut self) {
        if let Some(server) = self.running.take() {
            server.kill().await;
        }
    }

    /// Starts Postgres unless it runs. Postgres may also have ended by itself, for example because
    /// of a full disk.
    pub async fn ensure_running(&mut self) -> anyhow::Result<()> {
        if let Some(server) = &self.running
            && !has_ended(server).await
        {
            return Ok(());
        }
        self.running = None;
        let settings = Settings {
            // Faults kill only processes, so a commit need not survive a crash of the system.
            durable: false,
            max_connections: 400,
            ..Settings::new(&self.home)
        };
        self.running = Some(Embedded::start(settings).await?);
        Ok(())
    }
}

/// Returns whether the server has ended, without waiting.
async fn has_ended(server: &Embedded) -> bool {
    tokio::time::timeout(std::time::Duration::ZERO, server.wait_until_ended())
        .await
        .is_ok()
}
