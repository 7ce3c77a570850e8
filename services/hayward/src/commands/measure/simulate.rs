//! `hayward simulate`: runs a scheduler on a recorded workload in simulated time, without a fleet.
//! Equal inputs give equal output. The duration goes to standard error.

mod packing;
mod policy_arg;
mod progress_bar;
mod protocol;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use hayward_simulation::measure::{QueueSummary, RefusedJobs, Results, Spread, Summary};
use hayward_simulation::trace::{Bad, open, open_jobs, read_nodes};
use hayward_simulation::{Case, Node, Workload, plots, report};
use serde_json::json;

use self::policy_arg::PolicyArg;
use crate::output::{Facts, Output, Renderer, note, print};

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub what: Option<What>,
    #[command(flatten)]
    pub trace: Option<Trace>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum What {
    /// Run a reference protocol and print our figures next to the published ones
    #[command(subcommand)]
    Protocol(protocol::Protocol),
}

#[derive(Debug, Clone, clap::Args)]
pub struct Trace {
    /// The workload: CSV with a header, or SWF (by its name); either may be packed with gzip. If
    /// the policy has queues, a job requests the queue of the column `queue` or of its SWF record.
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// A policy document for the planner of real fleets, or the name of a yardstick: fcfs, easy,
    /// fair-easy, fluid, gang, gang-no-checkpoint, even, and their variants fluid-2, fluid-4,
    /// gang-1h, gang-4h, gang-12h, gang-24h, easy-weighted, fluid-weighted, even-weighted.
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: PolicyArg,
    /// Queue of jobs that name none, if pools of the policy have queues. The placement rules of the
    /// policy apply to it. Default: such jobs request no queue.
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// The nodes, as CSV. Default: `nodes.csv` next to the trace, else the header of an SWF trace.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Use only so many of the machines, the first of the file.
    #[arg(long, value_name = "COUNT")]
    pub first_nodes: Option<usize>,
    /// Write a line for each job to this file.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw shares per user and per queue, utilisation and waits into this folder, as SVG.
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Pass over broken lines of the trace and count them.
    #[arg(long)]
    pub skip_bad: bool,
}

pub fn run(out: Output, arguments: &Arguments) -> anyhow::Result<()> {
    match (&arguments.what, &arguments.trace) {
        (Some(What::Protocol(protocol)), _) => protocol::run(out, protocol),
        (None, Some(trace)) => simulate(out, trace),
        (None, None) => bail!("name a trace, or a protocol"),
    }
}

fn simulate(out: Output, trace: &Trace) -> anyhow::Result<()> {
    let bad = if trace.skip_bad {
        Bad::Skip
    } else {
        Bad::Refuse
    };
    let named = || trace.file.display().to_string();
    let workload = open_jobs(&trace.file, bad).with_context(named)?;
    if let Some(fault) = &workload.first_skipped {
        note(&format!(
            "{} broken lines passed over, the first: {fault}",
            workload.skipped
        ));
    }
    let mut nodes = nodes_for(trace, &workload)?;
    if let Some(count) = trace.first_nodes {
        nodes.truncate(count);
    }
    let case = trace.policy.case(&workload, &nodes);
    if case.jobs.is_empty() {
        bail!("{}: no job can be simulated on these machines", named());
    }
    let results = timed(&case, &trace.policy, trace.queue.as_deref())?;
    let policy = trace.policy.to_string();
    if let Some(file) = &trace.csv {
        write(file, &report::jobs_csv(&case, &results))?;
    }
    if let Some(folder) = &trace.plots {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (name, svg) in plots::all(&results, &policy) {
            write(&folder.join(name), &svg)?;
        }
    }
    let left_out = json!({
        "broken_lines": workload.skipped,
        "unknown_times": case.unknown,
        "too_large": case.too_large,
    });
    if out.json {
        let machines = nodes.len();
        return out.json(&json!({
            "policy": policy, "nodes": machines, "left_out": left_out, "summary": results.summary,
        }));
    }
    print(&text(&case, &policy, &results.summary, &out.renderer()))
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn nodes_for(trace: &Trace, workload: &Workload) -> anyhow::Result<Vec<Node>> {
    let neighbour = trace.file.with_file_name("nodes.csv");
    let file = match &trace.nodes {
        Some(file) => file.clone(),
        None if neighbour.is_file() => neighbour,
        None => return single_cores(workload),
    };
    open(&file)
        .and_then(read_nodes)
        .with_context(|| file.display().to_string())
}

/// Returns one node with a single core for each processor in the header of an SWF trace.
fn single_cores(workload: &Workload) -> anyhow::Result<Vec<Node>> {
    let Some(count) = workload.processors else {
        bail!("the trace does not say what it ran on: name the machines with --nodes");
    };
    let node = |at: u64| Node {
        id: format!("p{at}"),
        pool: "default".to_owned(),
        cpu_milli: 1000,
        memory_mib: 0,
        gpu_count: 0,
        gpu_model: String::new(),
    };
    Ok((0..count).map(node).collect())
}

/// Simulates with a progress bar on a terminal, and reports the speed.
fn timed(case: &Case, policy: &PolicyArg, queue: Option<&str>) -> anyhow::Result<Results> {
    let began = Instant::now();
    let bar = progress_bar::new(case.jobs.len());
    let results = policy.simulate(case, queue, &mut |done| progress_bar::show(&bar, done))?;
    bar.finish_and_clear();
    let (took, jobs) = (began.elapsed().as_millis().max(1), case.jobs.len());
    let rate = jobs as u128 * 1000 / took;
    note(&format!(
        "{policy}: {jobs} jobs in {took} ms, {rate} jobs/s"
    ));
    Ok(results)
}

fn spread(spread: &Spread, places: usize) -> String {
    let Spread {
        mean,
        median,
        p95,
        max,
    } = spread;
    format!("{mean:.places$} / {median:.places$} / {p95:.places$} / {max:.places$}")
}

fn text(case: &Case, policy: &str, summary: &Summary, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    facts.say("policy", policy);
    facts.say("nodes", case.nodes.len());
    facts.say(
        "jobs",
        format!("{}, {} completed", summary.jobs, summary.completed),
    );
    add_reasons(&mut facts, "never ran", &summary.never_ran);
    if case.unknown + case.too_large + usize::from(case.workload.skipped > 0) > 0 {
        let (unknown, large, skipped) = (case.unknown, case.too_large, case.workload.skipped);
        facts.say(
            "left out",
            format!("{skipped} broken lines, {unknown} without times, {large} too large"),
        );
    }
    facts.say("", "mean / median / 95 % / longest");
    facts.say("wait", spread(&summary.wait_s, 0) + " s");
    facts.say("flow", spread(&summary.flow_s, 1) + " s");
    facts.say("bounded slowdown", spread(&summary.bounded_slowdown, 2));
    facts.say("makespan", format!("{:.0} s", summary.makespan_s));
    facts.say("utilisation", format!("{:.4}", summary.utilisation));
    facts.say(
        "contended",
        format!("{:.3} of {} samples", summary.contended, summary.samples),
    );
    facts.say(
        "deviation from max-min",
        format!("{:.5}", summary.deviation),
    );
    facts.say("Jain's index", format!("{:.4}", summary.jain));
    facts.say("wasted work", format!("{:.3} %", summary.waste_percent));
    facts.say(
        "evictions per job",
        format!("{:.3}", summary.evictions_per_job),
    );
    add_queues(&mut facts, summary);
    facts.text(renderer)
}

fn add_queues(facts: &mut Facts, summary: &Summary) {
    for (name, queue) in &summary.queues {
        let QueueSummary {
            jobs,
            completed,
            share,
            share_contended,
            ..
        } = queue;
        let (all, busy) = (100.0 * share, 100.0 * share_contended);
        let wait = spread(&queue.wait_s, 0);
        facts.say(
            "queue",
            format!(
                "{name}: {all:.1} % of the cluster, {busy:.1} % while contended; \
                 {completed} of {jobs} jobs completed, wait {wait} s"
            ),
        );
    }
    add_reasons(facts, "refused", &summary.refused);
}

fn add_reasons(facts: &mut Facts, title: &'static str, reasons: &BTreeMap<String, RefusedJobs>) {
    for (reason, RefusedJobs { jobs, first }) in reasons {
        let noun = if *jobs == 1 { "job" } else { "jobs" };
        facts.say(
            title,
            format!("{jobs} {noun}, {reason}; the first: {first}"),
        );
    }
}

#[cfg(test)]
mod tests;
