//! Measures a fleet of a thousand simulated nodes: container starts per second, and memory of each
//! service with ten thousand live containers.

use std::time::Instant;

use anyhow::ensure;
use hayward_service::runtime::clock;
use serde_json::{Value, json};

use super::process::Process;
use super::real;
use super::report::{Pair, Report};
use super::simulated_fleet::{SimulatedFleet, running, until};

const NODES: u32 = 1_000;
const GIB: u64 = 1 << 30;
/// Bytes of memory of each node, for ten processes with a reserve.
const MEMORY: u64 = 12 * GIB;

pub async fn measure(containers: u64, report: &mut Report) -> anyhow::Result<()> {
    ensure!(
        (100..=10_000).contains(&containers),
        "--containers takes 100 to 10,000"
    );
    let fleet = SimulatedFleet::start(NODES, MEMORY).await?;
    let result = grow(&fleet, containers, report).await;
    fleet.stop().await?;
    result
}

async fn grow(fleet: &SimulatedFleet, containers: u64, report: &mut Report) -> anyhow::Result<()> {
    let (addresses, services) = (&fleet.addresses, &fleet.services);
    let manager = fleet.client(&addresses.container_manager, "operator")?;
    let jobs = fleet.client(&addresses.job_converter, "user-bench")?;
    let idle = resident(services)?;
    let order = json!({
        "command": ["sleep", "1000"], "instances": containers, "size": { "memory_bytes": GIB },
    });
    let key = clock::fresh_uuid().to_string();
    let began = Instant::now();
    let _: Value = jobs.post("/v1/services", &order, Some(&key)).await?;
    let (first, last) = until("all containers run", async || {
        running(&manager, containers).await.ok().flatten()
    })
    .await?;
    let took_ms = last.ms_since(first).max(1);
    report.rates(
        &format!("{containers} containers started over {NODES} pretended nodes"),
        Pair {
            figure: real(containers) * 1000.0 / real(took_ms),
            baseline: real(NODES.into()) * 1000.0 / real(took_ms),
        },
        "/s",
        "nodes /s",
    );
    let observed_ms = began.elapsed().as_millis();
    report.figure(
        "the same, submitted → all seen to run",
        format!("{observed_ms} ms"),
    );
    let full = resident(services)?;
    for ((name, before), (_, after)) in idle.into_iter().zip(full) {
        let what = format!("memory of {name}, {containers} live containers");
        report.rates(
            &what,
            Pair {
                figure: real(after),
                baseline: real(before),
            },
            "MiB",
            "with none",
        );
    }
    Ok(())
}

fn resident(services: &[(&'static str, Process)]) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let all = services.iter();
    all.map(|(name, process)| Ok((*name, process.resident_mib()?)))
        .collect()
}
