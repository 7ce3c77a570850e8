//! Reference protocols A and B, which pack pods with GPUs onto nodes. Protocol A (inflation) adds
//! pods until they request 130 % of the GPUs. Protocol B (defragmentation) moves few pods, so that
//! the GPUs of large nodes become free.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hayward_simulation::packing::{
    Demand, GpuNodes, Pod, Policy,
    defrag::{DefragmentationResult, defragment, remove_random_pods},
    inflation::{InflationResult, arrivals, inflate, sorted_pods},
    planner_inflation::{Settings, inflate_with_planner},
};
use hayward_simulation::published_figures::{self, DEFRAGMENTED};
use hayward_simulation::trace::{InvalidLines, open, open_jobs, read_nodes};
use serde_json::json;

use crate::output::{Cell, Output, Table, note, print};

/// Pod lists of the trace `openb`.
const POD_LISTS: [&str; 5] = ["default", "cpu050", "gpushare40", "gpuspec10", "multigpu20"];
/// Names of the packing policies. `None` is the planner of real fleets.
const POLICIES: [(&str, Option<Policy>); 6] = [
    ("random", Some(Policy::Random)),
    ("dot-product", Some(Policy::DotProduct)),
    ("best-fit", Some(Policy::BestFit)),
    ("first-fit", Some(Policy::FirstFit)),
    ("gradient", Some(Policy::Gradient)),
    ("planner", None),
];
/// Seed of the first random arrival order.
const FIRST_SEED: u64 = 42;

#[derive(Debug, Clone, clap::Args)]
pub struct InflationArguments {
    /// The folder that contains the trace `openb`.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Run only this pod list: default, cpu050, gpushare40, gpuspec10 or multigpu20 of the folder,
    /// or a CSV file with the same columns, with or without gzip. May be repeated.
    #[arg(long, value_name = "NAME|FILE")]
    pub list: Vec<String>,
    /// Run only this policy: random, dot-product, best-fit, first-fit, gradient (Hayward's), or
    /// planner (the planner of real fleets). May be repeated.
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// Number of random arrival orders. Their seeds begin with 42.
    #[arg(
        long, default_value_t = 10, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    pub seeds: u64,
}

#[derive(Debug, Clone, clap::Args)]
pub struct DefragmentationArguments {
    /// The folder that contains the trace `openb`.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Loads the nodes of the recorded trace `openb`, and the pods of one list. `list` is a name or a
/// file.
fn load(folder: &Path, list: &str) -> anyhow::Result<(GpuNodes, Vec<Pod>)> {
    let folder = folder.join("openb");
    let folder_name = || folder.display().to_string();
    let nodes = open(&folder.join("nodes.csv"))
        .and_then(read_nodes)
        .with_context(folder_name)?;
    let gpu_nodes = GpuNodes::new(&nodes).context("more gpu models than can be distinguished")?;
    let file = if POD_LISTS.contains(&list) {
        folder.join(format!("pods_{list}.csv.gz"))
    } else {
        PathBuf::from(list)
    };
    let workload =
        open_jobs(&file, InvalidLines::Refuse).with_context(|| file.display().to_string())?;
    let pods = sorted_pods(&workload, &gpu_nodes);
    Ok((gpu_nodes, pods))
}

/// Results of one policy on one list, for all seeds.
struct PackingRow {
    list: String,
    policy_name: &'static str,
    /// The policy. `None` is the planner of real fleets.
    policy: Option<Policy>,
    results_by_seed: Vec<InflationResult>,
}

impl PackingRow {
    /// Returns the mean over the seeds, in percent.
    fn mean(&self, figure: impl Fn(&InflationResult) -> u64) -> f64 {
        let sum: u64 = self.results_by_seed.iter().map(figure).sum();
        let count = self.results_by_seed.len() as u64;
        to_percent(sum) / to_f64(count).max(1.0)
    }
}

fn to_percent(millionths: u64) -> f64 {
    to_f64(millionths) / 10_000.0
}

#[expect(clippy::cast_precision_loss, reason = "shown to people")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

/// Refuses an unknown name, because an empty table would hide a typing error.
fn check_names(names: &[String], known: &[&str], noun: &str) -> anyhow::Result<()> {
    let unknown = names.iter().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        bail!(
            "there is no {noun} {name:?}; there are {}",
            known.join(", ")
        )
    })
}

/// Returns the percent of allocated GPUs for this row: the published figure, and the figure of
/// another implementation that is recorded in this repository.
fn published_figures(row: &PackingRow) -> (Option<f64>, Option<f64>) {
    published_figures::inflation_figures(&row.list, row.policy.unwrap_or(Policy::Gradient))
}

pub fn run_inflation(out: Output, inflation: &InflationArguments) -> anyhow::Result<()> {
    let is_name = |list: &&String| !Path::new(list).is_file();
    let names: Vec<String> = inflation.list.iter().filter(is_name).cloned().collect();
    check_names(&names, &POD_LISTS, "list or file")?;
    check_names(&inflation.policy, &POLICIES.map(|(name, _)| name), "policy")?;
    let lists: Vec<String> = if inflation.list.is_empty() {
        POD_LISTS.map(str::to_owned).to_vec()
    } else {
        inflation.list.clone()
    };
    let mut rows = Vec::new();
    for list in lists {
        let (gpu_nodes, pods) = load(&inflation.folder, &list)?;
        let demand = Demand::from_pods(&pods);
        let seeds: Vec<u64> = (FIRST_SEED..)
            .take(usize::try_from(inflation.seeds)?)
            .collect();
        let arrival_orders: Vec<Vec<Pod>> = seeds
            .iter()
            .map(|seed| arrivals(&pods, &gpu_nodes, *seed))
            .collect();
        let selected = &inflation.policy;
        let is_selected = |name: &str| selected.is_empty() || selected.iter().any(|it| it == name);
        for (policy_name, policy) in POLICIES.into_iter().filter(|(name, _)| is_selected(name)) {
            let run = |(seed, order): (&u64, &Vec<Pod>)| {
                let mut nodes = gpu_nodes.clone();
                let (result, _) = match policy {
                    Some(policy) => inflate(&mut nodes, order, &demand, policy, *seed),
                    None => inflate_with_planner(&mut nodes, order, &Settings::default()),
                };
                result
            };
            rows.push(PackingRow {
                list: list.clone(),
                policy_name,
                policy,
                results_by_seed: seeds.iter().zip(&arrival_orders).map(run).collect(),
            });
        }
        note(&format!("{list}: done"));
    }
    if out.json {
        return out.json(&json!(rows.iter().map(row_to_json).collect::<Vec<_>>()));
    }
    print(&inflation_table(&rows, out))
}

fn row_to_json(row: &PackingRow) -> serde_json::Value {
    let (published, recorded) = published_figures(row);
    let by_seed = row.results_by_seed.iter();
    let by_seed = by_seed.map(|result| to_percent(result.gpu));
    json!({
        "list": row.list,
        "policy": row.policy_name,
        "gpu_percent": row.mean(|result| result.gpu),
        "gpu_percent_at_95": row.mean(|result| result.gpu_early),
        "cpu_percent": row.mean(|result| result.cpu),
        "memory_percent": row.mean(|result| result.memory),
        "rejected_percent": row.mean(|result| result.rejected),
        "gpu_percent_by_seed": by_seed.collect::<Vec<_>>(),
        "published_gpu_percent": published,
        "written_down_gpu_percent": recorded,
    })
}

fn inflation_table(rows: &[PackingRow], out: Output) -> String {
    let header = [
        "list",
        "policy",
        "gpu %",
        "published",
        "recorded",
        "at 95 %",
        "cpu %",
        "memory %",
        "rejected %",
    ];
    let mut table = Table::new(header).align_right(&[2, 3, 4, 5, 6, 7, 8]);
    let optional_cell = |figure: Option<f64>| figure.map_or("-".into(), two_decimals);
    for row in rows {
        let (published, recorded) = published_figures(row);
        table.push_row([
            row.list.as_str().into(),
            row.policy_name.into(),
            two_decimals(row.mean(|result| result.gpu)),
            optional_cell(published),
            optional_cell(recorded),
            two_decimals(row.mean(|result| result.gpu_early)),
            two_decimals(row.mean(|result| result.cpu)),
            two_decimals(row.mean(|result| result.memory)),
            two_decimals(row.mean(|result| result.rejected)),
        ]);
    }
    let heading = "GPUs allocated after arrivals that request 130 % of them, mean over the seeds;\n\
                for gradient and planner (Hayward's), the published figure is that of FGD\n\n";
    heading.to_owned() + &table.render(&out.renderer())
}

fn two_decimals(figure: f64) -> Cell {
    format!("{figure:.2}").into()
}

/// Result of one seed with one budget of moves.
struct DefragmentationRow {
    seed: u64,
    /// Maximum part of the pods that may be moved.
    budget_percent: u64,
    result: DefragmentationResult,
    /// Number of large nodes emptied, as recorded in this repository for this seed and budget.
    recorded_gain: u64,
}

pub fn run_defragmentation(
    out: Output,
    defragmentation: &DefragmentationArguments,
) -> anyhow::Result<()> {
    let (gpu_nodes, pods) = load(&defragmentation.folder, "default")?;
    let demand = Demand::from_pods(&pods);
    let mut rows = Vec::new();
    let seed_count = DEFRAGMENTED.first().map_or(0, |(_, gains)| gains.len());
    for seed in (FIRST_SEED..).take(seed_count) {
        let mut full_gpu_nodes = gpu_nodes.clone();
        let arrivals_of_seed = arrivals(&pods, &gpu_nodes, seed);
        let (_, placed) = inflate(
            &mut full_gpu_nodes,
            &arrivals_of_seed,
            &demand,
            Policy::Gradient,
            seed,
        );
        let remaining_pods = remove_random_pods(&mut full_gpu_nodes, placed, seed);
        for (budget, gains) in DEFRAGMENTED {
            let result = defragment(
                &mut full_gpu_nodes.clone(),
                &mut remaining_pods.clone(),
                budget,
            );
            let seed_index = usize::try_from(seed - FIRST_SEED)?;
            rows.push(DefragmentationRow {
                seed,
                budget_percent: budget,
                result,
                recorded_gain: gains[seed_index],
            });
        }
    }
    if out.json {
        let rows = rows.iter().map(|row| {
            let result = &row.result;
            json!({
                "seed": row.seed,
                "budget_percent": row.budget_percent,
                "survivors": result.survivors,
                "free_gpu_percent": to_percent(result.free),
                "large_nodes": result.large,
                "whole_before": result.whole_before,
                "whole_after": result.whole_after,
                "won": result.whole_after - result.whole_before,
                "won_written_down": row.recorded_gain,
                "pods_moved": result.moved,
            })
        });
        return out.json(&json!(rows.collect::<Vec<_>>()));
    }
    print(&defragmentation_table(&rows, out))
}

fn defragmentation_table(rows: &[DefragmentationRow], out: Output) -> String {
    let header = [
        "seed",
        "budget",
        "pods",
        "free gpu %",
        "large nodes",
        "whole nodes",
        "after",
        "gained",
        "recorded",
        "moved",
    ];
    let mut table = Table::new(header).align_right(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for row in rows {
        let result = &row.result;
        table.push_row([
            row.seed.into(),
            format!("{} %", row.budget_percent).into(),
            result.survivors.into(),
            two_decimals(to_percent(result.free)),
            result.large.into(),
            result.whole_before.into(),
            result.whole_after.into(),
            format!("+{}", result.whole_after - result.whole_before).into(),
            format!("+{}", row.recorded_gain).into(),
            result.moved.into(),
        ]);
    }
    let heading = "large nodes whose GPUs all become free, after three in ten pods have left;\n\
                the budget is the maximum part of the remaining pods that may be moved\n\n";
    heading.to_owned() + &table.render(&out.renderer())
}
