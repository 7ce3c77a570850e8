//! The node agent makes one machine match what it should run.
//!
//! It listens on no port (S13). It tells node-status that the machine is there ([`heartbeat`]),
//! follows the node's own desired set ([`follow`]), acts on it ([`agent`]), and tells
//! container-manager what runs ([`report`]) and what it says ([`output`]). It owns a directory with
//! its [`journal`] and one directory per container; the containers outlive it, each behind its
//! [`supervisor`]. It never decides what should run, and ends nothing because a service is down but
//! exclusive work, whose [`lease`] then runs out.
//!
//! The program has three faces: `agent`, `supervise DIR`, and `run-tasks` ([`tasks`]), the program
//! of containers that work through a job's tasks.

mod agent;
mod backoff;
mod config;
mod credentials;
#[cfg(feature = "fault-points")]
pub mod fault_points;
#[cfg(not(feature = "fault-points"))]
mod fault_points;
mod files;
mod follow;
mod heartbeat;
mod journal;
mod lease;
mod log_segments;
mod machine;
mod node_condition;
mod orphan_processes;
mod output;
mod output_tail;
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
use hayward_service::http::insecure_modes::remind_of;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_service::{Client, Shutdown, telemetry};
use hayward_vocabulary::launch::{ENGINE, ENGINE_PLACES};
use hayward_vocabulary::{NodeName, Size};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use config::{RuntimeKind, Settings};

use agent::{Agent, Board, Ears, Lives};
use journal::Journal;
use lease::Keeper;
use node_condition::{Condition, Machine};
use run_as::{Accounts, Own};
use runtime::cgroups::{self, Groups};
use runtime::docker::Docker;
use runtime::process::{Conditions, Processes};
use runtime::real::Real;
use runtime::simulated::{Behaviour, Simulated};
use runtime::{NewsSender, Runtime};

pub const NAME: &str = "node-agent";
/// News of containers that may wait to be heard.
const NEWS: usize = 256;

/// Started agents.
pub struct Running {
    parts: Vec<JoinHandle<()>>,
}

impl Running {
    /// Until the shutdown was said and obeyed.
    pub async fn wait(self) {
        for part in self.parts {
            if let Err(error) = part.await {
                tracing::error!(%error, "a part of the agent broke");
            }
        }
    }
}

/// Starts the agent, or as many simulated ones as the settings ask for.
///
/// # Errors
/// When the settings make no sense or the state directory cannot be used.
pub async fn start(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Running> {
    let mut parts = Vec::new();
    if settings.simulate == 0 {
        credentials::enrolled(&settings, &shutdown).await?;
        start_one(&settings, &shutdown, &mut parts)?;
    }
    for one in settings.simulated() {
        start_one(&one, &shutdown, &mut parts)?;
        // Many agents at once leave the others of this process their turn.
        tokio::task::yield_now().await;
    }
    Ok(Running { parts })
}

fn start_one(
    settings: &Settings,
    shutdown: &Shutdown,
    parts: &mut Vec<JoinHandle<()>>,
) -> anyhow::Result<()> {
    let node = settings.node()?;
    let agent_instance = fresh_uuid().simple().to_string();
    let (says, news) = mpsc::channel(NEWS);
    let (grants, tenure) = watch::channel(None);
    let (runtime, boot_id) = machine_of(settings, says, &tenure)?;
    let inventory = inventory(settings, runtime.as_ref())?;
    let (state_dir, opened) = remembered(settings, &boot_id)?;
    // A node whose journal is lost is not there before it has seen its orders: whatever was ordered
    // by then was meant for an earlier life, and nothing that is ordered later is in doubt (I3).
    let waits = opened.doubt == Some(Doubt::Lost);
    let obeyed = opened.obeyed();
    let (shows, board) = watch::channel(Board::default());
    let agent = Agent::new(
        Arc::clone(&runtime),
        opened,
        boot_id.clone(),
        shows,
        (tenure, Lives::new(node.clone())),
    )?;
    let (tells, updates) = mpsc::channel(4);
    let token = settings.token()?;
    let to = |urls: &str| Client::from_list(urls, token.clone());
    let container_manager = to(&settings.container_manager_url)?;
    let node_status = to(&settings.node_status_url)?;

    let heart = heartbeat::Heart {
        client: node_status.clone(),
        node: node.clone(),
        condition: Condition {
            boot_id: boot_id.clone(),
            agent_instance: agent_instance.clone(),
            inventory,
            offers: offered_by(Arc::clone(&runtime)),
            machine: state_dir.clone().map(|dir| Machine::new(settings, dir)),
        },
        board: board.clone(),
        waits,
        keeper: Keeper {
            file: state_dir.as_deref().map(lease::file),
            boot_id: boot_id.clone(),
            tenure: grants,
        },
    };
    let follower = follow::Follower {
        client: container_manager.clone(),
        node: node.clone(),
        position: state_dir.as_deref().map(journal::position_file),
        obeyed,
        updates: tells,
    };
    let renewal = credentials::Renewal::of(settings, node_status, token)?;
    let (reporter, shipper) = tellers(
        (container_manager, node),
        (boot_id, agent_instance),
        runtime,
        board,
    );

    let speakers = Speakers {
        renewal,
        heart,
        follower,
        reporter,
        shipper,
    };
    let (ears, end_containers) = (Ears { updates, news }, settings.end_containers_on_exit);
    speakers.begin((agent, ears), shutdown, end_containers, parts);
    Ok(())
}

/// Who tells container-manager what runs here, and what it writes.
fn tellers(
    (client, node): (Client, NodeName),
    (boot_id, agent_instance): (String, String),
    runtime: Arc<dyn Runtime>,
    board: watch::Receiver<Board>,
) -> (report::Reporter, output::Shipper) {
    let (empties, drained) = watch::channel(output::Drained::default());
    let reporter = report::Reporter {
        client: client.clone(),
        node: node.clone(),
        boot_id,
        agent_instance,
        board: board.clone(),
        drained,
    };
    let shipper = output::Shipper {
        client,
        node,
        runtime,
        board,
        drained: empties,
    };
    (reporter, shipper)
}

/// Where it keeps what it knows, and what it knew.
fn remembered(
    settings: &Settings,
    boot_id: &str,
) -> anyhow::Result<(Option<PathBuf>, journal::Opened)> {
    let state_dir = match settings.runtime {
        RuntimeKind::Process => settings.state_dir.clone(),
        RuntimeKind::Simulated => None,
    };
    let opened = match &state_dir {
        Some(dir) => Journal::open(dir, boot_id).context("cannot open the journal")?,
        None => Journal::nowhere(),
    };
    Ok((state_dir, opened))
}

/// Everything of an agent that speaks to a service.
struct Speakers {
    renewal: credentials::Renewal,
    heart: heartbeat::Heart,
    follower: follow::Follower,
    reporter: report::Reporter,
    shipper: output::Shipper,
}

impl Speakers {
    fn begin(
        self,
        (agent, ears): (Agent, Ears),
        shutdown: &Shutdown,
        end_containers: bool,
        parts: &mut Vec<JoinHandle<()>>,
    ) {
        // The others speak on until the agent has done its last deed.
        let over = Shutdown::new();
        parts.push(tokio::spawn(self.renewal.keep(over.clone())));
        parts.push(tokio::spawn(self.heart.run(over.clone())));
        parts.push(tokio::spawn(self.follower.run(shutdown.clone())));
        parts.push(tokio::spawn(self.reporter.run(over.clone())));
        parts.push(tokio::spawn(self.shipper.run(over.clone())));
        let shutdown = shutdown.clone();
        parts.push(tokio::spawn(async move {
            agent.run(ears, shutdown, end_containers).await;
            over.begin();
        }));
    }
}

fn offered_by(runtime: Arc<dyn Runtime>) -> node_condition::Offers {
    Box::new(move || runtime.offers())
}

/// The machine to run things on, and its boot.
fn machine_of(
    settings: &Settings,
    news: NewsSender,
    tenure: &watch::Receiver<Option<Tenure>>,
) -> anyhow::Result<(Arc<dyn Runtime>, String)> {
    if settings.runtime == RuntimeKind::Simulated {
        let behaviour = Behaviour {
            lender: tasks::Lender::new(&settings.job_converter_url, &settings.token()?),
            container_ms: settings.simulated_container_ms,
            task_ms: settings.simulated_task_ms,
            failure_percent: settings.simulated_failure_percent,
            fault: settings.simulated_fault,
        };
        let boot_id = fresh_uuid().simple().to_string();
        let simulated = Simulated::new(behaviour, news, tenure.clone());
        return Ok((Arc::new(simulated), boot_id));
    }
    let state_dir = settings
        .state_dir
        .as_ref()
        .context("the setting `state_dir` is missing")?;
    std::fs::create_dir_all(state_dir)
        .with_context(|| format!("cannot make {}", state_dir.display()))?;
    let state_dir = std::path::absolute(state_dir)?;
    let accounts = Accounts::new(
        Own::now(),
        &settings.run_as_users,
        (settings.run_as_uid, settings.run_as_gid),
    )?;
    if accounts.is_the_agents() {
        tracing::warn!("work runs as the agent's own account, because the agent is not root");
    }
    let docker = settings.docker(&state_dir, &accounts)?;
    let boot_id = machine::boot_id();
    let conditions = Conditions {
        command: settings.command()?,
        lender: tasks::Lender::new(&settings.job_converter_url, &settings.token()?),
        output_limit_bytes: settings.output_limit_bytes,
        processes_limit: settings.processes_limit,
        accounts,
        groups: Groups::detect(settings.cgroup_root.as_deref(), &cgroups::owner(&state_dir)),
        state_dir,
        boot_id: boot_id.clone(),
        launch_limit: Duration::from_millis(settings.launch_limit_ms),
    };
    anyhow::ensure!(
        docker.is_some() || !Docker::left_behind(&conditions.state_dir),
        "containers of an engine are still here, and the setting `docker_socket` is gone: set it \
         again, so that they can be told of"
    );
    let docker = docker.map(|docker| Docker::new(docker, news.clone()));
    let processes =
        Processes::new(conditions, news.clone()).context("cannot use the state directory")?;
    let real = Real::new(processes, docker.transpose()?, news);
    Ok((Arc::new(real), boot_id))
}

fn inventory(settings: &Settings, runtime: &dyn Runtime) -> anyhow::Result<Inventory> {
    let real = machine::capacity();
    let mut labels = settings.label_map()?;
    labels.extend(runtime.labels());
    let mut capacity = Size {
        memory_bytes: settings.memory_bytes.unwrap_or(real.memory_bytes),
        cpu_milli: settings.cpu_milli.unwrap_or(real.cpu_milli),
        gpu_milli: settings.gpu_milli.unwrap_or(real.gpu_milli),
        ..real
    };
    if settings.docker_socket.is_some() {
        // Also while the engine does not answer: room that shrinks moves work away (F31).
        capacity.extras.insert(ENGINE.to_owned(), ENGINE_PLACES);
    }
    Ok(Inventory {
        capacity,
        pool: settings.pool.clone(),
        labels,
        runtimes: runtime.offers(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// The command line of the program: `[agent] [flags]`, `supervise DIR` or `run-tasks`.
pub fn cli() -> ExitCode {
    run(std::env::args_os().skip(1), Vec::new())
}

/// As [`cli`], for a program that has this one inside: `args` begin after its own words, and
/// `again` starts it with those words where the setting `command` says nothing else.
pub fn run(args: impl Iterator<Item = OsString>, again: Vec<String>) -> ExitCode {
    let mut args = args.peekable();
    match args.peek().and_then(|word| word.to_str()) {
        Some("supervise") => match args.nth(1).map(PathBuf::from) {
            Some(dir) => supervisor::main(Path::new(&dir)),
            None => ExitCode::FAILURE,
        },
        Some("run-tasks") => tasks::main(),
        Some("agent") => serve(args.skip(1), again),
        _ => serve(args, again),
    }
}

fn serve(args: impl Iterator<Item = OsString>, again: Vec<String>) -> ExitCode {
    match serve_until_stopped(args, again) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hayward-node-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve_until_stopped(
    args: impl Iterator<Item = OsString>,
    again: Vec<String>,
) -> anyhow::Result<()> {
    let mut settings: Settings = hayward_service::config::load(NAME, args)?;
    if settings.command.is_empty() {
        settings.command = again;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let telemetry = telemetry::init(NAME, &settings.frame())?;
    let ended = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        let told = settings.frame();
        let running = start(settings, shutdown).await?;
        // S3
        tokio::select! {
            () = running.wait() => {}
            () = remind_of(NAME, &told) => {}
        }
        Ok(())
    });
    telemetry.shutdown();
    ended
}
