//! Tests of gang scheduling with small workloads.

use super::*;
use crate::trace::{Job, Node, TaskRequest, Workload};

/// Runs jobs of (user, submit, run, tasks) on one node with this number of cores. Times are in
/// seconds, and each task needs one core.
fn run(cores: u64, jobs: &[(&str, u64, u64, u64)], checkpoint_s: Option<u64>) -> Results {
    run_with_preemption(
        cores,
        jobs,
        Preemption {
            checkpoint_s,
            protected_s: None,
        },
    )
}

fn run_with_preemption(
    cores: u64,
    jobs: &[(&str, u64, u64, u64)],
    preemption: Preemption,
) -> Results {
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
    let nodes = [Node {
        id: "n".into(),
        pool: String::new(),
        cpu_milli: cores * 1000,
        memory_mib: 0,
        gpu_count: 0,
        gpu_model: String::new(),
    }];
    let case = Case::rigid(&workload, &nodes);
    simulate(&case, preemption, &Fairness::Users, &mut |_| {})
}

fn start_and_end_s(results: &Results) -> Vec<(u64, u64)> {
    let outcomes = results.outcomes.iter();
    outcomes
        .map(|it| (it.started.unwrap() / 1000, it.ended.unwrap() / 1000))
        .collect()
}

#[test]
fn a_job_is_preempted_for_a_user_below_its_entitlement() {
    let jobs = [("a", 0, 1000, 4), ("a", 0, 1000, 4), ("b", 95, 100, 4)];
    let results = run(8, &jobs, Some(60));
    // A preemption of either job of user a loses the same work, so the older one is preempted. At
    // 100 it had run for 100 s, 40 of them after its last checkpoint.
    assert_eq!(start_and_end_s(&results)[2], (100, 200));
    assert_eq!(
        results.outcomes[0].evictions + results.outcomes[1].evictions,
        1
    );
    assert_eq!(results.outcomes[0].lost, 40_000 * 4 * 1000);
    // A checkpoint saved 60 s, and the job starts again when b has ended.
    assert_eq!(start_and_end_s(&results)[0], (0, 200 + 940));
    let results = run(8, &jobs, None);
    assert_eq!(
        start_and_end_s(&results)[0],
        (0, 200 + 1000),
        "nothing was saved"
    );
}

#[test]
fn a_user_below_its_share_is_not_preempted() {
    let jobs = [("a", 0, 1000, 4), ("b", 0, 1000, 4), ("c", 95, 100, 4)];
    let results = run(8, &jobs, None);
    // Without its job, a or b would have less than a third.
    assert_eq!(start_and_end_s(&results)[2].0, 1000);
    assert!(
        results
            .outcomes
            .iter()
            .all(|outcome| outcome.evictions == 0)
    );
}

#[test]
fn only_needed_jobs_are_preempted() {
    let jobs = [
        ("a", 0, 900, 1),
        ("a", 10, 900, 3),
        ("a", 20, 900, 8),
        ("b", 95, 100, 3),
        ("b", 95, 100, 3),
    ];
    let results = run(12, &jobs, None);
    // The small job costs least and is examined first, but the space of the second is enough.
    let evictions: Vec<u64> = results
        .outcomes
        .iter()
        .map(|outcome| outcome.evictions)
        .collect();
    assert_eq!(
        (start_and_end_s(&results)[3], evictions),
        ((100, 200), vec![0, 1, 0, 0, 0])
    );
}

#[test]
fn a_job_that_has_run_for_long_is_not_preempted() {
    let jobs = [("a", 0, 1000, 4), ("a", 50, 1000, 4), ("b", 95, 100, 4)];
    let evictions_with_protection = |protected_s| {
        let preemption = Preemption {
            checkpoint_s: None,
            protected_s,
        };
        let results = run_with_preemption(8, &jobs, preemption);
        [0, 1].map(|job| results.outcomes[job].evictions)
    };
    // A preemption of the younger job of user a loses less work. The younger job is protected too
    // if 40 s of run time are enough.
    assert_eq!(evictions_with_protection(None), [0, 1]);
    assert_eq!(evictions_with_protection(Some(60)), [0, 1]);
    assert_eq!(evictions_with_protection(Some(40)), [0, 0]);
}
