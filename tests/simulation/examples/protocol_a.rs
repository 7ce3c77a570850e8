//! Protocol A without the whole command, through the planner of real fleets: `cargo run --release
//! -p hayward-simulation --example protocol_a -- FOLDER SEEDS default cpu050`. FOLDER holds the
//! traces. SEEDS is the number of arrival orders that are tried.

use std::{error::Error, path::Path, time::Instant};

use hayward_simulation::{
    packing::{
        Sites,
        inflation::{arrivals, pods},
        planned::{Settings, inflate_planned},
    },
    trace::{Bad, open, open_jobs, read_nodes},
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err("name a folder, a number of seeds and lists".into());
    };
    let folder = Path::new(&folder).join("openb");
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes)?;
    let sites = Sites::new(&nodes).ok_or("more gpu models than can be told apart")?;
    let seeds: u64 = seeds.parse()?;
    for list in arguments {
        let file = folder.join(format!("pods_{list}.csv.gz"));
        let pods = pods(&open_jobs(&file, Bad::Refuse)?, &sites);
        let mut found = Vec::new();
        let began = Instant::now();
        for seed in 42..42 + seeds {
            let order = arrivals(&pods, &sites, seed);
            let (result, _) = inflate_planned(&mut sites.clone(), &order, &Settings::default());
            found.push(result.gpu);
        }
        let mean = found.iter().sum::<u64>() / found.len().max(1) as u64;
        let took = began.elapsed().as_millis();
        println!("{list:>12} mean {mean} millionths, {took} ms, by seed {found:?}");
    }
    Ok(())
}
