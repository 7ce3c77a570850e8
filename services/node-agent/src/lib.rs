//! The node agent makes one node run what its desired set lists.
//!
//! It listens on no port (S13). It follows the desired set of its node ([`desired_set`]) and acts
//! on it ([`agent`]). It sends heartbeats to node-status ([`heartbeat`]). It sends reports of
//! containers ([`report`]) and their output ([`output_sender`]) to container-manager. It owns a
//! directory with its [`journal`] and one directory per container. Containers outlive the agent,
//! each under its [`supervisor`]. The agent never decides what should run. If a service is down,
//! only exclusive work ends, because its [`lease`] expires.
//!
//! The program has four commands: `agent`, `supervise DIR`, and two that run inside containers that
//! work on the tasks of a job: `run-tasks` ([`tasks`]) leases tasks, and `launch` ([`launcher`])
//! runs their programs.

mod agent;
mod atomic_files;
mod backoff;
mod cgroups;
mod checksum;
mod config;
mod container_processes;
mod credentials;
mod desired_set;
#[cfg(feature = "fault-points")]
pub mod fault_points;
#[cfg(not(feature = "fault-points"))]
mod fault_points;
mod heartbeat;
mod journal;
mod launcher;
mod lease;
mod log_segments;
mod node_condition;
mod node_resources;
mod output_sender;
mod output_tail;
mod process_identity;
mod report;
mod run_as;
mod runtime;
mod supervisor;
mod tasks;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hayward_node_agent_domain::{Doubt, Tenure};
use hayward_node_status_api::Inventory;
use hayward_service::config::insecure_modes::log_insecure_modes;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_service::{Client, Shutdown, telemetry};
use hayward_vocabulary::launch::{ENGINE, MAX_ENGINE_CONTAINERS};
use hayward_vocabulary::{NodeName, Size};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use config::{RuntimeKind, Settings};

use agent::{Agent, AgentChannels, AgentInputs, AgentStatus, Traces};
use cgroups::Cgroups;
use journal::Journal;
use lease::LeaseWriter;
use node_condition::{NodeCondition, NodeReader};
use runtime::docker::Docker;
use runtime::process::{ProcessSettings, Processes};
use runtime::real::RealRuntime;
use runtime::simulated::{Behaviour, SimulatedRuntime};
use runtime::{EventSender, Runtime};

pub const NAME: &str = "node-agent";
/// Maximum number of waiting runtime events.
const EVENT_QUEUE: usize = 256;

/// Started agents.
pub struct RunningAgents {
    tasks: Vec<JoinHandle<()>>,
}

impl RunningAgents {
    /// Waits until the agents have stopped.
    pub async fn wait(self) {
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the agent panicked");
            }
        }
    }
}

/// Starts the agent, or as many simulated ones as the settings request.
///
/// # Errors
/// If the settings are invalid or the state directory cannot be used.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<RunningAgents> {
    let mut tasks = Vec::new();
    if settings.simulate == 0 {
        credentials::enrol(&settings, &shutdown).await?;
        start_agent(&settings, &shutdown, &mut tasks)?;
    }
    for settings in settings.simulated_agents() {
        start_agent(&settings, &shutdown, &mut tasks)?;
        // Starting many agents must not block other work of this process.
        tokio::task::yield_now().await;
    }
    Ok(RunningAgents { tasks })
}

fn start_agent(
    settings: &Settings,
    shutdown: &Shutdown,
    tasks: &mut Vec<JoinHandle<()>>,
) -> anyhow::Result<()> {
    let node = settings.node()?;
    let agent_instance = fresh_uuid().simple().to_string();
    let (event_sender, events) = mpsc::channel(EVENT_QUEUE);
    let (tenure_sender, tenure) = watch::channel(None);
    let (runtime, boot_id) = create_runtime(settings, event_sender, &tenure)?;
    let inventory = read_inventory(settings, runtime.as_ref())?;
    let (state_dir, opened) = open_journal(settings, &boot_id)?;
    // With a lost journal, heartbeats wait for the first desired set. A previous agent may have
    // started its entries. All entries that follow the first heartbeat are new (I3).
    let wait_for_orders = opened.doubt == Some(Doubt::Lost);
    let last_applied = opened.last_applied();
    let (status_sender, status) = watch::channel(AgentStatus::default());
    let channels = AgentChannels {
        status: status_sender,
        tenure,
    };
    let agent = Agent::new(
        Arc::clone(&runtime),
        opened,
        boot_id.clone(),
        channels,
        Traces::new(node.clone()),
    )?;
    let (update_sender, updates) = mpsc::channel(4);
    let token = settings.token()?;
    let client_for = |urls: &str| Client::from_list(urls, token.clone());
    let container_manager = client_for(&settings.container_manager_url)?;
    let node_status = client_for(&settings.node_status_url)?;

    let heartbeats = heartbeat::Heartbeats {
        client: node_status.clone(),
        node: node.clone(),
        condition: NodeCondition {
            boot_id: boot_id.clone(),
            agent_instance: agent_instance.clone(),
            inventory,
            available_runtimes: runtime_lister(Arc::clone(&runtime)),
            reader: state_dir.clone().map(|dir| NodeReader::new(settings, dir)),
        },
        status: status.clone(),
        wait_for_orders,
        lease_writer: LeaseWriter {
            file: state_dir.as_deref().map(lease::lease_file),
            boot_id: boot_id.clone(),
            tenure: tenure_sender,
        },
    };
    let follower = desired_set::DesiredSetFollower {
        client: container_manager.clone(),
        node: node.clone(),
        position_file: state_dir.as_deref().map(desired_set::position_file),
        last_applied,
        updates: update_sender,
    };
    let renewal = credentials::Renewal::new(settings, node_status, token)?;
    let identity = Identity {
        node,
        boot_id,
        agent_instance,
    };
    let (reporter, output_sender) = create_reporters(container_manager, identity, runtime, status);

    let loops = Loops {
        agent,
        inputs: AgentInputs { updates, events },
        end_containers: settings.end_containers_on_exit,
        renewal,
        heartbeats,
        follower,
        reporter,
        output_sender,
    };
    loops.spawn(shutdown, tasks);
    Ok(())
}

/// Identity of an agent in its reports.
struct Identity {
    node: NodeName,
    boot_id: String,
    agent_instance: String,
}

/// Creates the loops that report containers and output to container-manager.
fn create_reporters(
    client: Client,
    identity: Identity,
    runtime: Arc<dyn Runtime>,
    status: watch::Receiver<AgentStatus>,
) -> (report::Reporter, output_sender::OutputSender) {
    let (flushed_sender, flushed) = watch::channel(report::Flushed::default());
    let reporter = report::Reporter {
        client: client.clone(),
        node: identity.node.clone(),
        boot_id: identity.boot_id,
        agent_instance: identity.agent_instance,
        status: status.clone(),
        flushed,
    };
    let output_sender = output_sender::OutputSender {
        client,
        node: identity.node,
        runtime,
        status,
        flushed: flushed_sender,
    };
    (reporter, output_sender)
}

/// Opens the journal in the state directory, if the runtime has one.
fn open_journal(
    settings: &Settings,
    boot_id: &str,
) -> anyhow::Result<(Option<PathBuf>, journal::OpenedJournal)> {
    let state_dir = match settings.runtime {
        RuntimeKind::Process => settings.state_dir.clone(),
        RuntimeKind::Simulated => None,
    };
    let opened = match &state_dir {
        Some(dir) => Journal::open(dir, boot_id).context("cannot open the journal")?,
        None => Journal::in_memory(),
    };
    Ok((state_dir, opened))
}

/// The control loop of an agent, and the loops that call services.
struct Loops {
    agent: Agent,
    inputs: AgentInputs,
    end_containers: bool,
    renewal: credentials::Renewal,
    heartbeats: heartbeat::Heartbeats,
    follower: desired_set::DesiredSetFollower,
    reporter: report::Reporter,
    output_sender: output_sender::OutputSender,
}

impl Loops {
    fn spawn(self, shutdown: &Shutdown, tasks: &mut Vec<JoinHandle<()>>) {
        // The other loops continue until the agent has stopped.
        let agent_stopped = Shutdown::new();
        tasks.push(tokio::spawn(self.renewal.run(agent_stopped.clone())));
        tasks.push(tokio::spawn(self.heartbeats.run(agent_stopped.clone())));
        tasks.push(tokio::spawn(self.follower.run(shutdown.clone())));
        tasks.push(tokio::spawn(self.reporter.run(agent_stopped.clone())));
        tasks.push(tokio::spawn(self.output_sender.run(agent_stopped.clone())));
        let (agent, inputs) = (self.agent, self.inputs);
        let (shutdown, end_containers) = (shutdown.clone(), self.end_containers);
        tasks.push(tokio::spawn(async move {
            agent.run(inputs, shutdown, end_containers).await;
            agent_stopped.begin();
        }));
    }
}

/// Returns a function that lists the available runtimes.
fn runtime_lister(runtime: Arc<dyn Runtime>) -> node_condition::RuntimeLister {
    Box::new(move || runtime.available_runtimes())
}

/// Creates the runtime, and returns the boot id of its node.
fn create_runtime(
    settings: &Settings,
    events: EventSender,
    tenure: &watch::Receiver<Option<Tenure>>,
) -> anyhow::Result<(Arc<dyn Runtime>, String)> {
    if settings.runtime == RuntimeKind::Simulated {
        let behaviour = Behaviour {
            source: tasks::TaskSource::new(&settings.job_converter_url, &settings.token()?),
            container_ms: settings.simulated_container_ms,
            task_ms: settings.simulated_task_ms,
            failure_percent: settings.simulated_failure_percent,
            fault: settings.simulated_fault,
        };
        let boot_id = fresh_uuid().simple().to_string();
        let simulated = SimulatedRuntime::new(behaviour, events, tenure.clone());
        return Ok((Arc::new(simulated), boot_id));
    }
    let state_dir = settings
        .state_dir
        .as_ref()
        .context("the setting `state_dir` is missing")?;
    std::fs::create_dir_all(state_dir)
        .with_context(|| format!("cannot make {}", state_dir.display()))?;
    let state_dir = std::path::absolute(state_dir)?;
    let accounts = settings.accounts()?;
    if accounts.uses_agent_account() {
        tracing::warn!(
            "everybody's work runs as the agent's own account, because the agent is not root: any \
             user's task here can read the node's credential and the files of all others"
        );
    }
    let docker = settings.docker(&state_dir, &accounts)?;
    let boot_id = process_identity::boot_id();
    let process_settings = ProcessSettings {
        command: settings.command()?,
        source: tasks::TaskSource::new(&settings.job_converter_url, &settings.token()?),
        node: settings.node()?.to_string(),
        output_limit_bytes: settings.output_limit_bytes,
        processes_limit: settings.processes_limit,
        accounts,
        groups: Cgroups::detect(
            settings.cgroup_root.as_deref(),
            &cgroups::owner_prefix(&state_dir),
        ),
        state_dir,
        boot_id: boot_id.clone(),
        launch_limit: Duration::from_millis(settings.launch_limit_ms),
    };
    anyhow::ensure!(
        docker.is_some() || !Docker::has_leftovers(&process_settings.state_dir),
        "containers of an engine are left from before, but the setting `docker_socket` is missing: \
         set it again, so that they can be reported"
    );
    let docker = docker.map(|docker| Docker::new(docker, events.clone()));
    let processes = Processes::new(process_settings, events.clone())
        .context("cannot use the state directory")?;
    let real = RealRuntime::new(processes, docker.transpose()?, events);
    Ok((Arc::new(real), boot_id))
}

fn read_inventory(settings: &Settings, runtime: &dyn Runtime) -> anyhow::Result<Inventory> {
    let detected = node_resources::capacity();
    let mut labels = settings.label_map()?;
    labels.extend(runtime.labels());
    let mut capacity = Size {
        memory_bytes: settings.memory_bytes.unwrap_or(detected.memory_bytes),
        cpu_milli: settings.cpu_milli.unwrap_or(detected.cpu_milli),
        gpu_milli: settings.gpu_milli.unwrap_or(detected.gpu_milli),
        ..detected
    };
    if settings.docker_socket.is_some() {
        // The capacity stays even if the engine does not answer, because a smaller one would move
        // work away (F31).
        capacity
            .extras
            .insert(ENGINE.to_owned(), MAX_ENGINE_CONTAINERS);
    }
    Ok(Inventory {
        capacity,
        pool: settings.pool.clone(),
        labels,
        runtimes: runtime.available_runtimes(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Runs the command line of the program: `[agent] [flags]`, `supervise DIR`, `run-tasks` or
/// `launch`.
pub fn cli() -> ExitCode {
    run(std::env::args_os().skip(1), Vec::new())
}

/// Runs the command line like [`cli`], for a program that embeds the agent. `args` are the
/// arguments after those of the embedding program. `command` starts the agent again, unless the
/// setting `command` is set.
pub fn run(args: impl Iterator<Item = OsString>, command: Vec<String>) -> ExitCode {
    let mut args = args.peekable();
    match args.peek().and_then(|argument| argument.to_str()) {
        Some("supervise") => match args.nth(1).map(PathBuf::from) {
            Some(dir) => supervisor::main(Path::new(&dir)),
            None => ExitCode::FAILURE,
        },
        Some("run-tasks") => tasks::main(),
        Some("launch") => launcher::main(),
        Some("agent") => serve(args.skip(1), command),
        _ => serve(args, command),
    }
}

fn serve(args: impl Iterator<Item = OsString>, command: Vec<String>) -> ExitCode {
    match serve_until_stopped(args, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayward-node-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve_until_stopped(
    args: impl Iterator<Item = OsString>,
    command: Vec<String>,
) -> anyhow::Result<()> {
    let mut settings: Settings = hayward_service::config::load(NAME, args)?;
    if settings.command.is_empty() {
        settings.command = command;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let telemetry = telemetry::init(NAME, &settings.server_settings())?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        let server_settings = settings.server_settings();
        let running = start(settings, shutdown).await?;
        tokio::select! {
            () = running.wait() => {}
            () = log_insecure_modes(NAME, &server_settings) => {}
        }
        Ok(())
    });
    telemetry.shutdown();
    result
}
