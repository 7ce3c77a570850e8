//! Work on nodes that are cut off from the network or whose agent is stopped. Each agent is in its
//! own network namespace. The work records the times at which it runs (W7).

use std::time::Duration;

use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_api::unreachable::{ReplaceAfter, UnreachableChoice, UnreachableWord};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{
    ActivityLog, Agent, IsolatedNetwork, PacketLoss, TestFleet, service, submit, wait_for_view,
};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_mins(1);

/// The network of one agent.
struct AgentNetwork {
    node: NodeName,
    network: IsolatedNetwork,
}

/// Two agents, each in its own network. If this machine cannot create such networks, `new` prints
/// the reason and returns `None`.
struct Setup {
    fleet: TestFleet,
    networks: Vec<AgentNetwork>,
    ada: Client,
}

impl Setup {
    async fn new() -> Option<Self> {
        let networks: Result<Vec<_>, String> = (1..=2)
            .map(|number| {
                Ok(AgentNetwork {
                    node: NodeName::new(format!("node-{number}")).expect("a node name"),
                    network: IsolatedNetwork::new()?,
                })
            })
            .collect();
        let networks = match networks {
            Ok(networks) => networks,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let fleet = TestFleet::start_without_tls().await;
        let ada = fleet.client("job-converter", "user-ada");
        Some(Self {
            fleet,
            networks,
            ada,
        })
    }

    fn start_agent(&mut self, index: usize) {
        let AgentNetwork { node, network } = &self.networks[index];
        self.fleet
            .start_agent_in(network, node.as_str(), &Agent::default());
    }

    fn set_packet_loss(&self, node: &NodeName, loss: PacketLoss) {
        let mut networks = self.networks.iter();
        let found = networks.find(|it| it.node == *node).expect("a network");
        found.network.set_packet_loss(loss);
    }

    async fn submit(&self, command: Vec<String>, choice: UnreachableChoice) -> WorkId {
        let body = ServiceSubmission {
            command,
            when_unreachable: Some(choice),
            ..service(&[], 1)
        };
        submit(&self.ada, "services", &body).await
    }

    /// Asserts that the allocation is shown as unreachable, with the reason.
    async fn assert_unreachable_is_shown(&self, id: &WorkId, allocation: &AllocationId) {
        let path = format!("/v1/services/{id}");
        let view: WorkView = self.ada.get(&path).await.expect("a view");
        let is_unreachable = view
            .processes
            .iter()
            .any(|process| process.allocation == *allocation && process.state == "unreachable");
        let reason = view.reason.as_deref().unwrap_or_default();
        assert!(is_unreachable && reason.contains("unreachable"), "{view:?}");
    }

    /// Waits until the work runs as another allocation than `previous`. Returns the allocation and
    /// its node.
    async fn wait_until_running(
        &self,
        id: &WorkId,
        previous: Option<&AllocationId>,
    ) -> (AllocationId, NodeName) {
        let path = format!("/v1/services/{id}");
        let view = wait_for_view(&self.ada, &path, LIMIT, |view| {
            running_process(view, previous).is_some()
        })
        .await;
        running_process(&view, previous).expect("checked above")
    }
}

fn running_process(
    view: &WorkView,
    previous: Option<&AllocationId>,
) -> Option<(AllocationId, NodeName)> {
    let process = view
        .processes
        .iter()
        .find(|process| process.state == "running" && Some(&process.allocation) != previous)?;
    Some((process.allocation.clone(), process.node.clone()))
}

/// Waits until the allocation has recorded another time.
async fn wait_for_activity(activity: &ActivityLog, id: &AllocationId) {
    let before = activity.last_activity(id);
    until_within(&format!("{id} to go on"), LIMIT, async || {
        (activity.last_activity(id) > before).then_some(())
    })
    .await;
}

/// Exclusive work has ended before its successor begins, whatever happens to its node (I4).
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_never_runs_twice() {
    let Some(mut setup) = Setup::new().await else {
        return;
    };
    setup.start_agent(0);
    setup.start_agent(1);
    setup.fleet.wait_until_nodes_take_work(2).await;
    let activity = ActivityLog::new(setup.fleet.dir.path(), "alone");
    let choice = UnreachableChoice::Word(UnreachableWord::Exclusive);
    let id = setup
        .submit(activity.command_ignoring_sigterm(), choice)
        .await;
    let (mut allocation, mut node) = setup.wait_until_running(&id, None).await;
    for fault in [
        Some(PacketLoss::BothWays),
        Some(PacketLoss::ToAgent),
        Some(PacketLoss::FromAgent),
        // The agent is stopped for longer than its lease.
        None,
    ] {
        wait_for_activity(&activity, &allocation).await;
        match fault {
            Some(loss) => setup.set_packet_loss(&node, loss),
            None => setup.fleet.signal(node.as_str(), Signal::SIGSTOP),
        }
        let (next, next_node) = setup.wait_until_running(&id, Some(&allocation)).await;
        assert_ne!(next_node, node, "{fault:?}");
        wait_for_activity(&activity, &next).await;
        activity.assert_no_overlap();
        match fault {
            Some(_) => setup.set_packet_loss(&node, PacketLoss::None),
            None => setup.fleet.signal(node.as_str(), Signal::SIGCONT),
        }
        // After the repair both nodes are healthy, and the successor is the only process.
        setup.fleet.wait_until_nodes_take_work(2).await;
        let path = format!("/v1/services/{id}");
        let view = wait_for_view(&setup.ada, &path, LIMIT, |view| view.processes.len() == 1).await;
        assert_eq!(view.processes[0].allocation, next, "{fault:?}: {view:?}");
        wait_for_activity(&activity, &next).await;
        activity.assert_no_overlap();
        (allocation, node) = (next, next_node);
    }
}

/// A service with one choice of `when_unreachable`.
struct Case {
    name: &'static str,
    id: WorkId,
    activity: ActivityLog,
    /// Allocation on the node that is cut off.
    allocation: AllocationId,
    /// Whether another process replaces the unreachable one during the test.
    is_replaced: bool,
}

/// Submits one service for each choice, and waits until it runs.
async fn submit_cases(setup: &Setup) -> Vec<Case> {
    let after = |replace_after_ms| UnreachableChoice::After(ReplaceAfter { replace_after_ms });
    let mut cases = Vec::new();
    for (name, choice, is_replaced) in [
        (
            "wait",
            UnreachableChoice::Word(UnreachableWord::Wait),
            false,
        ),
        (
            "replace",
            UnreachableChoice::Word(UnreachableWord::Replace),
            true,
        ),
        ("soon", after(1_000), true),
        ("late", after(600_000), false),
    ] {
        let activity = ActivityLog::new(setup.fleet.dir.path(), name);
        let id = setup.submit(activity.command(), choice).await;
        let (allocation, _) = setup.wait_until_running(&id, None).await;
        cases.push(Case {
            name,
            id,
            activity,
            allocation,
            is_replaced,
        });
    }
    cases
}

/// One service for each choice of `when_unreachable` runs on the same node, which is then cut off.
#[tokio::test(flavor = "multi_thread")]
async fn each_choice_for_an_unreachable_node_is_carried_out() {
    let Some(mut setup) = Setup::new().await else {
        return;
    };
    setup.start_agent(0);
    setup.fleet.wait_until_nodes_take_work(1).await;
    let cases = submit_cases(&setup).await;
    let first = setup.networks[0].node.clone();
    setup.start_agent(1);
    setup.fleet.wait_until_nodes_take_work(2).await;
    setup.set_packet_loss(&first, PacketLoss::BothWays);
    let mut successors = Vec::new();
    for case in &cases {
        if case.is_replaced {
            let previous = Some(&case.allocation);
            let (next, next_node) = setup.wait_until_running(&case.id, previous).await;
            assert_ne!(next_node, first);
            successors.push((&case.id, next));
        }
    }
    // No service reaches the processes, and they run on (G6).
    for case in &cases {
        wait_for_activity(&case.activity, &case.allocation).await;
        if !case.is_replaced {
            setup
                .assert_unreachable_is_shown(&case.id, &case.allocation)
                .await;
        }
    }
    setup.set_packet_loss(&first, PacketLoss::None);
    setup.fleet.wait_until_nodes_take_work(2).await;
    for case in &cases {
        let (name, id) = (case.name, &case.id);
        let (allocation, activity) = (&case.allocation, &case.activity);
        let successor = successors.iter().find(|(before, _)| *before == id);
        let expected = successor.map_or(allocation, |(_, next)| next);
        let path = format!("/v1/services/{id}");
        let is_only_process = |view: &WorkView| {
            let running = running_process(view, None);
            view.processes.len() == 1 && running.is_some_and(|(id, _)| id == *expected)
        };
        wait_for_view(&setup.ada, &path, LIMIT, is_only_process).await;
        wait_for_activity(activity, expected).await;
        let intervals = activity.intervals();
        let expected_count = if case.is_replaced { 2 } else { 1 };
        assert_eq!(intervals.len(), expected_count, "{name}: {intervals:?}");
        if case.is_replaced {
            let description = format!("the old {name} to be stopped");
            until_within(&description, LIMIT, async || {
                let last = activity.last_activity(allocation);
                wait_for_activity(activity, expected).await;
                (activity.last_activity(allocation) == last).then_some(())
            })
            .await;
        }
    }
}
