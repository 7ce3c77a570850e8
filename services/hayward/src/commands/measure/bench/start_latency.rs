//! Measures the time from submission to the first instruction of the process, on an idle fleet. The
//! program is `date`, whose output is the time of that instruction.

use std::time::Instant;

use anyhow::{Context as _, bail};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::Submitted;
use hayward_job_converter_api::tasks::TaskList;
use hayward_service::runtime::clock;
use hayward_service::{Client, Clock as _, SystemClock};

use super::fleet::BenchFleet;
use super::http_throughput::noop_job;
use super::report::Report;
use crate::prepare;

const SAMPLES: usize = 100;

pub async fn measure(bench: &BenchFleet, report: &mut Report) -> anyhow::Result<()> {
    prepare::create_user_token(&bench.fleet.keys, "bench")?;
    let client = bench
        .fleet
        .client(&bench.fleet.addresses.job_converter, "user-bench")?;
    let mut until_start_us = Vec::new();
    let mut until_end_us = Vec::new();
    for _ in 0..SAMPLES {
        let (start_us, end_us) = measure_one(&client).await?;
        until_start_us.push(start_us);
        until_end_us.push(end_us);
    }
    let bare_us = measure_bare_spawn().await?;
    report.add_figure(
        "submit → process started, idle fleet",
        format!(
            "p50 {} p99 {}",
            format_percentile(&mut until_start_us, 50),
            format_percentile(&mut until_start_us, 99)
        ),
    );
    report.add_figure(
        "submit → outcome recorded, idle fleet",
        format!(
            "p50 {} p99 {} (bare spawn and wait: {bare_us} µs)",
            format_percentile(&mut until_end_us, 50),
            format_percentile(&mut until_end_us, 99)
        ),
    );
    Ok(())
}

/// Submits one process. Returns the microseconds until it ran, and until its outcome was durable
/// and visible.
async fn measure_one(client: &Client) -> anyhow::Result<(u64, u64)> {
    let mut job = noop_job(1);
    job.command = vec!["date".into(), "+%s%N".into()];
    let key = clock::fresh_uuid().to_string();
    let submitted_ns = now_ns()?;
    let started = Instant::now();
    let submitted: Submitted = client.post("/v1/jobs", &job, Some(&key)).await?;
    let path = format!("/v1/jobs/{}", submitted.id);
    let view: WorkView = client.get(&format!("{path}?wait=20&until=final")).await?;
    let end_us = u64::try_from(started.elapsed().as_micros())?;
    if !view.state.is_final() {
        bail!("the job did not end: {view:?}");
    }
    let tasks: TaskList = client.get(&format!("{path}/tasks")).await?;
    let started_ns: u128 = tasks
        .tasks
        .first()
        .context("no outcome")?
        .output
        .trim()
        .parse()?;
    // The next submission must meet an idle fleet.
    wait_until_idle(client, &path).await?;
    Ok((
        u64::try_from(started_ns.saturating_sub(submitted_ns) / 1000)?,
        end_us,
    ))
}

/// Waits until all processes of the job have ended, but at most a second.
async fn wait_until_idle(client: &Client, path: &str) -> anyhow::Result<()> {
    for _ in 0..200 {
        let view: WorkView = client.get(path).await?;
        if view
            .processes
            .iter()
            .all(|process| process.state == "ended")
        {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Returns the wall time in nanoseconds, which is the unit of `date`.
fn now_ns() -> anyhow::Result<u128> {
    // The clock cuts off microseconds. The mean error is half a millisecond, which is added.
    Ok(u128::try_from(SystemClock.now().unix_ms())? * 1_000_000 + 500_000)
}

/// Returns the mean time in microseconds to spawn the program and wait for its end.
async fn measure_bare_spawn() -> anyhow::Result<u128> {
    let started = Instant::now();
    for _ in 0..SAMPLES {
        tokio::process::Command::new("date")
            .stdout(std::process::Stdio::null())
            .status()
            .await?;
    }
    Ok(started.elapsed().as_micros() / SAMPLES as u128)
}

fn format_percentile(samples: &mut [u64], percent: usize) -> String {
    samples.sort_unstable();
    let index = (samples.len() * percent).div_ceil(100).saturating_sub(1);
    let us = samples.get(index).copied().unwrap_or(0);
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}
