//! A fleet of separate processes.

mod pace;
mod running;
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

use crate::program::hayward;

pub use pace::{Agent, Pace};

/// Networks from which services are reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Loopback,
    /// All networks, islands included, without TLS.
    Open,
    /// All networks, with TLS.
    Locked,
}

pub struct TestFleet {
    pub server: TestServer,
    pub addresses: Addresses,
    pub keys: Keys,
    pub dir: tempfile::TempDir,
    /// The program for new processes. In upgrade tests it is the previous version at first.
    pub program: PathBuf,
    pace: Pace,
    door: Door,
    databases: BTreeMap<String, String>,
    /// Environment variables of every process.
    environment: Vec<(&'static str, String)>,
    /// Whether the clock of each process can be stepped.
    clocks: bool,
    processes: BTreeMap<String, Child>,
}

impl TestFleet {
    /// Starts Postgres and the five services with their keys, but no agents.
    pub async fn start() -> Self {
        Self::at(Pace::default()).await
    }

    /// Starts a fleet with this pace.
    pub async fn at(pace: Pace) -> Self {
        Self::with(pace, Door::Loopback, Vec::new()).await
    }

    /// Starts a fleet whose services agents on islands can reach.
    pub async fn open() -> Self {
        Self::with(Pace::default(), Door::Open, Vec::new()).await
    }

    /// Starts a fleet whose services can be reached from other networks by TLS only.
    pub async fn locked() -> Self {
        Self::with(Pace::default(), Door::Locked, Vec::new()).await
    }

    /// Starts a fleet with low rate limits. CPU fairness is off, because it would keep a flood
    /// below the limits on a slow machine (S28).
    pub async fn strict() -> Self {
        let environment = vec![
            ("HAYWARD_REQUESTS_PER_SECOND", "500".to_owned()),
            ("HAYWARD_PROCESSOR_PERCENT_EACH", "0".to_owned()),
        ];
        Self::with(Pace::default(), Door::Loopback, environment).await
    }

    /// Starts a fleet with this pace and these settings for every process.
    pub async fn set(pace: Pace, environment: Vec<(&'static str, String)>) -> Self {
        Self::with(pace, Door::Loopback, environment).await
    }

    /// Starts a fleet with a separate clock for each process. No node is declared lost, however
    /// busy this machine is.
    pub async fn with_clocks() -> Self {
        let schemas = prepare::SERVICES.map(|(_, schema)| schema);
        let (pace, door) = (Pace::patient(), Door::Loopback);
        let mut fleet = Self::empty(pace, door, Vec::new(), &schemas).await;
        fleet.clocks = true;
        fleet.begin().await;
        fleet
    }

    /// Sets the wall clock of one process ahead of the machine's. A negative value sets it behind.
    /// The process reads the offset twenty times a second.
    pub fn step_clock(&self, alias: &str, ahead_ms: i64) {
        assert!(self.clocks, "these clocks stand as the machine's");
        std::fs::write(self.clock_file(alias), ahead_ms.to_string()).expect("a clock");
    }

    fn clock_file(&self, alias: &str) -> PathBuf {
        self.dir.path().join(format!("{alias}.clock"))
    }

    /// Starts a fleet with this program, which also creates the tables and keys.
    pub async fn by(program: PathBuf) -> Self {
        let mut fleet = Self::empty(Pace::patient(), Door::Loopback, Vec::new(), &[]).await;
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
        fleet.begin().await;
        fleet
    }

    /// Starts a fleet that sends telemetry to this collector at short intervals.
    pub async fn collected(endpoint: &str) -> Self {
        Self::with_collector_variables(vec![("HAYWARD_OTLP_ENDPOINT", endpoint.to_owned())]).await
    }

    /// Starts a fleet that sends telemetry, with the address of the collector in these variables.
    pub async fn with_collector_variables(mut environment: Vec<(&'static str, String)>) -> Self {
        environment.push(("HAYWARD_OTLP_INTERVAL_MS", "300".to_owned()));
        Self::with(Pace::patient(), Door::Loopback, environment).await
    }

    async fn with(pace: Pace, door: Door, environment: Vec<(&'static str, String)>) -> Self {
        let schemas = prepare::SERVICES.map(|(_, schema)| schema);
        let mut fleet = Self::empty(pace, door, environment, &schemas).await;
        fleet.begin().await;
        fleet
    }

    /// Starts Postgres with its tables, and creates the keys.
    async fn empty(
        pace: Pace,
        door: Door,
        environment: Vec<(&'static str, String)>,
        schemas: &[Schema<'_>],
    ) -> Self {
        let server = TestServer::start().await;
        let dir = tempfile::tempdir().expect("a folder");
        // Work runs under another account, which must be able to reach its marks.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), passable).expect("open to pass");
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
        if door == Door::Locked {
            prepare::authority::renew_certificates(&keys, &[]).expect("certificates");
            addresses = addresses.with_https();
        }
        Self {
            server,
            addresses,
            keys,
            dir,
            program: hayward().to_owned(),
            pace,
            door,
            databases,
            environment,
            clocks: false,
            processes: BTreeMap::new(),
        }
    }

    async fn begin(&mut self) {
        for (service, _) in prepare::SERVICES {
            self.start_service(service);
        }
        self.services_are_ready().await;
    }

    /// Starts a fleet with the agents `node-1`, `node-2` and so on.
    pub async fn with_agents(count: u32) -> Self {
        let mut fleet = Self::start().await;
        for number in 1..=count {
            fleet.start_agent(&format!("node-{number}"), &Agent::default());
        }
        fleet.nodes_take_work(count as usize).await;
        fleet
    }

    /// Returns the address of the database for its administrator.
    pub fn admin_url(&self) -> String {
        let role = prepare::SERVICES[0].1.name;
        self.databases[role].replacen(&format!("//{role}@"), "//postgres@", 1)
    }

    pub fn url(&self, service: &str) -> &str {
        let named = self.addresses.entries();
        let found = named.iter().find(|(name, _)| *name == service);
        let (_, url) = found.unwrap_or_else(|| panic!("no service {service}"));
        url
    }

    /// Returns the address of the database for the role of a service.
    pub fn database(&self, role: &str) -> &str {
        let url = self.databases.get(role);
        url.unwrap_or_else(|| panic!("no role {role}"))
    }

    /// Returns the state folder of the agent of a node.
    fn folder(&self, node: &str) -> PathBuf {
        self.dir.path().join("agents").join(node)
    }

    /// Returns a client of one service with the token of that name.
    pub fn client(&self, service: &str, token: &str) -> Client {
        let token = TokenSource::file(self.keys.token_path(token));
        Client::from_list(self.url(service), token).expect("a client")
    }

    pub async fn services_are_ready(&self) {
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

    pub async fn nodes_take_work(&self, count: usize) {
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
