//! Measures tasks that do nothing, from submission to the last durable outcome. Two processes of a
//! job run them. The baseline spawns the same program on two threads.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::bail;
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::Submitted;
use hayward_service::runtime::clock;

use super::fleet::BenchFleet;
use super::http_throughput::noop_job;
use super::report::{Comparison, Report};
use super::to_f64;
use crate::prepare;

/// Number of processes, each of which runs one task at a time.
const PROCESSES: u64 = 2;

pub async fn measure(bench: &BenchFleet, count: u64, report: &mut Report) -> anyhow::Result<()> {
    prepare::create_user_token(&bench.fleet.keys, "bench")?;
    let client = bench
        .fleet
        .client(&bench.fleet.addresses.job_converter, "user-bench")?;
    // The baseline is the mean of a measurement before and one after the tasks.
    let before = measure_bare_spawn(count / 4).await?;
    let mut job = noop_job(count);
    job.max_processes = Some(PROCESSES);
    let started = Instant::now();
    let key = clock::fresh_uuid().to_string();
    let submitted: Submitted = client.post("/v1/jobs", &job, Some(&key)).await?;
    let path = format!("/v1/jobs/{}?wait=25&until=final", submitted.id);
    let view = loop {
        let view: WorkView = client
            .get_with_timeout(&path, std::time::Duration::from_secs(40))
            .await?;
        if view.state.is_final() {
            break view;
        }
    };
    let rate = to_f64(count) / started.elapsed().as_secs_f64();
    if view.tasks.is_none_or(|tasks| tasks.succeeded != count) {
        bail!("not every task succeeded: {view:?}");
    }
    let after = measure_bare_spawn(count / 4).await?;
    let baseline = f64::midpoint(before, after);
    report.add_rates(
        "no-op tasks, two processes, durable",
        Comparison {
            figure: rate,
            baseline,
        },
        "/s",
        "bare spawn",
    );
    Ok(())
}

/// Measures spawning the program on as many threads as the job has processes. Returns processes per
/// second.
async fn measure_bare_spawn(count: u64) -> anyhow::Result<f64> {
    let started = Instant::now();
    let tasks_per_process = count / PROCESSES;
    let threads: Vec<_> = (0..PROCESSES)
        .map(|_| {
            tokio::task::spawn_blocking(move || -> anyhow::Result<()> {
                for _ in 0..tasks_per_process {
                    Command::new("true")
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .status()?;
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.await??;
    }
    Ok(to_f64(tasks_per_process * PROCESSES) / started.elapsed().as_secs_f64())
}
