//! Figures on recorded workloads. They need the trace files, which are not part of this repository:
//! `HAYWARD_TRACES` names their folder, and without it these tests say so and pass.

use std::path::PathBuf;

use hayward_rm_scheduler_simulator::{
    Case, Node, Workload,
    batch::{Discipline, simulate},
    measure::{Fairness, Summary},
    trace::{Bad, open, open_jobs, read_nodes},
};

fn folder(name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("HAYWARD_TRACES") else {
        eprintln!("skipped: HAYWARD_TRACES names no folder of traces");
        return None;
    };
    Some(PathBuf::from(root).join(name))
}

fn trace(name: &str) -> Option<(Workload, Vec<Node>)> {
    let folder = folder(name)?;
    let workload = open_jobs(&folder.join("jobs.csv.gz"), Bad::Refuse).expect("a whole trace");
    let nodes = open(&folder.join("nodes.csv")).and_then(read_nodes);
    Some((workload, nodes.expect("whole nodes")))
}

fn rigid(workload: &Workload, nodes: &[Node], discipline: Discipline) -> Summary {
    let case = Case::rigid(workload, nodes);
    simulate(&case, discipline, &Fairness::Users, &mut |_| {}).summary
}

fn near(found: f64, published: f64, percent: f64) {
    let off = 100.0 * (found - published).abs() / published;
    assert!(off <= percent, "{found} is {off:.2} % off {published}");
}

#[test]
fn easy_is_calibrated_on_kth1996() {
    let Some((workload, nodes)) = trace("kth1996") else {
        return;
    };
    let summary = rigid(&workload, &nodes, Discipline::Easy);
    near(summary.flow_s.mean, 15_696.8, 0.1);
    near(summary.bounded_slowdown.mean, 92.58, 1.0);
}
