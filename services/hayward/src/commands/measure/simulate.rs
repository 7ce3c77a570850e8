//! `hayward simulate`: runs a scheduler on a recorded workload in simulated time, without a fleet.
//! Equal inputs give equal results on standard output. Progress and elapsed time go to standard
//! error.

mod packing;
mod policy_arg;
mod progress_bar;
mod reference_protocol;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use hayward_simulation::measure::{QueueSummary, Results, Spread, Summary, UnservedJobs};
use hayward_simulation::trace::{InvalidLines, open, open_jobs, read_nodes};
use hayward_simulation::{Case, Node, Workload, plots, report};
use serde_json::json;

use self::policy_arg::PolicyArg;
use crate::output::{Facts, Output, Renderer, note, print};

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub trace: Option<TraceArguments>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Run a reference protocol and print its figures next to the published ones
    #[command(subcommand)]
    Protocol(reference_protocol::Protocol),
}

/// A recorded workload, and the scheduler to run on it.
#[derive(Debug, Clone, clap::Args)]
pub struct TraceArguments {
    /// The workload: a file in CSV with a header line, or in SWF if its name ends in `.swf`, with
    /// or without gzip. If the policy has queues, a job requests the queue in its column `queue` or
    /// in its SWF record.
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// The scheduler: a file with a policy for the planner of real fleets, or the name of a
    /// baseline. Baselines: fcfs, easy, fair-easy, fluid, gang, gang-no-checkpoint, even, and the
    /// variants fluid-2, fluid-4, gang-1h, gang-4h, gang-12h, gang-24h, easy-weighted,
    /// fluid-weighted, even-weighted.
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: PolicyArg,
    /// Queue of jobs that request none, if pools of the policy have queues. The placement rules of
    /// the policy apply to this queue. Default: none.
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// The nodes, as a CSV file. Default: `nodes.csv` in the folder of the trace, else one node for
    /// each processor in the header of an SWF trace.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Use only this number of nodes, the first of the file. Default: all.
    #[arg(long, value_name = "COUNT")]
    pub first_nodes: Option<usize>,
    /// Write the result of each job as a line to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw SVG plots into this folder: allocations by user and by queue, utilisation, and waits.
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Skip and count invalid lines of the trace. Default: an invalid line is an error.
    #[arg(long)]
    pub skip_bad: bool,
}

pub fn run(out: Output, arguments: &Arguments) -> anyhow::Result<()> {
    match (&arguments.command, &arguments.trace) {
        (Some(Command::Protocol(protocol)), _) => reference_protocol::run(out, protocol),
        (None, Some(trace)) => simulate(out, trace),
        (None, None) => bail!("name a trace or a protocol"),
    }
}

fn simulate(out: Output, trace: &TraceArguments) -> anyhow::Result<()> {
    let invalid_lines = if trace.skip_bad {
        InvalidLines::Skip
    } else {
        InvalidLines::Refuse
    };
    let file_name = || trace.file.display().to_string();
    let workload = open_jobs(&trace.file, invalid_lines).with_context(file_name)?;
    if let Some(fault) = &workload.first_skipped {
        note(&format!(
            "{} invalid lines skipped, the first: {fault}",
            workload.skipped
        ));
    }
    let mut nodes = nodes_for(trace, &workload)?;
    if let Some(count) = trace.first_nodes {
        nodes.truncate(count);
    }
    let case = trace.policy.case(&workload, &nodes);
    if case.jobs.is_empty() {
        bail!("{}: no job can be simulated on these nodes", file_name());
    }
    let results = simulate_with_progress(&case, &trace.policy, trace.queue.as_deref())?;
    let policy = trace.policy.to_string();
    if let Some(file) = &trace.csv {
        write_file(file, &report::jobs_csv(&case, &results))?;
    }
    if let Some(folder) = &trace.plots {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (name, svg) in plots::draw_all(&results, &policy) {
            write_file(&folder.join(name), &svg)?;
        }
    }
    let left_out = json!({
        "broken_lines": workload.skipped,
        "unknown_times": case.unknown,
        "too_large": case.too_large,
    });
    if out.json {
        return out.json(&json!({
            "policy": policy, "nodes": nodes.len(),
            "left_out": left_out, "summary": results.summary,
        }));
    }
    print(&render(&case, &policy, &results.summary, &out.renderer()))
}

fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Reads the nodes from the file that the flag names, else from the file next to the trace, else
/// from the header of the trace.
fn nodes_for(trace: &TraceArguments, workload: &Workload) -> anyhow::Result<Vec<Node>> {
    let sibling = trace.file.with_file_name("nodes.csv");
    let file = match &trace.nodes {
        Some(file) => file.clone(),
        None if sibling.is_file() => sibling,
        None => return single_core_nodes(workload),
    };
    open(&file)
        .and_then(read_nodes)
        .with_context(|| file.display().to_string())
}

/// Returns one node with a single core for each processor in the header of an SWF trace.
fn single_core_nodes(workload: &Workload) -> anyhow::Result<Vec<Node>> {
    let Some(count) = workload.processors else {
        bail!(
            "the trace does not name its number of processors: name a file of nodes with --nodes"
        );
    };
    let node = |number: u64| Node {
        id: format!("p{number}"),
        pool: "default".to_owned(),
        cpu_milli: 1000,
        memory_mib: 0,
        gpu_count: 0,
        gpu_model: String::new(),
    };
    Ok((0..count).map(node).collect())
}

/// Simulates with a progress bar on a terminal, and reports the speed.
fn simulate_with_progress(
    case: &Case,
    policy: &PolicyArg,
    queue: Option<&str>,
) -> anyhow::Result<Results> {
    let started = Instant::now();
    let bar = progress_bar::new(case.jobs.len());
    let results = policy.simulate(case, queue, &mut |done| progress_bar::update(&bar, done))?;
    bar.finish_and_clear();
    let (elapsed_ms, jobs) = (started.elapsed().as_millis().max(1), case.jobs.len());
    let rate = jobs as u128 * 1000 / elapsed_ms;
    note(&format!(
        "{policy}: {jobs} jobs in {elapsed_ms} ms, {rate} jobs/s"
    ));
    Ok(results)
}

/// Formats mean, median, 95th percentile and maximum.
fn format_spread(spread: &Spread, decimals: usize) -> String {
    let Spread {
        mean,
        median,
        p95,
        max,
    } = spread;
    format!("{mean:.decimals$} / {median:.decimals$} / {p95:.decimals$} / {max:.decimals$}")
}

/// Describes the results as text.
fn render(case: &Case, policy: &str, summary: &Summary, renderer: &Renderer) -> String {
    let mut facts = Facts::default();
    facts.add("policy", policy);
    facts.add("nodes", case.nodes.len());
    facts.add(
        "jobs",
        format!("{}, {} completed", summary.jobs, summary.completed),
    );
    add_reasons(&mut facts, "never ran", &summary.never_ran);
    if case.unknown + case.too_large + usize::from(case.workload.skipped > 0) > 0 {
        let (unknown, large, skipped) = (case.unknown, case.too_large, case.workload.skipped);
        facts.add(
            "left out",
            format!("{skipped} invalid lines, {unknown} without times, {large} too large"),
        );
    }
    facts.add("", "mean / median / 95 % / longest");
    facts.add("wait", format_spread(&summary.wait_s, 0) + " s");
    facts.add("flow", format_spread(&summary.flow_s, 1) + " s");
    facts.add(
        "bounded slowdown",
        format_spread(&summary.bounded_slowdown, 2),
    );
    facts.add("makespan", format!("{:.0} s", summary.makespan_s));
    facts.add("utilisation", format!("{:.4}", summary.utilisation));
    facts.add(
        "contended",
        format!("{:.3} of {} samples", summary.contended, summary.samples),
    );
    facts.add(
        "deviation from max-min",
        format!("{:.5}", summary.deviation),
    );
    facts.add("Jain's index", format!("{:.4}", summary.jain));
    facts.add("wasted work", format!("{:.3} %", summary.waste_percent));
    facts.add(
        "evictions per job",
        format!("{:.3}", summary.evictions_per_job),
    );
    add_queues(&mut facts, summary);
    facts.render(renderer)
}

/// Adds the results of each queue, and the jobs that queues refused.
fn add_queues(facts: &mut Facts, summary: &Summary) {
    for (name, queue) in &summary.queues {
        let QueueSummary {
            jobs,
            completed,
            share,
            share_contended,
            ..
        } = queue;
        let (percent, contended_percent) = (100.0 * share, 100.0 * share_contended);
        let wait = format_spread(&queue.wait_s, 0);
        facts.add(
            "queue",
            format!(
                "{name}: {percent:.1} % of the cluster, {contended_percent:.1} % while contended; \
                 {completed} of {jobs} jobs completed, wait {wait} s"
            ),
        );
    }
    add_reasons(facts, "refused", &summary.refused);
}

/// Adds one line for each reason why jobs never ran or were refused, with the first of these jobs.
fn add_reasons(facts: &mut Facts, title: &'static str, reasons: &BTreeMap<String, UnservedJobs>) {
    for (reason, UnservedJobs { jobs, first }) in reasons {
        let noun = if *jobs == 1 { "job" } else { "jobs" };
        facts.add(
            title,
            format!("{jobs} {noun}, {reason}; the first: {first}"),
        );
    }
}

#[cfg(test)]
mod tests;
