//! `hayward bench`: performance of this machine, each figure with a baseline of the same run. A
//! slow clock is no failure.

mod abuse;
mod agents;
mod commits;
mod containers;
mod environment;
mod fleet;
mod latency;
mod load;
mod process;
mod protocol;
mod report;
mod simulated_fleet;
mod tasks;
mod thousand_nodes;
mod wire;

use std::process::ExitCode;

use anyhow::Context as _;
use hayward_service::{Shutdown, telemetry};

use self::fleet::BenchFleet;
use self::report::Report;
use crate::commands::fleet::up;
use crate::remote_endpoints::RemoteEndpoints;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// Publishing commits, one by one and grouped.
    Commits,
    /// Jobs accepted, one per request and in bulk.
    Submissions,
    /// Heartbeats that change nothing.
    Heartbeats,
    /// Ten thousand agents against one node-status, and a thousand that return at once.
    Agents,
    /// From submission to the first instruction of the process.
    Latency,
    /// Containers on one real node: how soon and how many start, and are found after a crash.
    Containers,
    /// Ten thousand containers on a thousand pretended nodes, and what the services hold then.
    Thousand,
    /// Tasks of applications on five thousand pretended nodes.
    Applications,
    /// Tasks that do nothing, beside bare spawning of the same program.
    Tasks,
    /// What slow, idle and greedy strangers cost a caller who behaves.
    Strangers,
}

const ALL: [Which; 10] = [
    Which::Commits,
    Which::Submissions,
    Which::Heartbeats,
    Which::Agents,
    Which::Latency,
    Which::Containers,
    Which::Thousand,
    Which::Applications,
    Which::Tasks,
    Which::Strangers,
];

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// What to measure. Default: everything.
    #[arg(value_enum)]
    pub which: Vec<Which>,
    /// Seconds of load for each figure that is a rate.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub seconds: u64,
    /// Tasks that do nothing.
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    pub tasks: u64,
    /// Agents that beat every five seconds.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub agents: u64,
    /// Containers on a thousand pretended nodes.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub containers: u64,
    /// An image with `sleep` that the container engine of this machine has.
    #[arg(long, default_value = "hayward-test/shell:1", value_name = "IMAGE")]
    pub image: String,
}

pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let _telemetry = telemetry::init("bench", &up::quiet(&RemoteEndpoints::default()))?;
    let which = if arguments.which.is_empty() {
        ALL.to_vec()
    } else {
        arguments.which.clone()
    };
    let mut report = Report::new();
    for which in which {
        let report = &mut report;
        match which {
            Which::Agents => agents::measure(arguments.agents, arguments.seconds, report).await?,
            Which::Containers => containers::measure(&arguments.image, report).await?,
            Which::Thousand => thousand_nodes::measure(arguments.containers, report).await?,
            Which::Applications => protocol::measure(report).await?,
            Which::Strangers => abuse::measure(arguments.seconds, report).await?,
            _ => on_a_fleet(which, &arguments, report).await?,
        }
    }
    report.print();
    Ok(ExitCode::SUCCESS)
}

/// A new fleet for each figure, so that figures do not influence each other.
async fn on_a_fleet(
    which: Which,
    arguments: &Arguments,
    report: &mut Report,
) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    let agents = u32::from(matches!(which, Which::Latency | Which::Tasks));
    let bench = BenchFleet::start(agents, &shutdown)
        .await
        .context("cannot start a fleet")?;
    let result = measure(which, &bench, arguments, report).await;
    bench.stop(&shutdown).await?;
    result
}

#[expect(clippy::cast_precision_loss, reason = "shown to people")]
fn real(count: u64) -> f64 {
    count as f64
}

async fn measure(
    which: Which,
    bench: &BenchFleet,
    arguments: &Arguments,
    report: &mut Report,
) -> anyhow::Result<()> {
    match which {
        Which::Commits => commits::measure(bench, arguments.seconds, report).await,
        Which::Submissions => load::submissions(bench, arguments.seconds, report).await,
        Which::Heartbeats => load::heartbeats(bench, arguments.seconds, report).await,
        // These benchmarks start their own fleets.
        Which::Agents
        | Which::Containers
        | Which::Thousand
        | Which::Applications
        | Which::Strangers => Ok(()),
        Which::Latency => latency::measure(bench, report).await,
        Which::Tasks => tasks::measure(bench, arguments.tasks, report).await,
    }
}
