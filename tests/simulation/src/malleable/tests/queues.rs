//! The queues of the planner with small workloads. Each plan is checked during the run.

use hayward_rm_scheduler_api::policy::Policy;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A job as (user, queue, submit, run, tasks), with times in seconds.
type JobRow<'a> = (&'a str, Option<&'a str>, u64, u64, u64);

fn trace_with_queues(nodes: &[u64], rows: &[JobRow]) -> (Workload, Vec<Node>) {
    let jobs: Vec<_> = rows
        .iter()
        .map(|&(user, _queue, submit_s, run_s, tasks)| (user, submit_s, run_s, tasks))
        .collect();
    let (mut workload, mut nodes) = workload_and_nodes(nodes, &jobs);
    for (job, &(_, queue, ..)) in workload.jobs.iter_mut().zip(rows) {
        job.queue = queue.map(|queue| workload.queues.index(queue));
    }
    for node in &mut nodes {
        node.pool = "batch".to_owned();
    }
    (workload, nodes)
}

/// Returns a policy with one pool that is divided into these queues.
fn policy(queues: &Value) -> Policy {
    let policy = json!({
        "pools": { "batch": { "queues": queues } },
        "classes": {},
    });
    serde_json::from_value(policy).unwrap()
}

fn try_run(
    trace: &(Workload, Vec<Node>),
    queues: &Value,
    default: Option<&str>,
) -> Result<Results, PolicyError> {
    let (workload, nodes) = trace;
    let case = Case::malleable(workload, nodes);
    let policy = policy(queues);
    let mut planner = ProductionPlanner::with_queue(&case, &policy, default)?;
    let fairness = ProductionPlanner::fairness(&policy);
    Ok(simulate(&case, &mut planner, &fairness, &mut |_| {})?)
}

fn run(trace: &(Workload, Vec<Node>), queues: &Value) -> Results {
    try_run(trace, queues, None).unwrap()
}

fn queues_with_guarantees(gold: u64, rest: u64, delay_ms: u64) -> Value {
    let queue = |cores: u64| {
        json!({
            "submit_acl": "*", "preemption_delay_ms": delay_ms,
            "resources": { "guaranteed": { "vcore": cores } },
        })
    };
    json!({ "queues": { "gold": queue(gold), "rest": queue(rest) } })
}

/// One queue fills forty cores. The other has a guarantee of thirty and submits its jobs later.
#[test]
fn a_guarantee_is_met_within_the_delay_of_preemption() {
    const GOLD_SUBMIT_S: u64 = 1_000;
    const DELAY_S: u64 = 60;
    let mut rows: Vec<JobRow> = (0..40)
        .map(|index| ("bob", Some("root.rest"), index * 50, 400, 20))
        .collect();
    // The delay of a job restarts with each process that it gets, so these jobs are small.
    rows.extend([("ann", Some("root.gold"), GOLD_SUBMIT_S, 3_000, 3); 10]);
    rows.sort_by_key(|&(_, _, submit_s, ..)| submit_s);
    let trace = trace_with_queues(&[4; 10], &rows);
    let results = run(&trace, &queues_with_guarantees(30, 10, DELAY_S * 1000));
    let queues = &results.summary.queues;
    let (gold, rest) = (&queues["root.gold"], &queues["root.rest"]);
    assert_eq!((gold.jobs, gold.completed), (10, 10));
    assert_eq!((rest.jobs, rest.completed), (40, 40));
    let queue_index = |name: &str| results.series.queue_names.iter().position(|it| it == name);
    let (gold, rest) = (
        queue_index("root.gold").unwrap(),
        queue_index("root.rest").unwrap(),
    );
    let series = &results.series;
    let span = series.last - series.first;
    let count = series.buckets.len() as u64;
    let (mut checked_before, mut checked_after) = (0, 0);
    for (number, bucket) in (0..).zip(&series.buckets).filter(|(_, it)| it.samples > 0) {
        let (from, until) = (number * span / count, (number + 1) * span / count);
        let share_millionths =
            |queue| bucket.by_queue.get(&queue).copied().unwrap_or(0) / bucket.samples;
        if until < GOLD_SUBMIT_S * 1000 {
            assert_eq!(share_millionths(gold), 0);
            // The queue requests everything that it still needs, until all of it is granted.
            assert!(
                from < 200_000 || share_millionths(rest) == 1_000_000,
                "{from}: {bucket:?}"
            );
            checked_before += 1;
        }
        // A round runs every ten seconds, and one more after the end of the delay.
        if from > (GOLD_SUBMIT_S + DELAY_S + 20) * 1000 {
            assert!(share_millionths(gold) >= 750_000, "{from}: {bucket:?}");
            checked_after += 1;
        }
    }
    assert!(
        checked_before > 50 && checked_after > 50,
        "{checked_before} {checked_after}"
    );
    let gold_outcomes = results.outcomes.iter().filter(|it| it.queue == Some(gold));
    let first = gold_outcomes.filter_map(|it| it.started).min().unwrap();
    let waited = first - GOLD_SUBMIT_S * 1000;
    // Space can be free earlier only if another process ends by itself.
    assert!(waited <= (DELAY_S + 20) * 1000, "{waited}");
    let evictions: u64 = results.outcomes.iter().map(|it| it.evictions).sum();
    assert!(evictions > 0, "processes were preempted");
}

/// No job arrives or ends before the delay of preemption ends, so no event starts a round.
#[test]
fn a_round_runs_at_the_end_of_a_preemption_delay_without_an_event() {
    let rows = [
        ("bob", Some("rest"), 0, 5_000, 4),
        ("ann", Some("gold"), 100, 50, 2),
    ];
    let results = run(
        &trace_with_queues(&[4], &rows),
        &queues_with_guarantees(2, 2, 45_000),
    );
    assert_eq!(results.outcomes[1].started, Some(150_000));
    assert_eq!(results.summary.completed, 2);
}

#[test]
fn refused_jobs_are_counted_and_named_and_delay_no_other_job() {
    let queues = json!({
        "queues": { "a": { "submit_acl": "ann" }, "b": { "submit_acl": "*" } },
    });
    let rows = [
        ("ann", Some("root.a"), 0, 100, 4),
        ("bob", Some("root.a"), 0, 100, 4),
        ("bob", Some("nowhere"), 5, 100, 4),
        ("bob", None, 5, 100, 4),
        ("bob", Some("b"), 5, 100, 4),
    ];
    let trace = trace_with_queues(&[4], &rows);
    let results = run(&trace, &queues);
    let refused = &results.summary.refused;
    assert_eq!((refused.len(), results.summary.completed), (3, 2));
    assert_eq!(refused["not_authorised"].jobs, 1);
    let detail = "user bob may not submit to queue root.a";
    assert_eq!(refused["not_authorised"].first, detail);
    assert!(
        refused["unknown_class"]
            .first
            .contains("no queue root.nowhere")
    );
    assert_eq!(refused["no_class"].first, "no queue is named");
    let (workload, nodes) = &trace;
    let csv = crate::report::jobs_csv(&Case::malleable(workload, nodes), &results);
    let queue_column: Vec<&str> = csv
        .lines()
        .map(|it| it.rsplit(',').nth(1).unwrap())
        .collect();
    assert_eq!(queue_column, ["queue", "root.a", "", "", "", "root.b"]);
    assert!(csv.lines().nth(2).unwrap().ends_with(",,not_authorised"));
    // With a default queue, a job that names no queue is in the default queue.
    let results = try_run(&trace, &queues, Some("root.b")).unwrap();
    assert_eq!(results.summary.completed, 3);
    assert_eq!(results.summary.queues["root.b"].jobs, 2);
}

#[test]
fn a_placement_rule_can_use_the_name_of_the_user() {
    let queues = json!({
        "queues": { "users": { "submit_acl": "*", "parent": true } },
        "placement": [{ "rule": "user", "create": true,
                        "parent": { "rule": "fixed", "value": "users" } }],
    });
    let rows = [("ann", None, 0, 100, 2), ("bob", Some("root.x"), 0, 100, 2)];
    let results = run(&trace_with_queues(&[4], &rows), &queues);
    let names: Vec<&str> = results.summary.queues.keys().map(String::as_str).collect();
    assert_eq!(names, ["root.users.ann", "root.users.bob"]);
    assert_eq!(results.summary.completed, 2);
}

/// One pool has queues and another has a class. Each job runs in its own pool.
#[test]
fn classes_and_queues_serve_their_own_jobs() {
    let (workload, mut nodes) = trace_with_queues(
        &[4, 4],
        &[("ann", None, 0, 100, 4), ("bob", Some("a"), 0, 100, 4)],
    );
    nodes[1].pool = "default".to_owned();
    let mut policy = policy(&json!({ "queues": { "a": { "submit_acl": "*" } } }));
    let class_policy: Policy = serde_json::from_value(json!({
        "pools": { "default": {} },
        "classes": { "c": { "policy": "FAIR_SHARE", "pool": "default", "default": true } },
    }))
    .unwrap();
    policy.pools.extend(class_policy.pools);
    policy.classes = class_policy.classes;
    let case = Case::malleable(&workload, &nodes);
    let mut planner = ProductionPlanner::new(&case, &policy).unwrap();
    let results = simulate(&case, &mut planner, &Fairness::Users, &mut |_| {}).unwrap();
    assert_eq!(results.summary.completed, 2);
    let started: Vec<_> = results.outcomes.iter().map(|it| it.started).collect();
    assert_eq!(started, [Some(0), Some(0)]);
    let queues: Vec<_> = results.outcomes.iter().map(|it| it.queue).collect();
    assert_eq!(queues, [None, Some(0)]);
    assert_eq!(results.summary.queues["root.a"].jobs, 1);
}

#[test]
fn a_queue_for_a_policy_without_queues_is_refused() {
    let (workload, nodes) = workload_and_nodes(&[4], &[("a", 0, 100, 8)]);
    let case = Case::malleable(&workload, &nodes);
    let even = ProductionPlanner::even(&case);
    let error = ProductionPlanner::with_queue(&case, &even, Some("root.a")).err();
    assert_eq!(error, Some(PolicyError::NoQueues("root.a".to_owned())));
}

/// A job larger than the limit of its queue is not served, and the simulation still ends.
#[test]
fn a_job_that_never_runs_is_named_and_the_simulation_ends() {
    let queues = json!({ "queues": { "a": {
        "submit_acl": "*", "limits": [{ "users": ["ann"], "max_resources": { "vcore": "500m" } }],
    } } });
    let rows = [("ann", Some("a"), 0, 100, 1), ("bob", Some("a"), 0, 100, 1)];
    let results = run(&trace_with_queues(&[4], &rows), &queues);
    assert_eq!((results.summary.jobs, results.summary.completed), (2, 1));
    assert!(results.summary.refused.is_empty() && results.outcomes[0].started.is_none());
    let (reason, waiting) = results.summary.never_ran.iter().next().unwrap();
    assert_eq!((reason.as_str(), waiting.jobs), ("user_quota", 1));
    assert!(waiting.first.starts_with("job 0: "), "{}", waiting.first);
}

/// Generates jobs as (index of the user, index of the queue, submit, run, tasks).
fn job_rows() -> impl Strategy<Value = Vec<(usize, usize, u64, u64, u64)>> {
    let row = (0..3_usize, 0..3_usize, 0..2_000_u64, 1..900_u64, 1..9_u64);
    proptest::collection::vec(row, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Checks that every job with a queue ends, and that a second run gives the same result.
    #[test]
    fn every_job_with_a_queue_ends_and_runs_are_repeatable(
        mut jobs in job_rows(),
        nodes in proptest::collection::vec(1..9_u64, 1..5),
        (gold, rest, delay_ms) in (0..20_u64, 0..20_u64, 0..90_000_u64),
    ) {
        let (users, queues) = (["ann", "bob", "cat"], ["gold", "rest", "root.rest"]);
        jobs.sort_by_key(|&(_, _, submit_s, ..)| submit_s);
        let rows: Vec<JobRow> = jobs
            .iter()
            .map(|&(user, queue, submit_s, run_s, tasks)| {
                (users[user], Some(queues[queue]), submit_s, run_s, tasks)
            })
            .collect();
        let trace = trace_with_queues(&nodes, &rows);
        let (first, second) = (
            run(&trace, &queues_with_guarantees(gold, rest, delay_ms)),
            run(&trace, &queues_with_guarantees(gold, rest, delay_ms)),
        );
        prop_assert_eq!(&first.outcomes, &second.outcomes);
        prop_assert_eq!(&first.summary, &second.summary);
        prop_assert_eq!(first.summary.completed, jobs.len());
        let total_share: f64 = first.summary.queues.values().map(|queue| queue.share).sum();
        prop_assert!(total_share <= 1.0 + 1e-6);
        for outcome in &first.outcomes {
            let (started, ended) = (outcome.started.unwrap(), outcome.ended.unwrap());
            prop_assert!(started >= outcome.submitted);
            prop_assert!(ended >= started + outcome.run_s * 1000, "{:?}", outcome);
        }
    }
}
