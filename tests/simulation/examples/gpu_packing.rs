//! Measures how well the planner of real fleets packs pods with GPUs onto nodes (protocol A). Pods
//! arrive until they have requested 130 % of the GPUs. The result is the allocated part of the
//! GPUs.
//!
//! Usage: `cargo run --release -p hayward-simulation --example gpu_packing -- FOLDER SEEDS LIST…`.
//! FOLDER holds the traces. SEEDS is the number of arrival orders. A list of pods is for example
//! `default` or `cpu050`.

use std::{error::Error, path::Path, time::Instant};

use hayward_simulation::{
    packing::{
        GpuNodes,
        inflation::{arrivals, sorted_pods},
        planner_inflation::{Settings, inflate_with_planner},
    },
    trace::{InvalidLines, open, open_jobs, read_nodes},
};

/// First seed of the published runs.
const FIRST_SEED: u64 = 42;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err("name a folder, a number of seeds and lists".into());
    };
    let folder = Path::new(&folder).join("openb");
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes)?;
    let gpu_nodes = GpuNodes::new(&nodes).ok_or("more gpu models than can be distinguished")?;
    let seeds: u64 = seeds.parse()?;
    for list in arguments {
        let file = folder.join(format!("pods_{list}.csv.gz"));
        let pods = sorted_pods(&open_jobs(&file, InvalidLines::Refuse)?, &gpu_nodes);
        let mut gpu_by_seed = Vec::new();
        let started = Instant::now();
        for seed in FIRST_SEED..FIRST_SEED + seeds {
            let arrival_order = arrivals(&pods, &gpu_nodes, seed);
            let (result, _) =
                inflate_with_planner(&mut gpu_nodes.clone(), &arrival_order, &Settings::default());
            gpu_by_seed.push(result.gpu);
        }
        let mean = gpu_by_seed.iter().sum::<u64>() / gpu_by_seed.len().max(1) as u64;
        let elapsed_ms = started.elapsed().as_millis();
        println!("{list:>12} mean {mean} millionths, {elapsed_ms} ms, by seed {gpu_by_seed:?}");
    }
    Ok(())
}
