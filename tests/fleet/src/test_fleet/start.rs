//! Starts the processes of a fleet: services, agents and simulated agents.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use hayward::prepare;
use hayward_service::runtime::clock::offset;
use hayward_vocabulary::NodeName;

use super::{Agent, NetworkAccess, TestFleet};
use crate::isolated_network::IsolatedNetwork;

impl TestFleet {
    pub fn start_service(&mut self, name: &str) {
        let port = self
            .url(name)
            .rsplit(':')
            .next()
            .expect("a port")
            .to_owned();
        self.start_replica(name, name, &port);
    }

    /// Starts a second process of a service, called `alias`, on a free port. Returns its URL.
    pub fn start_second_replica(&mut self, name: &str, alias: &str) -> String {
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
            .env(
                "HAYWARD_LISTEN",
                format!("{}:{port}", self.listen_address()),
            )
            .env(
                "HAYWARD_ALLOW_INSECURE",
                (self.access == NetworkAccess::Plaintext).to_string(),
            )
            .env("HAYWARD_DATABASE_URL", &self.databases[role])
            .env("HAYWARD_KEYS", self.keys.dir())
            .env("HAYWARD_LEASE_MS", self.timing.lease_ms.to_string());
        if self.access == NetworkAccess::Tls {
            let tls = self.keys.dir().join("tls");
            command
                .env("HAYWARD_TLS_CERTIFICATE", tls.join(format!("{name}.pem")))
                .env("HAYWARD_TLS_KEY", tls.join(format!("{name}.key")));
        }
        if name == "node-status" {
            command
                .env("HAYWARD_HEARTBEAT_MS", self.timing.heartbeat_ms.to_string())
                .env("HAYWARD_SUSPECT_MS", self.timing.suspect_ms.to_string())
                .env("HAYWARD_LOST_MS", self.timing.lost_ms.to_string());
        }
        if name == "rm-scheduler" {
            command.env("HAYWARD_WORKED_MS", self.timing.worked_ms.to_string());
        }
        self.spawn(alias, command);
    }

    fn listen_address(&self) -> Ipv4Addr {
        match self.access {
            NetworkAccess::Loopback => Ipv4Addr::LOCALHOST,
            NetworkAccess::Plaintext | NetworkAccess::Tls => Ipv4Addr::UNSPECIFIED,
        }
    }

    pub fn start_agent(&mut self, node: &str, agent: &Agent) {
        let command = self.command(node);
        self.run_agent(node, agent, command);
    }

    /// Starts an agent in a network in which frames can be lost.
    pub fn start_agent_in(&mut self, network: &IsolatedNetwork, node: &str, agent: &Agent) {
        let template = self.command(node);
        let mut command = network.wrap_command(&self.program);
        command.env_clear();
        for (name, value) in template.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy();
            command.env(name, value.replace("127.0.0.1", &network.host_address()));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log_file(node));
        self.run_agent(node, agent, command);
    }

    fn run_agent(&mut self, node: &str, agent: &Agent, mut command: Command) {
        let name = NodeName::new(node).expect("a node name");
        let token = prepare::create_agent_token(&self.keys, &name).expect("a token");
        let state = self.agent_state_dir(node);
        std::fs::create_dir_all(&state).expect("a folder");
        command
            .args(["node-agent", "agent"])
            .env("HAYWARD_NODE", node)
            .env("HAYWARD_TOKEN_FILE", token)
            .env("HAYWARD_STATE_DIR", state)
            .env("HAYWARD_RUNTIME", agent.runtime)
            .env("HAYWARD_MEMORY_BYTES", agent.memory_bytes.to_string());
        if let Some(supervisor) = agent.supervisor {
            command.env("HAYWARD_COMMAND", format!("[{supervisor:?}]"));
        }
        self.spawn(node, command);
    }

    /// Starts one process with many agents on simulated nodes of one quantum each.
    pub fn start_simulated_agents(&mut self, prefix: &str, count: u32) {
        for number in 1..=count {
            let node = NodeName::new(format!("{prefix}-{number:04}")).expect("a node name");
            prepare::create_agent_token(&self.keys, &node).expect("a token");
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

    /// Returns a command of the program with the addresses of the fleet. No other variable of
    /// Hayward is inherited from the test.
    pub fn command(&self, alias: &str) -> Command {
        let mut command = Command::new(&self.program);
        let other_variables =
            std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("HAYWARD_"));
        command
            .env_clear()
            .envs(other_variables)
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
        if self.has_separate_clocks {
            command.env(offset::VARIABLE, self.clock_file(alias));
        }
        // An agent needs no address of the scheduler or the blocklist.
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
}
