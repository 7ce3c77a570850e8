//! Three hundred nodes share work by weight. One process runs the agents of all nodes: the same
//! code as in a real agent, but with simulated containers.

use std::time::Duration;

use hayward_job_converter_api::submission::Tasks;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_rm_scheduler_api::AllocationState;
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_testkit::until_within;
use hayward_tests_fleet::{TestFleet, Timing, job_with_tasks, submit, wait_for_end};

const NODES: u32 = 300;
const LIMIT: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_nodes_share_by_weight() {
    let mut fleet = TestFleet::start_with_timing(Timing::for_many_nodes()).await;
    fleet.start_simulated_agents("sim", NODES);
    fleet.wait_until_nodes_take_work(NODES as usize).await;
    let mut jobs = Vec::new();
    for (user, class) in [("user-ada", "high"), ("user-ben", "normal")] {
        let client = fleet.client("job-converter", user);
        let mut work = job_with_tasks(&["pretend"], Tasks::Count(100_000));
        work.class = Some(class.into());
        jobs.push((submit(&client, "jobs", &work).await, client));
    }
    let scheduler = fleet.client("rm-scheduler", "operator");
    until_within(
        "both to hold their shares of 300 quanta",
        LIMIT,
        async || {
            let shares: Shares = scheduler.get("/v1/shares").await.ok()?;
            let held = |class: &str| -> u64 {
                shares
                    .classes
                    .iter()
                    .filter(|share| share.class == class)
                    .map(|share| share.tally.held)
                    .sum()
            };
            ((held("high"), held("normal")) == (200, 100)).then_some(())
        },
    )
    .await;
    // No node has granted more than its capacity (I2).
    let list: AllocationList = scheduler
        .get("/v1/allocations?limit=1000")
        .await
        .expect("allocations");
    let mut held = std::collections::BTreeMap::<String, u64>::new();
    let is_live = |view: &&AllocationView| view.state != AllocationState::Ended;
    for allocation in list.allocations.iter().filter(is_live) {
        *held.entry(allocation.node.to_string()).or_default() += allocation.order;
    }
    assert!(
        held.values().all(|quanta| *quanta <= 1),
        "a node is over-committed"
    );
    for (id, client) in &jobs {
        let _: WorkView = client
            .delete(&format!("/v1/jobs/{id}"))
            .await
            .expect("cancelled");
        let view = wait_for_end(client, id, LIMIT).await;
        assert_eq!(view.state, WorkState::Cancelled);
    }
    // The freed space is used again.
    let (_, ada) = &jobs[0];
    let work = job_with_tasks(&["pretend"], Tasks::Count(600));
    let last = submit(ada, "jobs", &work).await;
    let view = wait_for_end(ada, &last, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_eq!(view.tasks.map(|tasks| tasks.succeeded), Some(600));
}
