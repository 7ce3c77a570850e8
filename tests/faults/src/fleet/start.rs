//! Starts a fleet: disks, Postgres, keys, relays, services and agents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use hayward::prepare;
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_service::runtime::clock::offset;
use hayward_vocabulary::NodeName;
use http::Method;
use http::header::IF_MATCH;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::{Disks, Fleet, Postgres, Relays, TIMEOUT, poll_until};
use crate::plan::{Actor, Agent, Caller, Disk, Replica, Service};

/// Milliseconds of silence after which a node is lost. Exclusive work on it ends earlier, with a
/// margin of a quarter, because the machine may be busy.
pub const LOST_MS: u64 = 8_000;

/// Starts Postgres, services and agents, and creates keys. The policy has a
/// node pool that is divided by classes and one that is divided by queues.
pub async fn start(dir: PathBuf) -> anyhow::Result<Fleet> {
    raise_file_limit()?;
    for folder in ["logs", "clocks"] {
        fs::create_dir_all(dir.join(folder))?;
    }
    // Work runs under another account, which must be able to reach the folders of its proofs.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o711))?;
    let disks = Disks::mount(&dir)?;
    let postgres = Postgres::start(disks.folder(Disk::Postgres).join("home")).await?;
    let keys = prepare::create_keys(&dir.join("keys"), &[])?;
    prepare::create_user_token(&keys, "ada")?;
    for agent in Agent::all() {
        prepare::create_agent_token(&keys, &node_name(agent)?)?;
    }
    let ports = free_ports()?;
    let relays = Relays::start(&ports, &postgres.socket_folder(), &dir.join("db")).await?;
    let mut fleet = Fleet {
        program: hayward_tests_fleet::hayward_program().to_owned(),
        dir,
        keys,
        relays,
        postgres,
        disks,
        ports,
        running: BTreeMap::new(),
        paused: BTreeSet::new(),
        unexpected_exits: Vec::new(),
    };
    for actor in Actor::all() {
        fleet.start(actor)?;
    }
    fleet.wait_for_services().await?;
    fleet.divide_nodes().await?;
    fleet.wait_for_nodes().await?;
    Ok(fleet)
}

/// Raises the limit of open files of this process. Each relayed connection needs two.
fn raise_file_limit() -> anyhow::Result<()> {
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, max, max)?;
    Ok(())
}

fn node_name(agent: Agent) -> anyhow::Result<NodeName> {
    NodeName::new(agent.to_string()).context("a node name")
}

/// Returns ports below the range of outgoing connections, so that a restarted replica finds its own
/// port free.
fn free_ports() -> anyhow::Result<BTreeMap<Replica, u16>> {
    // Linux takes ports for outgoing connections from 32768 up. The process id spreads the ports of
    // runs that happen at the same time.
    let first = 12_000 + u16::try_from(std::process::id() % 1_800)? * 10;
    let mut free = (first..32_000)
        .chain(12_000..first)
        .filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    Replica::all()
        .map(|replica| Ok((replica, free.next().context("a free port")?)))
        .collect()
}

impl Fleet {
    /// Starts a process that is down.
    pub fn start(&mut self, actor: Actor) -> anyhow::Result<()> {
        if self.running.contains_key(&actor) {
            return Ok(());
        }
        let mut command = self.command(Caller::Actor(actor));
        let log = self.dir.join("logs").join(format!("{actor}.log"));
        let log = fs::OpenOptions::new().append(true).create(true).open(log)?;
        command
            .stdout(log.try_clone()?)
            .stderr(log)
            .env(offset::VARIABLE, self.clock_file(actor))
            .env("HAYWARD_KEYS", self.keys.dir());
        match actor {
            Actor::Service(replica) => self.configure_service(&mut command, replica)?,
            Actor::Agent(agent) => self.configure_agent(&mut command, agent),
        }
        let child = command.spawn().with_context(|| format!("start {actor}"))?;
        self.running.insert(actor, child);
        Ok(())
    }

    fn configure_service(
        &self,
        command: &mut std::process::Command,
        replica: Replica,
    ) -> anyhow::Result<()> {
        let name = replica.service.name();
        let mut services = prepare::SERVICES.iter();
        let (_, schema) = services
            .find(|(service, _)| *service == name)
            .context("a service")?;
        let database = Postgres::role_url(schema.name, self.relays.database_socket_folder(replica));
        command
            .args(["run", name])
            .env(
                "HAYWARD_LISTEN",
                format!("127.0.0.1:{}", self.ports[&replica]),
            )
            .env("HAYWARD_DATABASE_URL", database)
            .env("HAYWARD_LEASE_MS", "1500");
        match replica.service {
            Service::NodeStatus => {
                command
                    .env("HAYWARD_HEARTBEAT_MS", "400")
                    .env("HAYWARD_SUSPECT_MS", "3000")
                    .env("HAYWARD_LOST_MS", LOST_MS.to_string());
            }
            Service::RmScheduler => {
                command.env("HAYWARD_WORKED_MS", "1000");
            }
            _ => {}
        }
        Ok(())
    }

    fn configure_agent(&self, command: &mut std::process::Command, agent: Agent) {
        command
            .args(["node-agent", "agent"])
            .env("HAYWARD_NODE", agent.to_string())
            .env("HAYWARD_STATE_DIR", self.agent_folder(agent))
            .env("HAYWARD_RUNTIME", "process")
            .env("HAYWARD_MEMORY_BYTES", (10_u64 << 30).to_string())
            // The disk is small, so the usual limit would quiesce the node.
            .env("HAYWARD_QUIESCE_DISK_BYTES", (1 << 20).to_string());
    }

    /// Waits until each service has a leader that answers.
    pub async fn wait_for_services(&self) -> anyhow::Result<()> {
        for service in Service::ALL {
            let client = self.client(service, "operator")?;
            poll_until(service.name(), TIMEOUT, async || {
                let ready = client.get::<serde_json::Value>("/readyz").await;
                ready.map(drop).map_err(|error| format!("{error:?}"))
            })
            .await?;
        }
        Ok(())
    }

    pub async fn wait_for_nodes(&self) -> anyhow::Result<()> {
        let client = self.client(Service::NodeStatus, "operator")?;
        poll_until("all nodes to take work", TIMEOUT, async || {
            let list: hayward_node_status_api::NodeList = client
                .get("/v1/nodes?limit=100")
                .await
                .map_err(|error| format!("{error:?}"))?;
            let ready = list.nodes.iter().filter(|node| node.entry.takes_work());
            let states = list.nodes.iter().map(|node| {
                let entry = &node.entry;
                format!("{}: {:?} {}", entry.node, entry.health, entry.reason)
            });
            if ready.count() == usize::from(Agent::COUNT) {
                Ok(())
            } else {
                Err(states.collect::<Vec<_>>().join(", "))
            }
        })
        .await
    }

    /// Divides the nodes between the pool `default`, which is divided by classes, and the pool
    /// `gangs`, which is divided by queues.
    async fn divide_nodes(&self) -> anyhow::Result<()> {
        let client = self.client(Service::RmScheduler, "operator")?;
        let names_in_pool = |in_queue_pool: bool| {
            let agents = Agent::all()
                .filter(move |agent| (agent.0 > Agent::LAST_IN_CLASS_POOL) == in_queue_pool);
            agents.map(|agent| agent.to_string()).collect::<Vec<_>>()
        };
        poll_until("the policy to be accepted", TIMEOUT, async || {
            let error_text = |error| format!("{error:?}");
            let current: PolicyView = client.get("/v1/policy").await.map_err(error_text)?;
            let mut policy =
                serde_json::to_value(&current.policy).map_err(|error| error.to_string())?;
            policy["pools"]["default"]["nodes"] = json!(names_in_pool(false));
            policy["pools"]["gangs"] = json!({
                "nodes": names_in_pool(true),
                "queues": { "queues": { "a": { "submit_acl": "*" } } },
            });
            let call = client.call(Method::PUT, "/v1/policy");
            let call = call.header(IF_MATCH, &format!("\"{}\"", current.generation));
            call.body(&policy)
                .send::<PolicyAnswer>()
                .await
                .map(drop)
                .map_err(error_text)
        })
        .await
    }
}
