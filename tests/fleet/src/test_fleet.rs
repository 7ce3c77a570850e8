//! A fleet for tests, in which each service and each agent is a separate process.

mod process_control;
mod settings;
mod start;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use hayward::local_services::Ports;
use hayward::{local_services::Addresses, prepare};
use hayward_node_status_api::NodeList;
use hayward_postgres::Schema;
use hayward_service::{Client, Keys, TokenSource};
use hayward_testkit::{TestServer, until, until_within};

use crate::hayward_program::hayward_program;

pub use settings::{Agent, Timing};

/// Networks from which services are reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkAccess {
    Loopback,
    /// All networks, without TLS.
    Plaintext,
    /// All networks, with TLS.
    Tls,
}

/// A running fleet. Each process has an alias: the name of its service or node, or a name that the
/// test chooses.
pub struct TestFleet {
    pub server: TestServer,
    pub addresses: Addresses,
    pub keys: Keys,
    pub dir: tempfile::TempDir,
    /// The program for new processes. In upgrade tests it is the previous version at first.
    pub program: PathBuf,
    timing: Timing,
    access: NetworkAccess,
    /// URL of the database by role. Each service has a role.
    databases: BTreeMap<String, String>,
    /// Environment variables of every process.
    environment: Vec<(&'static str, String)>,
    /// Whether the clock of each process can be stepped.
    has_separate_clocks: bool,
    /// Processes by alias.
    processes: BTreeMap<String, Child>,
}

impl TestFleet {
    /// Starts Postgres and the five services with their keys, but no agents.
    pub async fn start() -> Self {
        Self::start_with_timing(Timing::default()).await
    }

    /// Starts a fleet with these times.
    pub async fn start_with_timing(timing: Timing) -> Self {
        Self::start_with(timing, NetworkAccess::Loopback, Vec::new()).await
    }

    /// Starts a fleet whose services can be reached from other networks without TLS.
    pub async fn start_without_tls() -> Self {
        Self::start_with(Timing::default(), NetworkAccess::Plaintext, Vec::new()).await
    }

    /// Starts a fleet whose services can be reached from other networks by TLS only.
    pub async fn start_with_tls() -> Self {
        Self::start_with(Timing::default(), NetworkAccess::Tls, Vec::new()).await
    }

    /// Starts a fleet with low rate limits. The limit of CPU time per caller is off, because it
    /// would keep a flood below the rate limits on a slow machine (S28).
    pub async fn start_with_rate_limits() -> Self {
        let environment = vec![
            ("HAYWARD_REQUESTS_PER_SECOND", "500".to_owned()),
            ("HAYWARD_PROCESSOR_PERCENT_EACH", "0".to_owned()),
        ];
        Self::start_with(Timing::default(), NetworkAccess::Loopback, environment).await
    }

    /// Starts a fleet with these times and these environment variables for every process.
    pub async fn start_with_environment(
        timing: Timing,
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        Self::start_with(timing, NetworkAccess::Loopback, environment).await
    }

    /// Replaces the environment variables of processes that start from now on.
    pub fn set_environment(&mut self, environment: Vec<(&'static str, String)>) {
        self.environment = environment;
    }

    /// Starts a fleet with a separate clock for each process. No node is declared lost, however
    /// busy this machine is.
    pub async fn start_with_clocks() -> Self {
        let schemas = prepare::SERVICES.map(|(_, schema)| schema);
        let (timing, access) = (Timing::without_node_loss(), NetworkAccess::Loopback);
        let mut fleet = Self::prepare(timing, access, Vec::new(), &schemas).await;
        fleet.has_separate_clocks = true;
        fleet.start_services().await;
        fleet
    }

    /// Sets the wall clock of one process ahead of the machine's. A negative value sets it behind.
    /// The process reads the offset twenty times a second.
    pub fn step_clock(&self, alias: &str, ahead_ms: i64) {
        assert!(
            self.has_separate_clocks,
            "this fleet has no separate clocks"
        );
        std::fs::write(self.clock_file(alias), ahead_ms.to_string()).expect("a clock");
    }

    fn clock_file(&self, alias: &str) -> PathBuf {
        self.dir.path().join(format!("{alias}.clock"))
    }

    /// Starts a fleet with this program, which also creates the tables and keys.
    pub async fn start_with_program(program: PathBuf) -> Self {
        let mut fleet = Self::prepare(
            Timing::without_node_loss(),
            NetworkAccess::Loopback,
            Vec::new(),
            &[],
        )
        .await;
        fleet.program = program;
        let keys = fleet.keys.dir().to_owned();
        let mut prepare = fleet.command("prepare");
        prepare
            .args([
                "prepare", "--user", "ada", "--agent", "node-1", "--agent", "node-2",
            ])
            .arg("--keys")
            .arg(keys)
            .env("HAYWARD_ADMIN_URL", fleet.admin_url());
        assert!(prepare.status().expect("it runs").success());
        fleet.start_services().await;
        fleet
    }

    /// Starts a fleet that sends telemetry to this collector at short intervals.
    pub async fn start_with_collector(endpoint: &str) -> Self {
        Self::start_with_collector_variables(vec![("HAYWARD_OTLP_ENDPOINT", endpoint.to_owned())])
            .await
    }

    /// Starts a fleet that sends telemetry, with the address of the collector in these variables.
    pub async fn start_with_collector_variables(
        mut environment: Vec<(&'static str, String)>,
    ) -> Self {
        environment.push(("HAYWARD_OTLP_INTERVAL_MS", "300".to_owned()));
        Self::start_with(
            Timing::without_node_loss(),
            NetworkAccess::Loopback,
            environment,
        )
        .await
    }

    async fn start_with(
        timing: Timing,
        access: NetworkAccess,
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        let schemas = prepare::SERVICES.map(|(_, schema)| schema);
        let mut fleet = Self::prepare(timing, access, environment, &schemas).await;
        fleet.start_services().await;
        fleet
    }

    /// Starts Postgres with its tables, and creates the keys.
    async fn prepare(
        timing: Timing,
        access: NetworkAccess,
        environment: Vec<(&'static str, String)>,
        schemas: &[Schema<'_>],
    ) -> Self {
        let server = TestServer::start().await;
        let dir = tempfile::tempdir().expect("a folder");
        // Work runs under another account, which must be able to reach its files.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), permissions).expect("permissions are set");
        let keys = prepare::create_keys(&dir.path().join("keys"), &[]).expect("keys");
        for user in ["ada", "ben"] {
            prepare::create_user_token(&keys, user).expect("a token");
        }
        let database = server.database(schemas).await;
        let roles = prepare::SERVICES.map(|(_, schema)| schema.name.to_owned());
        let databases = roles
            .into_iter()
            .map(|role| (role.clone(), database.url(&role)))
            .collect();
        let mut addresses = Ports::free().expect("free ports").addresses();
        if access == NetworkAccess::Tls {
            prepare::certificate_authority::renew_certificates(&keys, &[]).expect("certificates");
            addresses = addresses.with_https();
        }
        Self {
            server,
            addresses,
            keys,
            dir,
            program: hayward_program().to_owned(),
            timing,
            access,
            databases,
            environment,
            has_separate_clocks: false,
            processes: BTreeMap::new(),
        }
    }

    async fn start_services(&mut self) {
        for (service, _) in prepare::SERVICES {
            self.start_service(service);
        }
        self.wait_until_services_are_ready().await;
    }

    /// Starts a fleet with the agents `node-1`, `node-2` and so on.
    pub async fn start_with_agents(count: u32) -> Self {
        let mut fleet = Self::start().await;
        for number in 1..=count {
            fleet.start_agent(&format!("node-{number}"), &Agent::default());
        }
        fleet.wait_until_nodes_take_work(count as usize).await;
        fleet
    }

    /// Returns the address of the database for its administrator.
    pub fn admin_url(&self) -> String {
        let role = prepare::SERVICES[0].1.name;
        self.databases[role].replacen(&format!("//{role}@"), "//postgres@", 1)
    }

    pub fn url(&self, service: &str) -> &str {
        let entries = self.addresses.entries();
        let entry = entries.iter().find(|(name, _)| *name == service);
        let (_, url) = entry.unwrap_or_else(|| panic!("no service {service}"));
        url
    }

    /// Returns the address of the database for the role of a service.
    pub fn database(&self, role: &str) -> &str {
        let url = self.databases.get(role);
        url.unwrap_or_else(|| panic!("no role {role}"))
    }

    /// Returns the state folder of the agent of a node.
    fn agent_state_dir(&self, node: &str) -> PathBuf {
        self.dir.path().join("agents").join(node)
    }

    /// Returns a client of one service with the token of that name.
    pub fn client(&self, service: &str, token: &str) -> Client {
        let token = TokenSource::file(self.keys.token_path(token));
        Client::from_list(self.url(service), token).expect("a client")
    }

    pub async fn wait_until_services_are_ready(&self) {
        for (service, _) in prepare::SERVICES {
            let client = self.client(service, "operator");
            until(&format!("{service} to be ready"), async || {
                client
                    .get::<hayward_service::health::ProbeResponse>("/readyz")
                    .await
                    .ok()
            })
            .await;
        }
    }

    pub async fn wait_until_nodes_take_work(&self, count: usize) {
        let client = self.client("node-status", "operator");
        let limit = Duration::from_secs(30 + count as u64 / 4);
        until_within(&format!("{count} nodes to take work"), limit, async || {
            let list: NodeList = client.get("/v1/nodes?limit=1000").await.ok()?;
            let ready = list
                .nodes
                .iter()
                .filter(|node| node.entry.takes_work())
                .count();
            (ready >= count).then_some(())
        })
        .await;
    }
}
