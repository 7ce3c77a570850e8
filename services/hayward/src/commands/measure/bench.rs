//! `hayward bench`: measures performance on this machine. Each figure has a baseline from the same
//! run. A slow result is no failure.

mod abuse;
mod agents;
mod applications;
mod commits;
mod containers;
mod fleet;
mod http_client;
mod http_throughput;
mod keys_and_database;

mod report;
mod service_process;
mod simulated_fleet;
mod start_latency;
mod tasks;
mod thousand_nodes;

use std::process::ExitCode;

use anyhow::Context as _;
use hayward_service::{Shutdown, telemetry};

use self::fleet::BenchFleet;
use self::report::Report;
use crate::commands::fleet::up;
use crate::remote_connection_flags::RemoteEndpoints;

/// One benchmark, or several that share a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Benchmark {
    /// Published commands per second, with one commit each and with grouped commits.
    Commits,
    /// Accepted jobs per second, one per request and in bulk.
    Submissions,
    /// Heartbeats per second that change nothing.
    Heartbeats,
    /// Ten thousand agents against one node-status, and a thousand that return at once.
    Agents,
    /// Time from submission to the first instruction of the process.
    #[value(name = "latency")]
    StartLatency,
    /// Containers on one real node: start time, start rate, and adoption after a crash of the
    /// agent.
    Containers,
    /// Ten thousand containers on a thousand simulated nodes, and the memory of the services.
    #[value(name = "thousand")]
    ThousandNodes,
    /// Tasks of applications on five thousand simulated nodes.
    Applications,
    /// Tasks per second that do nothing, compared with spawning the program without Hayward.
    Tasks,
    /// Latency of normal clients next to slow, idle and greedy ones.
    #[value(name = "strangers")]
    AbusiveClients,
}

const ALL: [Benchmark; 10] = [
    Benchmark::Commits,
    Benchmark::Submissions,
    Benchmark::Heartbeats,
    Benchmark::Agents,
    Benchmark::StartLatency,
    Benchmark::Containers,
    Benchmark::ThousandNodes,
    Benchmark::Applications,
    Benchmark::Tasks,
    Benchmark::AbusiveClients,
];

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Benchmarks to run. Default: all.
    #[arg(value_enum)]
    pub benchmarks: Vec<Benchmark>,
    /// Seconds for which each rate is measured.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub seconds: u64,
    /// Number of tasks of the benchmark `tasks`.
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    pub tasks: u64,
    /// Number of agents of the benchmark `agents`.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub agents: u64,
    /// Number of containers of the benchmark `thousand`.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub containers: u64,
    /// Image of the benchmark `containers`. It has the program `sleep`, and is present in the
    /// container engine of this machine.
    #[arg(long, default_value = "hayward-test/shell:1", value_name = "IMAGE")]
    pub image: String,
}

pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let _telemetry = telemetry::init("bench", &up::server_settings(&RemoteEndpoints::default()))?;
    let benchmarks = if arguments.benchmarks.is_empty() {
        ALL.to_vec()
    } else {
        arguments.benchmarks.clone()
    };
    let mut report = Report::new();
    for benchmark in benchmarks {
        let (seconds, report) = (arguments.seconds, &mut report);
        match benchmark {
            Benchmark::Agents => agents::measure(arguments.agents, seconds, report).await?,
            Benchmark::Containers => containers::measure(&arguments.image, report).await?,
            Benchmark::ThousandNodes => {
                thousand_nodes::measure(arguments.containers, report).await?;
            }
            Benchmark::Applications => applications::measure(report).await?,
            Benchmark::AbusiveClients => abuse::measure(seconds, report).await?,
            _ => measure_on_new_fleet(benchmark, &arguments, report).await?,
        }
    }
    report.print();
    Ok(ExitCode::SUCCESS)
}

/// Runs one benchmark on a new fleet, so that benchmarks do not influence each other.
async fn measure_on_new_fleet(
    benchmark: Benchmark,
    arguments: &Arguments,
    report: &mut Report,
) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    // The other benchmarks measure services only.
    let agents = u32::from(matches!(
        benchmark,
        Benchmark::StartLatency | Benchmark::Tasks
    ));
    let bench = BenchFleet::start(agents, &shutdown)
        .await
        .context("cannot start a fleet")?;
    let result = measure(benchmark, &bench, arguments, report).await;
    bench.stop(&shutdown).await?;
    result
}

/// Converts a number for the report.
#[expect(clippy::cast_precision_loss, reason = "shown to people")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Runs one benchmark on this fleet.
async fn measure(
    benchmark: Benchmark,
    bench: &BenchFleet,
    arguments: &Arguments,
    report: &mut Report,
) -> anyhow::Result<()> {
    match benchmark {
        Benchmark::Commits => commits::measure(bench, arguments.seconds, report).await,
        Benchmark::Submissions => {
            http_throughput::measure_submissions(bench, arguments.seconds, report).await
        }
        Benchmark::Heartbeats => {
            http_throughput::measure_heartbeats(bench, arguments.seconds, report).await
        }
        // These benchmarks start their own fleets.
        Benchmark::Agents
        | Benchmark::Containers
        | Benchmark::ThousandNodes
        | Benchmark::Applications
        | Benchmark::AbusiveClients => Ok(()),
        Benchmark::StartLatency => start_latency::measure(bench, report).await,
        Benchmark::Tasks => tasks::measure(bench, arguments.tasks, report).await,
    }
}
