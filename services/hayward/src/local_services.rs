//! Starts the five services in this process, each on its own port, for `hayward up` and `hayward
//! demo`. The services call each other over HTTP.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::Context as _;
use hayward_service::{ServerSettings, Shutdown};
use serde::{Deserialize, Serialize};

use crate::remote_connection_flags::RemoteEndpoints;

/// Base addresses of the five services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Addresses {
    pub job_converter: String,
    pub rm_scheduler: String,
    pub container_manager: String,
    pub node_status: String,
    pub blocklist: String,
}

impl Addresses {
    /// Returns the same addresses with `https`.
    #[must_use]
    pub fn with_https(&self) -> Self {
        let with_https_scheme = |url: &String| url.replacen("http:", "https:", 1);
        Self {
            job_converter: with_https_scheme(&self.job_converter),
            rm_scheduler: with_https_scheme(&self.rm_scheduler),
            container_manager: with_https_scheme(&self.container_manager),
            node_status: with_https_scheme(&self.node_status),
            blocklist: with_https_scheme(&self.blocklist),
        }
    }

    /// Returns pairs of name and address, in the order of the ports.
    pub fn entries(&self) -> [(&'static str, &str); 5] {
        [
            ("job-converter", &self.job_converter),
            ("rm-scheduler", &self.rm_scheduler),
            ("container-manager", &self.container_manager),
            ("node-status", &self.node_status),
            ("blocklist", &self.blocklist),
        ]
    }
}

/// Ports of the five services on loopback.
#[derive(Debug, Clone, Copy)]
pub struct Ports([u16; 5]);

impl Ports {
    /// Returns `first` and the four ports after it.
    pub fn from(first: u16) -> Self {
        Self([0, 1, 2, 3, 4].map(|step| first.saturating_add(step)))
    }

    /// Finds five ports that are free at this moment. All five listeners are open at the same time,
    /// so the ports differ.
    pub fn free() -> anyhow::Result<Self> {
        let listeners: Vec<TcpListener> = (0..5)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<_, _>>()
            .context("cannot find free ports")?;
        let mut ports = [0; 5];
        for (port, listener) in ports.iter_mut().zip(&listeners) {
            *port = listener.local_addr()?.port();
        }
        Ok(Self(ports))
    }

    pub fn first(self) -> u16 {
        self.0[0]
    }

    pub fn addresses(self) -> Addresses {
        let [
            job_converter,
            rm_scheduler,
            container_manager,
            node_status,
            blocklist,
        ] = self.0.map(|port| format!("http://127.0.0.1:{port}"));
        Addresses {
            job_converter,
            rm_scheduler,
            container_manager,
            node_status,
            blocklist,
        }
    }
}

/// Parameters of the five services.
#[derive(Debug, Clone)]
pub struct LocalServiceOptions {
    pub ports: Ports,
    pub keys: PathBuf,
    /// Database address by role.
    pub databases: BTreeMap<String, String>,
    /// Milliseconds of the leader's lease. The lease is short where all processes end together.
    pub lease_ms: u64,
    /// Milliseconds of silence after which a node is suspect.
    pub suspect_ms: u64,
    /// Milliseconds of silence after which a node is lost.
    pub lost_ms: u64,
    pub remote_endpoints: RemoteEndpoints,
    /// Address of the metrics of the whole process. `None` opens no metrics endpoint.
    pub scrape_listen: Option<SocketAddr>,
    /// True switches off all rate limits.
    pub unlimited: bool,
}

/// The five services after their start.
pub struct LocalServices {
    pub addresses: Addresses,
    /// Tasks that end when their service has stopped.
    services: Vec<tokio::task::JoinHandle<anyhow::Result<()>>>,
}

impl LocalServices {
    /// Starts all five services. Their order does not matter, because each service answers what it
    /// can until the other services are up.
    pub async fn start(options: &LocalServiceOptions, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let addresses = options.ports.addresses();
        let mut services = Vec::new();
        let [
            job_converter,
            rm_scheduler,
            container_manager,
            node_status,
            blocklist,
        ] = options.ports.0;
        // The service crates have items of the same names and share no trait.
        macro_rules! start {
            ($service:ident, $port:expr, $($field:ident: $value:expr),*) => {{
                let settings = $service::Settings {
                    server: options.server_settings($port, $service::SCHEMA)?,
                    $($field: $value,)*
                    ..$service::Settings::default()
                };
                let running = $service::start(settings, shutdown.clone())
                    .await
                    .with_context(|| format!("cannot start {}", $service::NAME))?;
                services.push(tokio::spawn(running.wait_until_stopped()));
            }};
        }
        start!(
            hayward_node_status, node_status,
            suspect_ms: options.suspect_ms,
            lost_ms: options.lost_ms,
            // All services start and end together, so the warm-up need not cover an outage of one
            // of them.
            warm_up_ms: Some(options.lost_ms),
            rm_scheduler_url: addresses.rm_scheduler.clone()
        );
        start!(hayward_blocklist, blocklist, rm_scheduler_url: addresses.rm_scheduler.clone());
        start!(
            hayward_job_converter, job_converter,
            rm_scheduler_url: addresses.rm_scheduler.clone()
        );
        start!(
            hayward_container_manager, container_manager,
            rm_scheduler_url: addresses.rm_scheduler.clone()
        );
        start!(
            hayward_rm_scheduler, rm_scheduler,
            job_converter_url: addresses.job_converter.clone(),
            node_status_url: addresses.node_status.clone(),
            blocklist_url: addresses.blocklist.clone(),
            container_manager_url: addresses.container_manager.clone()
        );
        Ok(Self {
            addresses,
            services,
        })
    }

    /// Waits after the shutdown until all services have ended in order.
    pub async fn wait_until_stopped(self) -> anyhow::Result<()> {
        for service in self.services {
            service.await??;
        }
        Ok(())
    }
}

impl LocalServiceOptions {
    fn server_settings(&self, port: u16, role: &str) -> anyhow::Result<ServerSettings> {
        let url = self.databases.get(role);
        let defaults = self.remote_endpoints.server_settings();
        // 0 means no limit.
        let limit = |default: u32| if self.unlimited { 0 } else { default };
        Ok(ServerSettings {
            requests_per_second: limit(defaults.requests_per_second),
            stranger_requests_per_second: limit(defaults.stranger_requests_per_second),
            tenant_requests_per_second: limit(defaults.tenant_requests_per_second),
            requests_at_once: limit(defaults.requests_at_once),
            streams_at_once: limit(defaults.streams_at_once),
            processor_percent_each: limit(defaults.processor_percent_each),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            database_url: Some(
                url.with_context(|| format!("no database for {role}"))?
                    .clone(),
            ),
            keys: Some(self.keys.clone()),
            lease_ms: self.lease_ms,
            // Metrics are per process, so one endpoint serves all services.
            scrape_listen: self
                .scrape_listen
                .filter(|_| role == hayward_rm_scheduler::SCHEMA),
            ..defaults
        })
    }
}
