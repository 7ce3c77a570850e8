//! A fleet of separate processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use hayward::fleet::Ports;
use hayward::{fleet::Addresses, prepare};
use hayward_node_status_api::NodeList;
use hayward_postgres::Schema;
use hayward_service::{Client, Keys, TokenSource};
use hayward_testkit::{TestServer, until, until_within};
use hayward_vocabulary::NodeName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::island::Island;
use crate::processes;
use crate::program::hayward;

/// How an agent is run.
#[derive(Debug, Clone)]
pub struct Agent {
    pub runtime: &'static str,
    pub memory_bytes: u64,
    /// Instead of the program that supervises containers. One that is not there breaks the
    /// machine: it heartbeats well, and every launch fails for `runtime_down`.
    pub helper: Option<&'static str>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            runtime: "process",
            memory_bytes: 4 << 30,
            helper: None,
        }
    }
}

/// How soon things are noticed, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// A writer's lease: short, so that a killed leader is followed soon.
    pub lease: u64,
    pub heartbeat: u64,
    pub suspect: u64,
    pub lost: u64,
    /// Running so long shows that a machine works.
    pub worked: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            lease: 1_000,
            heartbeat: 300,
            suspect: 1_500,
            lost: 4_000,
            worked: 1_000,
        }
    }
}

impl Pace {
    /// For stories in which no node is to be given up, however busy this machine is.
    pub fn patient() -> Self {
        Self {
            suspect: 20_000,
            lost: 60_000,
            ..Self::default()
        }
    }

    /// For more processes and agents than this machine serves at the pace of the others.
    pub fn crowded() -> Self {
        Self {
            lease: 5_000,
            heartbeat: 2_000,
            suspect: 15_000,
            lost: 60_000,
            ..Self::default()
        }
    }
}

/// From where services can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Loopback,
    /// From everywhere, islands too, without TLS.
    Open,
    /// From everywhere, by TLS.
    Locked,
}

pub struct World {
    pub server: TestServer,
    pub addresses: Addresses,
    pub keys: Keys,
    pub dir: tempfile::TempDir,
    /// What is started from now on; the version before, in stories of upgrades.
    pub program: PathBuf,
    pace: Pace,
    door: Door,
    databases: BTreeMap<String, String>,
    /// Settings of every process.
    environment: Vec<(&'static str, String)>,
    processes: BTreeMap<String, Child>,
}

impl World {
    /// Postgres, keys and the five services; no agents yet.
    pub async fn start() -> Self {
        Self::at(Pace::default()).await
    }

    /// The same with other times.
    pub async fn at(pace: Pace) -> Self {
        Self::with(pace, Door::Loopback, Vec::new()).await
    }

    /// The same with services that agents on islands can reach.
    pub async fn open() -> Self {
        Self::with(Pace::default(), Door::Open, Vec::new()).await
    }

    /// The same with services that others can reach by TLS alone.
    pub async fn locked() -> Self {
        Self::with(Pace::default(), Door::Locked, Vec::new()).await
    }

    /// The same with little patience for callers who ask a lot (S28). Nobody takes turns (G13): on
    /// a slow machine they would keep a flood within what it may ask for.
    pub async fn strict() -> Self {
        let environment = vec![
            ("HAYWARD_REQUESTS_PER_SECOND", "500".to_owned()),
            ("HAYWARD_PROCESSOR_PERCENT_EACH", "0".to_owned()),
        ];
        Self::with(Pace::default(), Door::Loopback, environment).await
    }

    /// The same by this program, from its own tables and keys on.
    pub async fn by(program: PathBuf) -> Self {
        let mut world = Self::empty(Pace::patient(), Door::Loopback, Vec::new(), &[]).await;
        world.program = program;
        let keys = world.keys.dir().to_owned();
        let mut prepare = world.command("prepare");
        prepare
            .args([
                "prepare", "--user", "ada", "--agent", "node-1", "--agent", "node-2",
            ])
            .arg("--keys")
            .arg(keys)
            .env("HAYWARD_ADMIN_URL", world.admin_url());
        assert!(prepare.status().expect("it runs").success());
        world.begin().await;
        world
    }

    /// The same, and everything of it tells this collector, often.
    pub async fn collected(endpoint: &str) -> Self {
        let environment = vec![
            ("HAYWARD_OTLP_ENDPOINT", endpoint.to_owned()),
            ("HAYWARD_OTLP_INTERVAL_MS", "300".to_owned()),
        ];
        Self::with(Pace::patient(), Door::Loopback, environment).await
    }

    async fn with(pace: Pace, door: Door, environment: Vec<(&'static str, String)>) -> Self {
        let schemas = prepare::SERVICES.map(|(_, schema)| schema);
        let mut world = Self::empty(pace, door, environment, &schemas).await;
        world.begin().await;
        world
    }

    /// Postgres with these tables, and keys.
    async fn empty(
        pace: Pace,
        door: Door,
        environment: Vec<(&'static str, String)>,
        schemas: &[Schema<'_>],
    ) -> Self {
        let server = TestServer::start().await;
        let dir = tempfile::tempdir().expect("a folder");
        // Work runs as somebody else, who passes through to its marks.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), passable).expect("open to pass");
        let keys = prepare::keys(&dir.path().join("keys"), &[]).expect("keys");
        for user in ["ada", "ben"] {
            prepare::user_token(&keys, user).expect("a token");
        }
        let database = server.database(schemas).await;
        let roles = prepare::SERVICES.map(|(_, schema)| schema.name.to_owned());
        let databases = roles
            .into_iter()
            .map(|role| (role.clone(), database.url(&role)))
            .collect();
        let mut addresses = Ports::free().expect("free ports").addresses();
        if door == Door::Locked {
            prepare::authority::certificates(&keys, &[]).expect("certificates");
            addresses = addresses.over_tls();
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
            processes: BTreeMap::new(),
        }
    }

    async fn begin(&mut self) {
        for (service, _) in prepare::SERVICES {
            self.start_service(service);
        }
        self.services_are_ready().await;
    }

    /// The same with agents `node-1` … on it.
    pub async fn with_agents(count: u32) -> Self {
        let mut world = Self::start().await;
        for number in 1..=count {
            world.start_agent(&format!("node-{number}"), &Agent::default());
        }
        world.nodes_take_work(count as usize).await;
        world
    }

    pub fn start_service(&mut self, name: &str) {
        let port = self
            .url(name)
            .rsplit(':')
            .next()
            .expect("a port")
            .to_owned();
        self.start_replica(name, name, &port);
    }

    /// A second process of a service, known as `alias`, on a port of its own.
    pub fn start_second(&mut self, name: &str, alias: &str) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        self.start_replica(name, alias, &port.to_string());
        format!("http://127.0.0.1:{port}")
    }

    fn start_replica(&mut self, name: &str, alias: &str, port: &str) {
        let schema = prepare::SERVICES
            .iter()
            .find(|(service, _)| *service == name);
        let role = schema.expect("a service").1.name;
        let mut command = self.command(alias);
        command
            .args(["run", name])
            .env("HAYWARD_LISTEN", format!("{}:{port}", self.interface()))
            .env(
                "HAYWARD_ALLOW_INSECURE",
                (self.door == Door::Open).to_string(),
            )
            .env("HAYWARD_DATABASE_URL", &self.databases[role])
            .env("HAYWARD_KEYS", self.keys.dir())
            .env("HAYWARD_LEASE_MS", self.pace.lease.to_string());
        if self.door == Door::Locked {
            let tls = self.keys.dir().join("tls");
            command
                .env("HAYWARD_TLS_CERTIFICATE", tls.join(format!("{name}.pem")))
                .env("HAYWARD_TLS_KEY", tls.join(format!("{name}.key")));
        }
        if name == "node-status" {
            command
                .env("HAYWARD_HEARTBEAT_MS", self.pace.heartbeat.to_string())
                .env("HAYWARD_SUSPECT_MS", self.pace.suspect.to_string())
                .env("HAYWARD_LOST_MS", self.pace.lost.to_string());
        }
        if name == "rm-scheduler" {
            command.env("HAYWARD_WORKED_MS", self.pace.worked.to_string());
        }
        self.spawn(alias, command);
    }

    fn interface(&self) -> Ipv4Addr {
        match self.door {
            Door::Loopback => Ipv4Addr::LOCALHOST,
            Door::Open | Door::Locked => Ipv4Addr::UNSPECIFIED,
        }
    }

    pub fn start_agent(&mut self, node: &str, agent: &Agent) {
        let command = self.command(node);
        self.run_agent(node, agent, command);
    }

    /// An agent whose machine can be cut off.
    pub fn start_agent_on(&mut self, island: &Island, node: &str, agent: &Agent) {
        let here = self.command(node);
        let mut command = island.around(&self.program);
        command.env_clear();
        for (name, value) in here.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy();
            command.env(name, value.replace("127.0.0.1", &island.host()));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log_file(node));
        self.run_agent(node, agent, command);
    }

    fn run_agent(&mut self, node: &str, agent: &Agent, mut command: Command) {
        let name = NodeName::new(node).expect("a node name");
        let token = prepare::agent_token(&self.keys, &name).expect("a token");
        let state = self.folder(node);
        std::fs::create_dir_all(&state).expect("a folder");
        command
            .args(["node-agent", "agent"])
            .env("HAYWARD_NODE", node)
            .env("HAYWARD_TOKEN_FILE", token)
            .env("HAYWARD_STATE_DIR", state)
            .env("HAYWARD_RUNTIME", agent.runtime)
            .env("HAYWARD_MEMORY_BYTES", agent.memory_bytes.to_string());
        if let Some(helper) = agent.helper {
            // As a flag: this program gives one itself, and the last one wins.
            command.args(["--command", &format!("[{helper:?}]")]);
        }
        self.spawn(node, command);
    }

    /// One process with many agents on pretended machines of one quantum each.
    pub fn start_simulated(&mut self, prefix: &str, count: u32) {
        for number in 1..=count {
            let node = NodeName::new(format!("{prefix}-{number:04}")).expect("a node name");
            prepare::agent_token(&self.keys, &node).expect("a token");
        }
        let alias = format!("node-{prefix}");
        let mut command = self.command(&alias);
        command
            .args(["node-agent", "agent"])
            .env("HAYWARD_NODE", prefix)
            .env("HAYWARD_KEYS", self.keys.dir())
            .env("HAYWARD_SIMULATE", count.to_string())
            .env("HAYWARD_SIMULATED_TASK_MS", "2000")
            .env("HAYWARD_MEMORY_BYTES", (1_u64 << 30).to_string());
        self.spawn(&alias, command);
    }

    /// A command with the addresses of the fleet and nothing of this process' own settings.
    pub fn command(&self, alias: &str) -> Command {
        let mut command = Command::new(&self.program);
        let kept =
            std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("HAYWARD_"));
        command
            .env_clear()
            .envs(kept)
            .envs(self.environment.iter().cloned())
            .env("HAYWARD_JOB_CONVERTER_URL", &self.addresses.job_converter)
            .env("HAYWARD_NODE_STATUS_URL", &self.addresses.node_status)
            .env(
                "HAYWARD_CONTAINER_MANAGER_URL",
                &self.addresses.container_manager,
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log_file(alias));
        if alias.starts_with("node-") && !alias.starts_with("node-status") {
            return command;
        }
        command
            .env("HAYWARD_RM_SCHEDULER_URL", &self.addresses.rm_scheduler)
            .env("HAYWARD_BLOCKLIST_URL", &self.addresses.blocklist);
        command
    }

    fn log_file(&self, alias: &str) -> File {
        let path = self.dir.path().join(format!("{alias}.log"));
        let mut options = std::fs::OpenOptions::new();
        let log = options.append(true).create(true).open(path);
        log.expect("a log file")
    }

    pub fn spawn(&mut self, alias: &str, mut command: Command) {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {alias}: {error}"));
        self.processes.insert(alias.to_owned(), child);
    }

    /// Stops a process in its tracks, or lets it go on.
    pub fn signal(&self, alias: &str, signal: Signal) {
        let child = self.processes.get(alias);
        let child = child.unwrap_or_else(|| panic!("no {alias}"));
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("signalled");
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, alias: &str) {
        let mut child = self
            .processes
            .remove(alias)
            .unwrap_or_else(|| panic!("no {alias}"));
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    /// Asks a process to end, and waits until it is gone.
    pub fn terminate(&mut self, alias: &str) {
        let mut child = self
            .processes
            .remove(alias)
            .unwrap_or_else(|| panic!("no {alias}"));
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("asked");
        child.wait().expect("gone");
    }

    /// How a process ended that nobody killed; none while it runs.
    pub fn ended(&mut self, alias: &str) -> Option<ExitStatus> {
        let child = self.processes.get_mut(alias);
        let child = child.unwrap_or_else(|| panic!("no {alias}"));
        child.try_wait().expect("a process of ours")
    }

    /// The address of its database as the administrator.
    pub fn admin_url(&self) -> String {
        let role = prepare::SERVICES[0].1.name;
        self.databases[role].replacen(&format!("//{role}@"), "//postgres@", 1)
    }

    pub fn url(&self, service: &str) -> &str {
        let named = self.addresses.named();
        let found = named.iter().find(|(name, _)| *name == service);
        let (_, url) = found.unwrap_or_else(|| panic!("no service {service}"));
        url
    }

    /// Where the database is, as the role of a service.
    pub fn database(&self, role: &str) -> &str {
        let url = self.databases.get(role);
        url.unwrap_or_else(|| panic!("no role {role}"))
    }

    /// A client of one service with the token of that name.
    pub fn client(&self, service: &str, token: &str) -> Client {
        let token = TokenSource::file(self.keys.token_path(token));
        Client::from_list(self.url(service), token).expect("a client")
    }

    pub async fn services_are_ready(&self) {
        for (service, _) in prepare::SERVICES {
            let client = self.client(service, "operator");
            until(&format!("{service} to be ready"), async || {
                client
                    .get::<hayward_service::health::Word>("/readyz")
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

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in std::fs::read_dir(self.dir.path())
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = entry.path();
                if path.extension().is_some_and(|kind| kind == "log") {
                    let text = std::fs::read_to_string(&path).unwrap_or_default();
                    let lines: Vec<&str> = text.lines().rev().take(15).collect();
                    eprintln!("--- the end of {}", path.display());
                    lines.iter().rev().for_each(|line| eprintln!("{line}"));
                }
            }
        }
        // Agents first, so that nothing is started any more; then what they started.
        let agents: Vec<String> = self
            .processes
            .keys()
            .filter(|alias| alias.starts_with("node-") && *alias != "node-status")
            .cloned()
            .collect();
        for alias in agents {
            self.kill(&alias);
        }
        self.end_containers();
        for child in self.processes.values_mut() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl World {
    /// A machine that is gone: its agent and everything the agent started, all at once.
    pub fn lose(&mut self, node: &str) {
        self.kill(node);
        for pid in processes::supervised(&self.folder(node)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// How many processes with this word in their arguments really run in the containers of a node;
    /// with the empty word, all of them.
    pub fn alive(&self, node: &str, word: &str) -> usize {
        processes::count(&self.folder(node), word)
    }

    /// The same on all nodes.
    pub fn alive_anywhere(&self, word: &str) -> usize {
        processes::count(self.dir.path(), word)
    }

    fn folder(&self, node: &str) -> PathBuf {
        self.dir.path().join("agents").join(node)
    }

    /// Asks the supervisors of this world's containers to end what they supervise.
    fn end_containers(&self) {
        for pid in processes::supervisors(self.dir.path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}
