//! Measures requests per second over HTTP: submissions and heartbeats. Each client waits for a
//! response before its next request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hayward_job_converter_api::submission::{
    BulkSubmission, BulkSubmitted, JobSubmission, Submitted, Tasks,
};
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, Inventory, Metrics};
use hayward_service::Client;
use hayward_service::runtime::clock;
use hayward_vocabulary::{NodeName, Size};

use super::fleet::BenchFleet;
use super::report::{Comparison, Report};
use super::to_f64;
use crate::prepare;

/// Number of clients that send requests in parallel.
const CLIENTS: usize = 32;
/// Number of jobs in one bulk request.
const BULK_SIZE: usize = 1_000;

/// Returns a job whose tasks do nothing.
pub fn noop_job(tasks: u64) -> JobSubmission {
    JobSubmission {
        command: vec!["true".into()],
        tasks: Tasks::Count(tasks),
        ..JobSubmission::default()
    }
}

pub async fn measure_submissions(
    bench: &BenchFleet,
    seconds: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    prepare::create_user_token(&bench.fleet.keys, "bench")?;
    let url = &bench.fleet.addresses.job_converter;
    let client = bench.fleet.client(url, "user-bench")?;
    let single_rate = measure_rate(1, seconds, || submit(client.clone())).await?;
    let parallel_rate = measure_rate(CLIENTS, seconds, || submit(client.clone())).await?;
    report.add_rates(
        "jobs submitted, 32 clients",
        Comparison {
            figure: parallel_rate,
            baseline: single_rate,
        },
        "/s",
        "with one client",
    );
    let bulk_rate =
        measure_rate(2, seconds, || submit_bulk(client.clone())).await? * to_f64(BULK_SIZE as u64);
    report.add_rates(
        "jobs submitted, bulks of 1,000",
        Comparison {
            figure: bulk_rate,
            baseline: parallel_rate,
        },
        "/s",
        "one per request",
    );
    Ok(())
}

async fn submit(client: Client) -> anyhow::Result<()> {
    let key = clock::fresh_uuid().to_string();
    let _: Submitted = client.post("/v1/jobs", &noop_job(1), Some(&key)).await?;
    Ok(())
}

async fn submit_bulk(client: Client) -> anyhow::Result<()> {
    let key = clock::fresh_uuid().to_string();
    let body = BulkSubmission {
        jobs: vec![noop_job(1); BULK_SIZE],
    };
    let response: BulkSubmitted = client.post("/v1/jobs/bulk", &body, Some(&key)).await?;
    ensure!(
        response.results.iter().all(|result| result.id.is_some()),
        "a job was refused"
    );
    Ok(())
}

pub async fn measure_heartbeats(
    bench: &BenchFleet,
    seconds: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let node = NodeName::new("bench-1")?;
    prepare::create_agent_token(&bench.fleet.keys, &node)?;
    let client = bench
        .fleet
        .client(&bench.fleet.addresses.node_status, "agent-bench-1")?;
    let operator = bench
        .fleet
        .client(&bench.fleet.addresses.node_status, "operator")?;
    let noop_rate = measure_rate(CLIENTS, seconds, || get_livez(operator.clone())).await?;
    // The first heartbeat adds the node, so all measured ones change nothing.
    send_heartbeat(client.clone()).await?;
    let heartbeat_rate = measure_rate(CLIENTS, seconds, || send_heartbeat(client.clone())).await?;
    report.add_rates(
        "heartbeats, nothing changed",
        Comparison {
            figure: heartbeat_rate,
            baseline: noop_rate,
        },
        "/s",
        "requests that do nothing",
    );
    Ok(())
}

async fn get_livez(client: Client) -> anyhow::Result<()> {
    let _: hayward_service::health::ProbeResponse = client.get("/livez").await?;
    Ok(())
}

async fn send_heartbeat(client: Client) -> anyhow::Result<()> {
    let heartbeat = Heartbeat {
        boot_id: "bench".into(),
        agent_instance: "bench".into(),
        inventory: Inventory {
            capacity: Size::memory(1 << 30),
            pool: None,
            labels: BTreeMap::new(),
            runtimes: vec!["simulated".into()],
            version: String::new(),
        },
        metrics: Metrics::default(),
        quiesced: false,
        quiesce_reason: None,
    };
    let _: HeartbeatAnswer = client
        .put("/v1/nodes/bench-1/heartbeat", &heartbeat)
        .await?;
    Ok(())
}

/// Repeats the call for this time. Returns the calls per second of `clients` together.
async fn measure_rate<F>(clients: usize, seconds: u64, call: impl Fn() -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..clients {
        running.spawn(call());
    }
    let mut calls = 0_u64;
    while let Some(finished) = running.join_next().await {
        finished??;
        calls += 1;
        if Instant::now() < end {
            running.spawn(call());
        }
    }
    Ok(to_f64(calls) / started.elapsed().as_secs_f64())
}
