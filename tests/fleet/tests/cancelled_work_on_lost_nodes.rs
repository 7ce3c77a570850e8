//! Work that is cancelled on a node that is then lost: the work ends with its node, and no service
//! publishes it any more.

use std::time::Duration;

use hayward_container_manager_api::{ContainerList, ContainerState, ContainerView};
use hayward_node_status_api::{Health, NodeView};
use hayward_service::{Client, ClientError};
use hayward_testkit::until_within;
use hayward_tests_fleet::{TestFleet, is_running, service, submit, wait_for_view};
use hayward_vocabulary::WorkId;
use http::Method;
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(2);

/// Starts a service that ignores SIGTERM, and waits until it runs on the only node.
async fn start_service_ignoring_sigterm(fleet: &TestFleet) -> (Client, WorkId) {
    let ada = fleet.client("job-converter", "user-ada");
    let script = "trap '' TERM; while :; do sleep 1; done";
    let work = submit(&ada, "services", &service(&["sh", "-c", script], 1)).await;
    wait_for_view(&ada, &format!("/v1/services/{work}"), LIMIT, is_running).await;
    (ada, work)
}

async fn wait_for_container_state(
    fleet: &TestFleet,
    work: &WorkId,
    expected: ContainerState,
) -> ContainerView {
    let client = fleet.client("container-manager", "operator");
    let path = format!("/v1/containers?work={work}.0");
    until_within(
        &format!("the container to be {expected:?}"),
        LIMIT,
        async || {
            let list: ContainerList = client.get(&path).await.ok()?;
            let mut containers = list.containers.into_iter();
            containers.find(|it| it.entry.state == expected)
        },
    )
    .await
}

async fn wait_for_node_health(fleet: &TestFleet, expected: Health) {
    let client = fleet.client("node-status", "operator");
    until_within(&format!("the node to be {expected:?}"), LIMIT, async || {
        let view: NodeView = client.get("/v1/nodes/node-1").await.ok()?;
        (view.entry.health == expected).then_some(())
    })
    .await;
}

async fn cancel(ada: &Client, work: &WorkId) {
    let path = format!("/v1/services/{work}");
    let call = ada.call(Method::DELETE, path).if_match_any();
    let _: Value = call.send().await.expect("cancelled");
}

/// Waits until no publication mentions the work any more.
async fn wait_until_publications_are_empty(fleet: &TestFleet) {
    for (service, reader, name) in [
        ("container-manager", "rm-scheduler", "containers"),
        ("rm-scheduler", "container-manager", "allocations"),
        ("rm-scheduler", "container-manager", "closed"),
    ] {
        let client = fleet.client(service, reader);
        let path = format!("/v1/{name}/publication");
        until_within(&format!("no {name}"), LIMIT, async || {
            let publication: Value = client.get(&path).await.ok()?;
            let is_empty = publication["changed"].as_object()?.is_empty();
            is_empty.then_some(())
        })
        .await;
    }
}

/// Removes the lost node from node-status.
async fn forget_node(fleet: &TestFleet) {
    let client = fleet.client("node-status", "operator");
    let call = client.call(Method::DELETE, "/v1/nodes/node-1");
    let result: Result<Option<()>, ClientError> = call.if_match_any().send().await;
    result.expect("a lost node is forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_cancelled_on_a_silent_node_ends_with_the_node() {
    let fleet = TestFleet::start_with_agents(1).await;
    let (ada, work) = start_service_ignoring_sigterm(&fleet).await;
    fleet.signal("node-1", Signal::SIGSTOP);
    wait_for_node_health(&fleet, Health::Suspect).await;
    cancel(&ada, &work).await;
    wait_for_container_state(&fleet, &work, ContainerState::Stopping).await;
    wait_for_node_health(&fleet, Health::Lost).await;
    wait_for_container_state(&fleet, &work, ContainerState::Ended).await;
    wait_until_publications_are_empty(&fleet).await;
    forget_node(&fleet).await;
    // The node returns and ends work that no service knows any more.
    fleet.signal("node-1", Signal::SIGCONT);
    fleet.wait_until_nodes_take_work(1).await;
    until_within("nothing to run there", LIMIT, async || {
        (fleet.count_processes_on("node-1", "") == 0).then_some(())
    })
    .await;
    wait_until_publications_are_empty(&fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_withdrawn_just_before_its_node_is_lost_ends_with_the_node() {
    let mut fleet = TestFleet::start_with_agents(1).await;
    let (ada, work) = start_service_ignoring_sigterm(&fleet).await;
    cancel(&ada, &work).await;
    wait_for_container_state(&fleet, &work, ContainerState::Stopping).await;
    fleet.lose_node("node-1");
    wait_for_node_health(&fleet, Health::Lost).await;
    wait_for_container_state(&fleet, &work, ContainerState::Ended).await;
    wait_until_publications_are_empty(&fleet).await;
    forget_node(&fleet).await;
}
