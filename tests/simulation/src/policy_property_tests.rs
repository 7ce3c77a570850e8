//! Property tests of the simulated policies with random workloads and nodes. A node panics if its
//! space is granted twice, so a completed run also proves that no node was over-committed.

use proptest::prelude::*;

use crate::{
    Case, Job, Node, Workload,
    batch::{self, Discipline},
    gang::{self, Preemption},
    malleable::{self, Fluid, ProductionPlanner},
    measure::{Fairness, Results},
    trace::TaskRequest,
};

fn node() -> impl Strategy<Value = Node> {
    (1..9_u64, 0..3_u64, 0..3_u64).prop_map(|(cores, gib, gpus)| Node {
        id: String::new(),
        pool: "default".into(),
        cpu_milli: cores * 1000,
        // In some cases the memory is 0, which means not known.
        memory_mib: gib * 2048,
        gpu_count: gpus,
        gpu_model: "T4".into(),
    })
}

/// Generates the number of a user and a job. The caller sets the id and registers the user.
fn job() -> impl Strategy<Value = (usize, Job)> {
    let request = (
        1..4_u64,
        0..3000_u64,
        prop_oneof![Just((0, 0)), Just((1, 400)), Just((2, 1000))],
    );
    let times = (0..400_u64, 1..200_u64, proptest::option::of(1..300_u64));
    (0..4_usize, times, 1..7_u64, request, any::<bool>()).prop_map(
        |(
            user,
            (submit, run, limit),
            tasks,
            (cores, memory_mib, (gpu_count, gpu_milli)),
            exclusive,
        )| {
            let job = Job {
                id: String::new(),
                user,
                class: 0,
                queue: None,
                submit_s: Some(submit),
                runtime_s: Some(run),
                limit_s: limit,
                tasks,
                request: TaskRequest {
                    cpu_milli: cores * 500,
                    memory_mib,
                    gpu_count,
                    gpu_milli,
                    exclusive: exclusive && gpu_count == 0 && cores == 1,
                    ..TaskRequest::default()
                },
            };
            (user, job)
        },
    )
}

fn workload_and_nodes() -> impl Strategy<Value = (Workload, Vec<Node>)> {
    let nodes = proptest::collection::vec(node(), 1..5);
    let jobs = proptest::collection::vec(job(), 1..30);
    (jobs, nodes).prop_map(|(jobs, mut nodes)| {
        let mut workload = Workload::default();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.id = format!("n{index}");
        }
        for (index, (user, job)) in jobs.into_iter().enumerate() {
            let job = Job {
                id: index.to_string(),
                user: workload.users.index(&format!("u{user}")),
                class: workload.classes.index("c"),
                ..job
            };
            workload.jobs.push(job);
        }
        (workload, nodes)
    })
}

/// Checks that every job ends, none too early, and that a second run gives the same result.
fn check_invariants(
    case: &Case,
    simulate: impl Fn() -> Results,
    is_malleable: bool,
) -> Result<(), TestCaseError> {
    let (first, second) = (simulate(), simulate());
    prop_assert_eq!(&first.outcomes, &second.outcomes);
    prop_assert_eq!(&first.summary, &second.summary);
    prop_assert_eq!(first.summary.completed, case.jobs.len());
    for outcome in &first.outcomes {
        let (started, ended) = (outcome.started.unwrap(), outcome.ended.unwrap());
        prop_assert!(started >= outcome.submitted);
        prop_assert!(ended >= started + outcome.run_s * 1000, "{:?}", outcome);
        // A batch or gang job loses work only by a preemption.
        prop_assert!(is_malleable || outcome.evictions > 0 || outcome.lost == 0);
    }
    prop_assert!(first.summary.utilisation <= 1.0 && first.summary.jain <= 1.0 + 1e-9);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rigid_policies_start_and_end_everything((workload, nodes) in workload_and_nodes()) {
        let case = Case::rigid(&workload, &nodes);
        for discipline in [Discipline::Fcfs, Discipline::Easy, Discipline::FairEasy] {
            let run = || batch::simulate(&case, discipline, &Fairness::Users, &mut |_| {});
            check_invariants(&case, run, false)?;
            let results = run();
            prop_assert!(results.outcomes.iter().all(|outcome| outcome.evictions == 0));
        }
        for checkpoint in [Some(60), None] {
            let preemption = Preemption { checkpoint_s: checkpoint, protected_s: None };
            let run = || gang::simulate(&case, preemption, &Fairness::Users, &mut |_| {});
            check_invariants(&case, run, false)?;
        }
    }

    #[test]
    fn no_job_overtakes_under_fcfs((workload, nodes) in workload_and_nodes()) {
        let case = Case::rigid(&workload, &nodes);
        let results = batch::simulate(&case, Discipline::Fcfs, &Fairness::Users, &mut |_| {});
        let starts: Vec<_> = results.outcomes.iter().map(|outcome| outcome.started).collect();
        prop_assert!(starts.is_sorted());
    }

    #[test]
    fn fluid_shares_start_and_end_everything((workload, nodes) in workload_and_nodes()) {
        let case = Case::malleable(&workload, &nodes);
        let run = || {
            let mut fluid = Fluid::new(Fairness::Users, 1);
            malleable::simulate(&case, &mut fluid, &Fairness::Users, &mut |_| {}).unwrap()
        };
        check_invariants(&case, run, true)?;
    }
}

#[test]
fn the_planner_of_real_fleets_divides_evenly_among_users() {
    let mut workload = Workload::default();
    for index in 0..60_u64 {
        let job = Job {
            id: index.to_string(),
            user: workload.users.index(&format!("u{}", index % 3)),
            class: workload.classes.index("c"),
            queue: None,
            submit_s: Some(index * 20),
            runtime_s: Some(100 + index * 37 % 400),
            limit_s: None,
            tasks: 1 + index * 5 % 11,
            request: TaskRequest {
                cpu_milli: 1000,
                memory_mib: 100,
                ..TaskRequest::default()
            },
        };
        workload.jobs.push(job);
    }
    let node = |index: u64| Node {
        id: format!("n{index}"),
        pool: "default".into(),
        cpu_milli: 8000,
        memory_mib: 16_384,
        gpu_count: 0,
        gpu_model: String::new(),
    };
    let nodes: Vec<Node> = (0..3).map(node).collect();
    let case = Case::malleable(&workload, &nodes);
    let run = || {
        let planner = ProductionPlanner::new(&case, &ProductionPlanner::even(&case)).unwrap();
        let mut planner = planner.with_current_entitlement();
        malleable::simulate(&case, &mut planner, &Fairness::Users, &mut |_| {}).unwrap()
    };
    check_invariants(&case, run, true).unwrap();
    let summary = run().summary;
    assert!(
        summary.contended > 0.5 && summary.jain > 0.98,
        "{summary:?}"
    );
    assert!(summary.deviation < 0.05, "{summary:?}");
}
