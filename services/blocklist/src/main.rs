//! `hayward-blocklist`: the service as a process of its own.

use hayward_service::shutdown::Shutdown;
use hayward_service::{client, settings, telemetry};

fn main() -> anyhow::Result<()> {
    hayward_service::runtime()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    client::install_crypto();
    let settings: hayward_blocklist::Settings =
        settings::load("blocklist", std::env::args_os().skip(1))?;
    let telemetry = telemetry::init("blocklist", &settings.frame)?;
    let running = hayward_blocklist::start(settings, Shutdown::on_signals()?).await?;
    let ended = running.stopped().await;
    tokio::task::spawn_blocking(move || telemetry.shutdown()).await?;
    ended
}
