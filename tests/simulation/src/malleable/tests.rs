//! Tests of the simulation of malleable jobs with small workloads.

mod queues;

use std::collections::BTreeMap;

use super::*;
use crate::trace::{Job, Node, TaskRequest, Workload};

/// Runs jobs of (user, submit, run, tasks) on nodes with these numbers of cores. Times are in
/// seconds, and each process needs one core.
fn run(nodes: &[u64], jobs: &[(&str, u64, u64, u64)]) -> Results {
    let (workload, nodes) = workload_and_nodes(nodes, jobs);
    let case = Case::malleable(&workload, &nodes);
    let mut fluid = Fluid::new(Fairness::Users, 1);
    simulate(&case, &mut fluid, &Fairness::Users, &mut |_| {}).unwrap()
}

fn workload_and_nodes(nodes: &[u64], jobs: &[(&str, u64, u64, u64)]) -> (Workload, Vec<Node>) {
    let mut workload = Workload::default();
    for (index, (user, submit, run, tasks)) in jobs.iter().enumerate() {
        let job = Job {
            id: index.to_string(),
            user: workload.users.index(user),
            class: workload.classes.index("c"),
            queue: None,
            submit_s: Some(*submit),
            runtime_s: Some(*run),
            limit_s: None,
            tasks: *tasks,
            request: TaskRequest {
                cpu_milli: 1000,
                ..TaskRequest::default()
            },
        };
        workload.jobs.push(job);
    }
    let node = |(index, cores): (usize, &u64)| Node {
        id: index.to_string(),
        pool: String::new(),
        cpu_milli: cores * 1000,
        memory_mib: 0,
        gpu_count: 0,
        gpu_model: String::new(),
    };
    (workload, nodes.iter().enumerate().map(node).collect())
}

fn end_times(results: &Results) -> Vec<u64> {
    results
        .outcomes
        .iter()
        .map(|outcome| outcome.ended.unwrap())
        .collect()
}

#[test]
fn one_user_gets_the_whole_cluster() {
    // The job has 8 × 100 process-seconds and runs eight processes.
    assert_eq!(end_times(&run(&[4, 4], &[("a", 0, 100, 8)])), [100_000]);
    // The job has twice as many tasks as there are cores, so it runs at half the rate.
    assert_eq!(end_times(&run(&[4], &[("a", 0, 100, 8)])), [200_000]);
}

#[test]
fn a_second_user_gets_half_at_the_next_tick_and_gives_it_back() {
    let results = run(&[8], &[("a", 0, 600, 8), ("b", 101, 300, 8)]);
    let outcome = &results.outcomes[1];
    assert_eq!(
        outcome.started,
        Some(110_000),
        "rounds are ten seconds apart"
    );
    // User b has 2,400 process-seconds of work and runs four processes.
    assert_eq!(outcome.ended, Some(710_000));
    let first = &results.outcomes[0];
    // Each of the four preempted processes of user a lost 110 s.
    assert_eq!((first.evictions, first.lost), (4, 4 * 110_000 * 1000));
    assert!((results.summary.jain - 1.0).abs() < 1e-6);
    assert_eq!(results.summary.completed, 2);
}

#[test]
fn idle_space_is_lent() {
    let results = run(&[8], &[("a", 0, 100, 2), ("b", 0, 100, 6)]);
    assert_eq!(end_times(&results), [100_000, 100_000]);
    assert_eq!(results.outcomes[1].evictions, 0);
}

#[test]
fn equal_inputs_give_equal_results() {
    let jobs = [
        ("a", 0, 700, 9),
        ("b", 3, 50, 4),
        ("c", 3, 10, 8),
        ("a", 44, 90, 3),
    ];
    let (first, second) = (run(&[4, 3], &jobs), run(&[4, 3], &jobs));
    assert_eq!(
        (first.outcomes, first.summary),
        (second.outcomes, second.summary)
    );
}

#[test]
fn all_jobs_end_when_a_weighted_class_has_the_name_of_the_default_class() {
    let (mut workload, nodes) = workload_and_nodes(&[8], &[("a", 0, 100, 8), ("b", 0, 100, 8)]);
    workload.jobs[1].class = workload.classes.index("normal");
    let case = Case::malleable(&workload, &nodes);
    let weights = BTreeMap::from([("normal".to_owned(), 300)]);
    let policy = ProductionPlanner::weighted(&case, &weights);
    let fairness = ProductionPlanner::fairness(&policy);
    let planner = ProductionPlanner::new(&case, &policy).expect("a valid policy");
    let mut planner = planner.with_current_entitlement();
    let results = simulate(&case, &mut planner, &fairness, &mut |_| {}).unwrap();
    assert_eq!(results.summary.completed, 2);
}
