//! Tests of the planner of real fleets as a policy of the simulation.

use serde_json::json;

use super::*;
use crate::{
    malleable::simulate,
    measure::Fairness,
    trace::{TaskRequest, Workload},
};

/// Submission and run time in seconds, and the number of tasks.
#[derive(Clone, Copy)]
struct Times {
    submit: u64,
    run: u64,
    tasks: u64,
}

const SHORT: Times = Times {
    submit: 0,
    run: 10,
    tasks: 1,
};

fn add_job(workload: &mut Workload, user: &str, times: Times, request: TaskRequest) {
    let Times { submit, run, tasks } = times;
    let job = Job {
        id: workload.jobs.len().to_string(),
        user: workload.users.index(user),
        class: workload.classes.index("c"),
        queue: None,
        submit_s: Some(submit),
        runtime_s: Some(run),
        limit_s: None,
        tasks,
        request,
    };
    workload.jobs.push(job);
}

fn node(gpu_count: u64) -> Node {
    Node {
        id: "n".to_owned(),
        pool: "batch".to_owned(),
        cpu_milli: 64_000,
        memory_mib: 0,
        gpu_count,
        gpu_model: String::new(),
    }
}

fn gpu_request(gpu_count: u64, gpu_milli: u64) -> TaskRequest {
    TaskRequest {
        cpu_milli: 1_000,
        gpu_count,
        gpu_milli,
        ..TaskRequest::default()
    }
}

fn grant_for(job: usize, node: &Node, gpus: Vec<u64>) -> Grant {
    Grant {
        work: work_id(job),
        kind: WorkKind::Job,
        user: "ann".parse().unwrap(),
        class: "root.a".into(),
        node: node_name(0, node),
        quanta: 1,
        size: Size::default(),
        fixed: false,
        gpus,
        group: None,
    }
}

/// The planner chooses the GPUs of a process and plans later rounds with this choice. If the
/// simulation used another GPU, the next grant would not fit.
#[test]
fn shares_of_gpus_are_on_the_gpus_that_the_planner_chose() {
    let mut workload = Workload::default();
    for milli in [300, 300, 700, 700] {
        add_job(&mut workload, "ann", SHORT, gpu_request(1, milli));
    }
    let nodes = [node(2)];
    let case = Case::malleable(&workload, &nodes);
    let mut planner = ProductionPlanner::new(&case, &ProductionPlanner::even(&case)).unwrap();
    let mut fleet = SimulatedFleet::new(&case, &Fairness::Users);
    for (job, gpu) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        fleet.submit(job);
        planner.work_index.insert(work_id(job), job);
        planner.grant(&mut fleet, &grant_for(job, &nodes[0], vec![gpu]));
    }
    assert_eq!(
        fleet.count_fitting(0, &gpu_request(1, 1)),
        0,
        "both GPUs are full"
    );
}

#[test]
fn shares_of_gpus_are_served_by_users_and_by_queues() {
    let mut workload = Workload::default();
    let sizes = [300, 500, 700, 1_000, 200].into_iter().cycle();
    for (index, milli) in (0..60_u64).zip(sizes) {
        let user = format!("u{}", index % 4);
        let times = Times {
            submit: index * 3,
            run: 40 + index * 131 % 390,
            tasks: 1 + index * 7 % 9,
        };
        add_job(&mut workload, &user, times, gpu_request(1, milli));
    }
    let nodes = [node(4), node(2), node(3)];
    let case = Case::malleable(&workload, &nodes);
    for (policy, queue) in [
        (ProductionPlanner::even(&case), None),
        (queue_policy(), Some("root.a")),
    ] {
        let mut planner = ProductionPlanner::with_queue(&case, &policy, queue).unwrap();
        let results = simulate(&case, &mut planner, &Fairness::Users, &mut |_| {}).unwrap();
        assert_eq!(results.summary.completed, 60);
    }
}

#[test]
fn shares_of_several_gpus_at_once_are_refused() {
    let mut workload = Workload::default();
    add_job(&mut workload, "ann", SHORT, gpu_request(2, 1_000));
    add_job(&mut workload, "ann", SHORT, gpu_request(2, 500));
    let nodes = [node(2)];
    let case = Case::malleable(&workload, &nodes);
    let error = ProductionPlanner::new(&case, &ProductionPlanner::even(&case)).err();
    let (job, gpus) = ("1".to_owned(), 2);
    assert_eq!(error, Some(PolicyError::FractionsOfManyGpus { job, gpus }));
}

fn queue_policy() -> Policy {
    let queues = json!({ "queues": { "a": { "submit_acl": "*" } } });
    let policy = json!({ "pools": { "batch": { "queues": queues } }, "classes": {} });
    serde_json::from_value(policy).unwrap()
}

/// An invalid plan ends the simulation with an error, and no figures are reported.
#[test]
fn an_invalid_plan_is_refused_with_an_error() {
    let mut workload = Workload::default();
    add_job(&mut workload, "ann", SHORT, gpu_request(0, 0));
    let nodes = [node(0)];
    let case = Case::malleable(&workload, &nodes);
    let mut planner =
        ProductionPlanner::with_queue(&case, &queue_policy(), Some("root.a")).unwrap();
    let mut fleet = SimulatedFleet::new(&case, &Fairness::Users);
    let plan = Plan {
        grants: vec![grant_for(7, &nodes[0], Vec::new())],
        ..Plan::default()
    };
    let result = planner.accept_plan(&mut fleet, &SnapshotDelta::default(), &plan);
    let result = result.unwrap_err().to_string();
    assert!(
        result.contains("work job_000000007 asks for nothing"),
        "{result}"
    );

    // The job was submitted, but no round has handled it.
    planner.unqueued_jobs.push(0);
    let result = planner.accept_plan(&mut fleet, &SnapshotDelta::default(), &Plan::default());
    let (round, work) = (0, work_id(0));
    assert_eq!(result, Err(SimulationError::MissingVerdict { round, work }));
}
