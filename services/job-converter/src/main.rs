//! The program of job-converter: settings, telemetry, start, wait, stop in order.

use hayward_job_converter::{NAME, Settings, start};
use hayward_service::{Shutdown, client, settings, telemetry};

fn main() -> anyhow::Result<()> {
    hayward_service::runtime()?.block_on(run())
}

async fn run() -> anyhow::Result<()> {
    client::install_crypto();
    let settings: Settings = settings::load(NAME, std::env::args_os().skip(1))?;
    let _telemetry = telemetry::init(NAME, &settings.frame)?;
    let shutdown = Shutdown::on_signals()?;
    start(settings, shutdown).await?.stopped().await
}
