//! Runs schedulers on a recorded trace and prints waiting times, fairness and speed (protocol C).
//!
//! Usage: `cargo run --release -p hayward-simulation --example baselines_on_trace -- FOLDER TRACE
//! [NODES] NAME…`. FOLDER holds the traces, for example `gaia2014`. NODES limits the nodes that are
//! used. A name is that of a [`Baseline`], for example `fluid` or `even`. The printed jobs per
//! second use wall-clock time, and thread CPU time if the system reports it.

use std::{error::Error, path::Path, time::Instant};

use hayward_simulation::{
    Baseline,
    trace::{InvalidLines, open, open_jobs, read_nodes},
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let (Some(folder), Some(trace)) = (arguments.next(), arguments.next()) else {
        return Err("name a folder, a trace and policies".into());
    };
    let folder = Path::new(&folder).join(trace);
    let workload = open_jobs(&folder.join("jobs.csv.gz"), InvalidLines::Refuse)?;
    let mut nodes = open(&folder.join("nodes.csv")).and_then(read_nodes)?;
    if let Some(count) = arguments.peek().and_then(|count| count.parse().ok()) {
        nodes.truncate(count);
        arguments.next();
    }
    for name in arguments {
        let baseline = Baseline::find_by_name(&name).ok_or_else(|| format!("{name}: unknown"))?;
        let case = baseline.case(&workload, &nodes);
        let (started, cpu_ms_before) = (Instant::now(), thread_cpu_ms());
        let summary = baseline.simulate(&case, &mut |_| {})?.summary;
        let rate = |ms: u128| case.jobs.len() as u128 * 1000 / ms.max(1);
        let jobs_per_s = rate(started.elapsed().as_millis());
        let jobs_per_cpu_s = thread_cpu_ms()
            .zip(cpu_ms_before)
            .map(|(after, before)| rate(after - before));
        let jobs_per_cpu_s = jobs_per_cpu_s.map_or("?".to_owned(), |rate| rate.to_string());
        println!(
            "{name:>18} deviation {:.5} jain {:.4} flow {:.1} wait {:.1} slowdown {:.2} \
             waste {:.3} % evictions {:.3}, {jobs_per_s} jobs/s, \
             {jobs_per_cpu_s} by processor time",
            summary.deviation,
            summary.jain,
            summary.flow_s.mean,
            summary.wait_s.mean,
            summary.bounded_slowdown.mean,
            summary.waste_percent,
            summary.evictions_per_job,
        );
    }
    Ok(())
}

/// Returns the CPU time of this thread in milliseconds. Returns `None` if the system does not
/// report it.
fn thread_cpu_ms() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u128 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1_000_000)
}
