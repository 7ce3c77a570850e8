//! Tests of batch scheduling with small workloads.

use super::*;
use crate::trace::{Node, TaskRequest, Workload};

/// Runs jobs of (submit, run, limit, tasks) on nodes of one core. Times are in seconds. The jobs
/// belong to the users u0, u1 and u2 in turn.
fn run(nodes: usize, jobs: &[(u64, u64, u64, u64)], discipline: Discipline) -> Results {
    let mut workload = Workload::default();
    for (index, (submit, run, limit, tasks)) in jobs.iter().enumerate() {
        let job = Job {
            id: index.to_string(),
            user: workload.users.index(&format!("u{}", index % 3)),
            class: workload.classes.index("c"),
            queue: None,
            submit_s: Some(*submit),
            runtime_s: Some(*run),
            limit_s: Some(*limit),
            tasks: *tasks,
            request: TaskRequest {
                cpu_milli: 1000,
                ..TaskRequest::default()
            },
        };
        workload.jobs.push(job);
    }
    let nodes: Vec<Node> = (0..nodes)
        .map(|index| Node {
            id: index.to_string(),
            pool: String::new(),
            cpu_milli: 1000,
            memory_mib: 0,
            gpu_count: 0,
            gpu_model: String::new(),
        })
        .collect();
    let case = Case::rigid(&workload, &nodes);
    simulate(&case, discipline, &Fairness::Users, &mut |_| {})
}

fn start_times(results: &Results) -> Vec<u64> {
    let outcomes = results.outcomes.iter();
    outcomes
        .map(|outcome| outcome.started.unwrap() / 1000)
        .collect()
}

#[test]
fn no_job_overtakes_under_first_come_first_served() {
    let results = run(
        4,
        &[(0, 100, 100, 3), (1, 10, 10, 2), (2, 5, 5, 1)],
        Discipline::Fcfs,
    );
    assert_eq!(start_times(&results), [0, 100, 100]);
    assert_eq!(results.summary.completed, 3);
}

#[test]
fn a_job_overtakes_under_easy_if_the_head_is_not_delayed() {
    // The head waits for three nodes until 100. A job of 50 s fits before that. A job of 200 s fits
    // only on a node that the head does not need.
    let jobs = [
        (0, 100, 100, 3),
        (1, 10, 10, 3),
        (2, 50, 50, 1),
        (3, 200, 200, 1),
    ];
    assert_eq!(
        start_times(&run(4, &jobs, Discipline::Easy)),
        [0, 100, 2, 52]
    );
    let long = [(0, 100, 100, 3), (1, 10, 10, 3), (3, 200, 200, 1)];
    assert_eq!(start_times(&run(4, &long, Discipline::Easy)), [0, 100, 3]);
    let full_width = [(0, 100, 100, 3), (1, 10, 10, 4), (3, 200, 200, 1)];
    assert_eq!(
        start_times(&run(4, &full_width, Discipline::Easy)),
        [0, 100, 110]
    );
}

#[test]
fn a_job_is_killed_at_its_limit() {
    let results = run(1, &[(0, 100, 40, 1), (1, 10, 10, 1)], Discipline::Fcfs);
    assert_eq!(start_times(&results), [0, 40]);
}

#[test]
fn the_user_with_less_usage_goes_first() {
    // The first job of u0 occupies the node until 1000. Its second job has waited longest then, but
    // u1 and u2 have no usage.
    let jobs = [
        (0, 1000, 1000, 1),
        (10, 10, 10, 1),
        (10, 10, 10, 1),
        (0, 10, 10, 1),
    ];
    let results = run(1, &jobs, Discipline::FairEasy);
    // The results are ordered by submission: both jobs of u0, then u1, then u2.
    assert_eq!(start_times(&results), [0, 1020, 1000, 1010]);
}

#[test]
fn jobs_that_do_not_fit_on_the_empty_cluster_are_left_out() {
    let results = run(2, &[(0, 10, 10, 3), (0, 10, 10, 2)], Discipline::Easy);
    assert_eq!(results.summary.jobs, 1);
}

#[test]
fn waits_flow_times_and_slowdowns_follow_their_definitions() {
    let results = run(1, &[(0, 100, 100, 1), (0, 5, 5, 1)], Discipline::Fcfs);
    let summary = results.summary;
    assert!((summary.wait_s.mean - 50.0).abs() < 1e-9);
    assert!((summary.flow_s.mean - 102.5).abs() < 1e-9);
    // The short job counts as ten seconds: 105 ÷ 10.
    assert!((summary.bounded_slowdown.mean - 5.75).abs() < 1e-9);
    assert!((summary.makespan_s - 105.0).abs() < 1e-9);
}
