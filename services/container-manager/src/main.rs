//! The container-manager process: settings, telemetry, start, wait for the signal.

use hayward_container_manager::{NAME, Settings, start};
use hayward_service::{Shutdown, client, settings, telemetry};

fn main() -> anyhow::Result<()> {
    hayward_service::runtime()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    client::install_crypto();
    let settings: Settings = settings::load(NAME, std::env::args_os().skip(1))?;
    let telemetry = telemetry::init(NAME, &settings.frame)?;
    let running = start(settings, Shutdown::on_signals()?).await?;
    running.stopped().await?;
    tokio::task::spawn_blocking(|| telemetry.shutdown()).await?;
    Ok(())
}
