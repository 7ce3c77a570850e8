//! `hayward-faults SEED MINUTES` injects faults into a fleet and reports whether every promise
//! held. The same seed gives the same sequence of faults.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use hayward_tests_faults::plan::Seed;
use hayward_tests_faults::run::{RunConfig, run};

#[derive(Parser)]
struct Arguments {
    /// Seed of the sequence of faults.
    seed: u64,
    /// Minutes after which no new phase begins.
    minutes: u64,
    /// Number of faults in one phase.
    #[arg(long, default_value_t = 100)]
    faults: u32,
    /// Maximum number of phases.
    #[arg(long, default_value_t = u32::MAX)]
    phases: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    println!("seed {}", arguments.seed);
    let config = RunConfig {
        seed: Seed(arguments.seed),
        duration: Duration::from_secs(arguments.minutes.saturating_mul(60)),
        max_phases: arguments.phases,
        faults_per_phase: arguments.faults,
    };
    // The run starts tasks that stay on this thread, because they share a ledger without locks.
    let local = tokio::task::LocalSet::new();
    let summary = tokio::select! {
        summary = local.run_until(run(config)) => summary?,
        // The fleet ends its processes when it is dropped.
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    print!("{summary}");
    println!("seed {}", arguments.seed);
    Ok(if summary.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
