//! `hayward demo`: runs a new fleet with real work of two users, blocks a node half way, and
//! compares every result with a direct computation.

mod files_to_hash;
mod live_view;
mod report;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use hayward_service::{Shutdown, telemetry};

use self::files_to_hash::UserFiles;
use self::live_view::LiveView;
use self::work::DemoWork;
use crate::commands::fleet::up::{self, LocalFleet};
use crate::local_services::Ports;
use crate::remote_connection_flags::RemoteEndpoints;
use crate::state_directory::State;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Hash every regular file below this directory. Default: the files of this repository, without
    /// `.git` and `target`.
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Milliseconds that each task waits before it hashes, so that the progress can be watched.
    /// Default: a wait with which the demo takes about fifteen seconds; no wait for many files.
    #[arg(long, value_name = "MS")]
    pub pace: Option<u64>,
}

pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_signals()?;
    let _telemetry = telemetry::init("demo", &up::server_settings(&RemoteEndpoints::default()))?;
    let files = files_to_hash::list_files(arguments.dir.as_deref())?;
    if files.is_empty() {
        bail!("there is no regular file to hash");
    }
    let home = tempfile::Builder::new().prefix("hayward-demo-").tempdir()?;
    let state = State::open(home.path().join("state"))?;
    // The account that runs the private database must be able to enter this folder.
    std::fs::set_permissions(
        home.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o711),
    )?;
    let files = files_to_hash::make_readable(files, &home.path().join("files"))?;
    println!("Starting Postgres, five services and three node agents …");
    let options = up::Arguments {
        docker: None,
        docker_mountable: Vec::new(),
        port: 0,
        agents: 3,
        database_url: None,
        remote_endpoints: RemoteEndpoints::default(),
        scrape_listen: None,
        unlimited: false,
    };
    // The services have their own shutdown signal, because they stop after the agents.
    let services_shutdown = Shutdown::new();
    let fleet = tokio::select! {
        fleet = LocalFleet::start(state, Ports::free()?, &options, &services_shutdown) => fleet?,
        () = shutdown.wait() => {
            services_shutdown.begin();
            bail!("stopped while starting");
        }
    };
    let outcome = tokio::select! {
        outcome = run_demo(&fleet, &files, arguments.pace) => outcome,
        () = shutdown.wait() => {
            Err(anyhow::anyhow!("stopped before the end; nothing is left running"))
        }
    };
    let stopped = fleet.stop(&services_shutdown).await;
    let succeeded = outcome?;
    stopped.context("the fleet did not stop in order")?;
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the demonstration on a running fleet. Returns true if all checks succeeded.
async fn run_demo(
    fleet: &LocalFleet,
    files: &[PathBuf],
    pause_ms: Option<u64>,
) -> anyhow::Result<bool> {
    let pause_ms = pause_ms.unwrap_or_else(|| files_to_hash::default_pause_ms(files.len()));
    let (ada, ben) = files_to_hash::divide(files);
    println!(
        "{} files: {} for ada (class high, weight 200), {} for ben (class normal, weight 100){}",
        files.len(),
        ada.len(),
        ben.len(),
        if pause_ms > 0 {
            format!("; each task rests {pause_ms} ms first")
        } else {
            String::new()
        },
    );
    let work = DemoWork::submit(
        fleet,
        &[
            UserFiles::new("ada", "high", ada),
            UserFiles::new("ben", "normal", ben),
        ],
        pause_ms,
    )
    .await?;
    let mut live_view = LiveView::new(&work);
    let mut has_blocked_node = false;
    loop {
        let state = work.read_state().await?;
        live_view.update(&state);
        if state.jobs.iter().all(|job| job.state.is_final()) {
            break;
        }
        if !has_blocked_node && state.finished_tasks() * 2 >= state.total_tasks() {
            has_blocked_node = true;
            let node = work.block_busiest_node(fleet).await?;
            live_view.print_line(&format!(
                "half way: {node} is blocked and emptied; its work starts elsewhere"
            ));
        }
    }
    live_view.finish();
    let state = work.read_state().await?;
    let all_correct = report::check_and_print(&work, &state).await?;
    work.cancel_remaining().await?;
    Ok(all_correct)
}
