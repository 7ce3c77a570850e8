//! A temporary fleet for one benchmark: the services in this process, a Postgres and agents.

use std::path::PathBuf;

use hayward_service::Shutdown;

use crate::commands::fleet::up::{self, LocalFleet};
use crate::local_services::Ports;
use crate::remote_connection_flags::RemoteEndpoints;
use crate::state_directory::State;

/// A running fleet, and the temporary folder of its state.
pub struct BenchFleet {
    pub fleet: LocalFleet,
    /// Temporary folder, which is removed with its content at the end.
    _home: tempfile::TempDir,
}

impl BenchFleet {
    pub async fn start(agents: u32, shutdown: &Shutdown) -> anyhow::Result<Self> {
        Self::start_with_engine(agents, None, shutdown).await
    }

    /// Starts a fleet. `docker` is the engine socket that the agents may use.
    pub async fn start_with_engine(
        agents: u32,
        docker: Option<PathBuf>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let home = tempfile::Builder::new()
            .prefix("hayward-bench-")
            .tempdir()?;
        // The account that runs Postgres must be able to enter this folder.
        std::fs::set_permissions(
            home.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o711),
        )?;
        let state = State::open(home.path().join("state"))?;
        let arguments = up::Arguments {
            docker,
            docker_mountable: Vec::new(),
            port: 0,
            agents,
            database_url: None,
            remote_endpoints: RemoteEndpoints::default(),
            scrape_listen: None,
            unlimited: true,
        };
        let fleet = LocalFleet::start(state, Ports::free()?, &arguments, shutdown).await?;
        Ok(Self { fleet, _home: home })
    }

    pub async fn stop(self, shutdown: &Shutdown) -> anyhow::Result<()> {
        self.fleet.stop(shutdown).await
    }

    /// Creates a separate database with the publication tables only. Returns its URL.
    pub async fn create_scratch_database(&self) -> anyhow::Result<String> {
        use hayward_postgres::{Schema, prepare, role_url};
        let url = self
            .fleet
            .database
            .urls
            .values()
            .next()
            .map(String::as_str)
            .unwrap_or_default();
        // The new database is next to the database of the fleet, on the same server.
        let admin = role_url(url, "postgres", None)?.replace("/hayward?", "/hayward_bench?");
        let schema = Schema {
            name: "publication",
            migrator: &hayward_publication::MIGRATOR,
            shared: &[],
        };
        prepare(&admin, &[schema], &std::collections::BTreeMap::new()).await?;
        Ok(role_url(&admin, "publication", None)?)
    }
}
