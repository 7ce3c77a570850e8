//! Measures load over HTTP: submissions and heartbeats. Each client waits for a response before its
//! next request.

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
use super::real;
use super::report::{Pair, Report};
use crate::prepare;

const CLIENTS: usize = 32;
const BULK: usize = 1_000;

pub fn noop(tasks: u64) -> JobSubmission {
    JobSubmission {
        queue: None,
        pool: None,
        priority: None,
        container: None,
        name: None,
        class: None,
        command: vec!["true".into()],
        tasks: Tasks::Count(tasks),
        environment: BTreeMap::new(),
        working_directory: None,
        size: None,
        max_processes: None,
        threads: None,
        max_attempts: None,
        machines: Vec::new(),
        labels: BTreeMap::new(),
        when_unreachable: None,
        disruption_limit: None,
    }
}

pub async fn submissions(
    bench: &BenchFleet,
    seconds: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    prepare::user_token(&bench.up.keys, "bench")?;
    let url = &bench.up.addresses.job_converter;
    let one = bench.up.client(url, "user-bench")?;
    let alone = repeat(1, seconds, || submit(one.clone())).await?;
    let many = repeat(CLIENTS, seconds, || submit(one.clone())).await?;
    report.rates(
        "jobs submitted, 32 clients",
        Pair {
            figure: many,
            baseline: alone,
        },
        "/s",
        "with one client",
    );
    let bulk = repeat(2, seconds, || submit_bulk(one.clone())).await? * real(BULK as u64);
    report.rates(
        "jobs submitted, bulks of 1,000",
        Pair {
            figure: bulk,
            baseline: many,
        },
        "/s",
        "one per request",
    );
    Ok(())
}

async fn submit(client: Client) -> anyhow::Result<()> {
    let key = clock::fresh_uuid().to_string();
    let _: Submitted = client.post("/v1/jobs", &noop(1), Some(&key)).await?;
    Ok(())
}

async fn submit_bulk(client: Client) -> anyhow::Result<()> {
    let key = clock::fresh_uuid().to_string();
    let body = BulkSubmission {
        jobs: vec![noop(1); BULK],
    };
    let answer: BulkSubmitted = client.post("/v1/jobs/bulk", &body, Some(&key)).await?;
    ensure!(
        answer.results.iter().all(|result| result.id.is_some()),
        "a job was refused"
    );
    Ok(())
}

pub async fn heartbeats(
    bench: &BenchFleet,
    seconds: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let node = NodeName::new("bench-1")?;
    prepare::agent_token(&bench.up.keys, &node)?;
    let client = bench
        .up
        .client(&bench.up.addresses.node_status, "agent-bench-1")?;
    let operator = bench
        .up
        .client(&bench.up.addresses.node_status, "operator")?;
    let bare = repeat(CLIENTS, seconds, || livez(operator.clone())).await?;
    beat(client.clone()).await?;
    let beats = repeat(CLIENTS, seconds, || beat(client.clone())).await?;
    report.rates(
        "heartbeats, nothing changed",
        Pair {
            figure: beats,
            baseline: bare,
        },
        "/s",
        "requests that do nothing",
    );
    Ok(())
}

async fn livez(client: Client) -> anyhow::Result<()> {
    let _: hayward_service::health::ProbeAnswer = client.get("/livez").await?;
    Ok(())
}

async fn beat(client: Client) -> anyhow::Result<()> {
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
async fn repeat<F>(clients: usize, seconds: u64, call: impl Fn() -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let started = Instant::now();
    let end = started + Duration::from_secs(seconds);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..clients {
        running.spawn(call());
    }
    let mut done = 0_u64;
    while let Some(finished) = running.join_next().await {
        finished??;
        done += 1;
        if Instant::now() < end {
            running.spawn(call());
        }
    }
    Ok(real(done) / started.elapsed().as_secs_f64())
}
