//! The walkthroughs of `docs/a-job-runs.md`, on a fleet of real processes.

use std::time::Duration;

use hayward_blocklist_api::{BlockAction, BlockAnswer, BlockKind, BlockRequest};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_rm_scheduler_api::occupancy::Occupancy;
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::views::AllocationList;
use hayward_testkit::until;
use hayward_tests_fleet::{
    TaskRunCounter, TestFleet, assert_all_succeeded, is_running, job, reservation, service, submit,
    task_outcomes, wait_for_end, wait_for_view,
};
use hayward_vocabulary::NodeName;

const LIMIT: Duration = Duration::from_mins(1);

/// A job passes through all services, and its outcomes return to the user (D8).
#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_each_task_once_and_leaves_no_allocation() {
    let fleet = TestFleet::start_with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], 40);
    work.command = runs.command("0.01");
    let id = submit(&ada, "jobs", &work).await;
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&ada, &id).await, 40);
    for task in 0..40 {
        assert_eq!(runs.count(task), 1, "task {task}");
    }
    // The scheduler has no allocation of the job left.
    let scheduler = fleet.client("rm-scheduler", "operator");
    until("every allocation to be removed", async || {
        let list: AllocationList = scheduler.get("/v1/allocations").await.ok()?;
        list.allocations.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_is_reported_and_a_cancelled_one_stops() {
    let fleet = TestFleet::start_with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let mut submission = job(&["sh", "-c", "echo no; exit 3"], 2);
    submission.max_attempts = Some(2);
    let failing_job = submit(&ada, "jobs", &submission).await;
    let endless_job = submit(&ada, "jobs", &job(&["sleep", "1000"], 3)).await;
    let view = wait_for_end(&ada, &failing_job, LIMIT).await;
    assert_eq!(view.state, WorkState::Failed, "{view:?}");
    let task_outcomes = task_outcomes(&ada, &failing_job).await;
    assert!(
        task_outcomes
            .iter()
            .all(|outcome| outcome.exit_code == Some(3) && outcome.attempt == 2)
    );
    let path = format!("/v1/jobs/{endless_job}");
    wait_for_view(&ada, &path, LIMIT, is_running).await;
    let _: WorkView = ada.delete(&path).await.expect("cancelled");
    let view = wait_for_end(&ada, &endless_job, LIMIT).await;
    assert_eq!(view.state, WorkState::Cancelled);
}

/// The users have the weights 2 and 1. Each of them could fill all twelve quanta.
#[tokio::test(flavor = "multi_thread")]
async fn two_users_share_by_weight() {
    let fleet = TestFleet::start_with_agents(3).await;
    let mut jobs = Vec::new();
    for (user, class) in [("user-ada", "high"), ("user-ben", "normal")] {
        let client = fleet.client("job-converter", user);
        let mut work = job(&["sleep", "0.2"], 100_000);
        work.class = Some(class.into());
        jobs.push((submit(&client, "jobs", &work).await, client));
    }
    let scheduler = fleet.client("rm-scheduler", "operator");
    until("eight quanta for ada and four for ben", async || {
        let shares: Shares = scheduler.get("/v1/shares").await.ok()?;
        let held = |class: &str| {
            shares
                .classes
                .iter()
                .filter(|share| share.class == class)
                .map(|share| share.tally.held)
                .sum()
        };
        let (ada, ben): (u64, u64) = (held("high"), held("normal"));
        ((ada, ben) == (8, 4)).then_some(())
    })
    .await;
    for (id, client) in jobs {
        let _: WorkView = client
            .delete(&format!("/v1/jobs/{id}"))
            .await
            .expect("cancelled");
    }
}

/// The instance on the blocked node is moved to the other node. After the block the node takes a
/// reservation.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_node_is_emptied_and_takes_work_again() {
    let fleet = TestFleet::start_with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let operator = fleet.client("blocklist", "operator");
    let scheduler = fleet.client("rm-scheduler", "operator");
    until("the scheduler to know both nodes", async || {
        let known: Occupancy = scheduler.get("/v1/occupancy").await.ok()?;
        (known.nodes.iter().filter(|node| node.up).count() == 2).then_some(())
    })
    .await;
    let script = "while :; do echo up; sleep 0.2; done";
    let id = submit(&ada, "services", &service(&["sh", "-c", script], 2)).await;
    let path = format!("/v1/services/{id}");
    let running_nodes = |view: &WorkView| {
        let running = view
            .processes
            .iter()
            .filter(|process| process.state == "running");
        running
            .map(|process| process.node.clone())
            .collect::<Vec<NodeName>>()
    };
    // Instances of one service go to different nodes while they can.
    let view = wait_for_view(&ada, &path, LIMIT, |view| running_nodes(view).len() == 2).await;
    let nodes = running_nodes(&view);
    assert_ne!(nodes[0], nodes[1]);
    let item = BlockRequest {
        kind: BlockKind::Node,
        identifier: nodes[0].to_string(),
        action: BlockAction::Evacuate,
        cause: "test".into(),
        end: None,
        duration_ms: Some(3_000),
        permanent: false,
        removal_no: None,
        scope: None,
        evacuation: None,
    };
    let _: BlockAnswer = operator
        .put("/v1/blocklist/items", &item)
        .await
        .expect("blocked");
    let is_moved = |view: &WorkView| {
        let current = running_nodes(view);
        current.len() == 2 && current.iter().all(|node| *node == nodes[1])
    };
    wait_for_view(&ada, &path, LIMIT, is_moved).await;
    // The block ends after three seconds. A node can be reserved only while no service runs on it,
    // so the reservation gets the node that was blocked.
    let reservation_id = submit(&ada, "reservations", &reservation()).await;
    let view = wait_for_view(
        &ada,
        &format!("/v1/reservations/{reservation_id}"),
        LIMIT,
        is_running,
    )
    .await;
    assert_eq!(view.processes[0].node, nodes[0]);
}
