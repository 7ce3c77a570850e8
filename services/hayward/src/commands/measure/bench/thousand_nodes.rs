//! Measures a fleet of a thousand simulated nodes: container starts per second, and memory of each
//! service with ten thousand live containers.

use std::time::Instant;

use anyhow::ensure;
use hayward_service::runtime::clock;
use serde_json::{Value, json};

use super::report::{Comparison, Report};
use super::service_process::ServiceProcess;
use super::simulated_fleet::{SimulatedFleet, read_order_and_start_times, wait_until};
use super::to_f64;

const NODES: u32 = 1_000;
const GIB: u64 = 1 << 30;
/// Bytes of memory of each node, for ten processes with a reserve.
const MEMORY_BYTES: u64 = 12 * GIB;

pub async fn measure(containers: u64, report: &mut Report) -> anyhow::Result<()> {
    ensure!(
        (100..=10_000).contains(&containers),
        "--containers takes 100 to 10,000"
    );
    let fleet = SimulatedFleet::start(NODES, MEMORY_BYTES).await?;
    let result = measure_starts(&fleet, containers, report).await;
    fleet.stop().await?;
    result
}

async fn measure_starts(
    fleet: &SimulatedFleet,
    containers: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (addresses, services) = (&fleet.addresses, &fleet.services);
    let manager = fleet.client(&addresses.container_manager, "operator")?;
    let jobs = fleet.client(&addresses.job_converter, "user-bench")?;
    let idle = resident_memory(services)?;
    let submission = json!({
        "command": ["sleep", "1000"], "instances": containers, "size": { "memory_bytes": GIB },
    });
    let key = clock::fresh_uuid().to_string();
    let started = Instant::now();
    let _: Value = jobs.post("/v1/services", &submission, Some(&key)).await?;
    let (first, last) = wait_until("all containers run", async || {
        read_order_and_start_times(&manager, containers)
            .await
            .ok()
            .flatten()
    })
    .await?;
    let elapsed_ms = last.ms_since(first).max(1);
    report.add_rates(
        &format!("{containers} containers started over {NODES} simulated nodes"),
        Comparison {
            figure: to_f64(containers) * 1000.0 / to_f64(elapsed_ms),
            // The baseline is the rate at which nodes get their containers.
            baseline: to_f64(NODES.into()) * 1000.0 / to_f64(elapsed_ms),
        },
        "/s",
        "nodes /s",
    );
    let observed_ms = started.elapsed().as_millis();
    report.add_figure(
        "the same, from submission until all were seen to run",
        format!("{observed_ms} ms"),
    );
    let full = resident_memory(services)?;
    for ((name, before), (_, after)) in idle.into_iter().zip(full) {
        let label = format!("memory of {name}, {containers} live containers");
        report.add_rates(
            &label,
            Comparison {
                figure: to_f64(after),
                baseline: to_f64(before),
            },
            "MiB",
            "with none",
        );
    }
    Ok(())
}

/// Returns the resident memory of each service in MiB.
fn resident_memory(
    services: &[(&'static str, ServiceProcess)],
) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let all = services.iter();
    all.map(|(name, process)| Ok((*name, process.resident_mib()?)))
        .collect()
}
