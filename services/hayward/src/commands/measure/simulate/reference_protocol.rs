//! `hayward simulate protocol`: runs a reference protocol and prints its figures next to the
//! published ones. The protocols are A (inflation), B (defragmentation) and C (batch). This file
//! has protocol C.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hayward_simulation::baseline::ALL;
use hayward_simulation::measure::Summary;
use hayward_simulation::published_figures::{self, Row};
use hayward_simulation::trace::{InvalidLines, open, open_jobs, read_nodes};
use hayward_simulation::{Baseline, Node, Workload};
use serde_json::json;

use super::{packing, policy_arg::PolicyArg, simulate_with_progress};
use crate::output::{Output, Table, print};

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Protocol {
    /// Inflation: the part of the GPUs that is allocated when pods request 130 % of them
    A(packing::InflationArguments),
    /// Defragmentation: the number of large nodes that become empty by moving few pods
    B(packing::DefragmentationArguments),
    /// Batch: policies compared on recorded batch workloads
    C(BatchArguments),
}

#[derive(Debug, Clone, clap::Args)]
pub struct BatchArguments {
    /// The folder that holds `kth1996` and `gaia2014`.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Run only this policy, by its name in `simulate --policy`. May be repeated. Default: all
    /// policies with published figures, and the planner of real fleets (`even`, `even-weighted`).
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// Run only this trace. Default: all.
    #[arg(long, value_name = "NAME")]
    pub trace: Option<String>,
}

pub fn run(out: Output, protocol: &Protocol) -> anyhow::Result<()> {
    match protocol {
        Protocol::A(inflation) => packing::run_inflation(out, inflation),
        Protocol::B(defragmentation) => packing::run_defragmentation(out, defragmentation),
        Protocol::C(batch) => run_batch(out, batch),
    }
}

/// A published row and our result for it. For the planner of real fleets, the row is that of the
/// fluid model that the planner follows.
struct BatchRow {
    policy: String,
    row: Row,
    summary: Summary,
}

/// Refuses an unknown name, because an empty table would hide a typing error.
fn check_names(batch: &BatchArguments, rows: &[Row]) -> anyhow::Result<()> {
    for name in &batch.policy {
        if Baseline::find_by_name(name).is_none() {
            let known: Vec<String> = ALL.iter().map(ToString::to_string).collect();
            bail!(
                "there is no policy {name:?}; there are {}",
                known.join(", ")
            );
        }
    }
    if let Some(name) = &batch.trace
        && rows.iter().all(|row| row.trace != name)
    {
        bail!("nothing is written down for trace {name:?}: name gaia2014 or kth1996");
    }
    Ok(())
}

fn run_batch(out: Output, batch: &BatchArguments) -> anyhow::Result<()> {
    let rows = published_figures::batch_rows();
    check_names(batch, &rows)?;
    let mut results = Vec::new();
    // Rows of one trace are neighbours, so each trace is loaded once.
    let mut loaded: Option<(&str, Workload, Vec<Node>)> = None;
    for row in rows {
        let is_wanted = batch.trace.as_ref().is_none_or(|name| name == row.trace);
        let policies = selected_policies(&row, &batch.policy);
        if !is_wanted || policies.is_empty() {
            continue;
        }
        if loaded.as_ref().is_none_or(|(name, ..)| *name != row.trace) {
            let (workload, nodes) = load(&batch.folder.join(row.trace))?;
            loaded = Some((row.trace, workload, nodes));
        }
        let Some((_, workload, nodes)) = &loaded else {
            continue;
        };
        let nodes = &nodes[..row.nodes.min(nodes.len())];
        for policy in policies {
            let outcome = simulate_with_progress(&policy.case(workload, nodes), &policy, None)?;
            let summary = outcome.summary;
            results.push(BatchRow {
                policy: policy.to_string(),
                row,
                summary,
            });
        }
    }
    if out.json {
        return out.json(&json!(
            results.iter().map(result_to_json).collect::<Vec<_>>()
        ));
    }
    print(&render_table(&results, out))
}

/// Returns the policies to run for a published row. The row of the fluid model also selects the
/// planner of real fleets, because that planner follows the model.
fn selected_policies(row: &Row, names: &[String]) -> Vec<PolicyArg> {
    let model = Baseline::find_by_name(row.policy);
    let candidates = model
        .into_iter()
        .chain(model.and_then(Baseline::planner_equivalent));
    candidates
        .filter(|it| names.is_empty() || names.contains(&it.to_string()))
        .map(PolicyArg::Baseline)
        .collect()
}

/// Loads the jobs and nodes of one trace.
fn load(folder: &Path) -> anyhow::Result<(Workload, Vec<Node>)> {
    let jobs = folder.join("jobs.csv.gz");
    let folder_name = || folder.display().to_string();
    let workload = open_jobs(&jobs, InvalidLines::Refuse).with_context(folder_name)?;
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes);
    Ok((workload, nodes.with_context(folder_name)?))
}

fn result_to_json(result: &BatchRow) -> serde_json::Value {
    let row = &result.row;
    json!({
        "trace": row.trace,
        "nodes": row.nodes,
        "policy": result.policy,
        "ours": result.summary,
        "written_down": {
            "for": row.policy,
            "wait_s": row.wait_s,
            "flow_s": row.flow_s,
            "bounded_slowdown": row.slowdown,
            "deviation": row.deviation,
            "jain": row.jain,
            "waste_percent": row.waste_percent,
            "evictions_per_job": row.evictions,
        },
    })
}

fn render_table(results: &[BatchRow], out: Output) -> String {
    let mut table = Table::new([
        "trace",
        "nodes",
        "policy",
        "wait s",
        "flow s",
        "slowdown",
        "deviation",
        "jain",
        "waste %",
        "evictions",
    ])
    .align_right(&[1, 3, 4, 5, 6, 7, 8, 9]);
    for BatchRow {
        policy,
        row,
        summary,
    } in results
    {
        // The published figure follows in parentheses.
        let cell = |own: f64, published: Option<f64>, decimals: usize| {
            let published = published.map_or("-".to_owned(), |published| {
                format!("{published:.decimals$}")
            });
            format!("{own:.decimals$} ({published})").into()
        };
        table.push_row([
            row.trace.into(),
            row.nodes.into(),
            policy.into(),
            cell(summary.wait_s.mean, row.wait_s, 0),
            cell(summary.flow_s.mean, row.flow_s, 0),
            cell(summary.bounded_slowdown.mean, row.slowdown, 2),
            cell(summary.deviation, row.deviation, 4),
            cell(summary.jain, row.jain, 3),
            cell(summary.waste_percent, row.waste_percent, 3),
            cell(summary.evictions_per_job, row.evictions, 3),
        ]);
    }
    let (flow, slowdown) = published_figures::EASY_ON_KTH;
    format!(
        "ours (written down); `even` and `even-weighted` are the planner of real fleets, beside\n\
         the fluid model\n\
         published by others for easy on kth1996: flow {flow} s, bounded slowdown {slowdown}\n\n{}",
        table.render(&out.renderer())
    )
}
