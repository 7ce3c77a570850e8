//! Drains: begin, progress, pause and cancel; a node is drained only when it is empty (I17).

use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_node_status_api::{Health, Heartbeat, NodeEntry, NodeHistory};
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::Timestamp;

use crate::fake_scheduler::reservation;
use crate::fixture::{Fixture, NodeCommands as _, healthy_heartbeat, refusal, refusal_status};

const PATH: &str = "/v1/nodes/n1/drain";

fn request(reason: &str) -> DrainRequest {
    DrainRequest {
        reason: Some(reason.to_owned()),
        ..DrainRequest::default()
    }
}

fn heartbeat_with(containers: u64) -> Heartbeat {
    let mut heartbeat = healthy_heartbeat();
    heartbeat.metrics.containers = containers;
    heartbeat
}

impl Fixture {
    /// Starts a service with a pool of three nodes, to drain `n1`.
    async fn with_three_nodes() -> Self {
        let fixture = Self::without_losses().await;
        for node in ["n1", "n2", "n3"] {
            fixture.send_heartbeat(node, &heartbeat_with(2)).await;
        }
        fixture
    }

    async fn drain(&self, request: &DrainRequest) -> Result<DrainView, ClientError> {
        self.operator().put_command(PATH, request).await
    }

    async fn show_drain(&self) -> DrainView {
        self.viewer().get(PATH).await.unwrap()
    }

    async fn wait_for_state(&self, state: DrainState) -> DrainView {
        until(&format!("{state:?}"), async || {
            Some(self.show_drain().await).filter(|view| view.state == state)
        })
        .await
    }

    async fn wait_for_progress(&self, remaining: u64) {
        until("the progress of rm-scheduler", async || {
            let moves = self.show_drain().await.moves?;
            (moves.remaining == remaining).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_when_both_the_agent_and_the_scheduler_report_it_empty() {
    let fixture = Fixture::with_three_nodes().await;
    let begun = fixture.drain(&request("new disk")).await.unwrap();
    assert_eq!((begun.state, begun.order.number), (DrainState::Draining, 1));
    assert!(
        begun.why.contains("has not applied it yet"),
        "{}",
        begun.why
    );
    let entry = fixture.node("n1").await.entry;
    assert!(!entry.takes_work() && entry.schedulable);
    assert_eq!(entry.drain.unwrap().reason, "new disk");
    assert!(entry.reason.starts_with("being drained by ann: new disk; "));

    // The scheduler reports no allocation while the agent reports a container.
    fixture.scheduler.publish_progress("n1", 1, 0, Vec::new());
    fixture.wait_for_progress(0).await;
    fixture.send_heartbeat("n1", &heartbeat_with(1)).await;
    let view = fixture.show_drain().await;
    assert_eq!(
        (view.state, view.containers),
        (DrainState::Draining, Some(1))
    );
    assert!(view.why.contains("1 containers still run"), "{}", view.why);

    // An incomplete report of the agent does not count.
    let mut incomplete = heartbeat_with(0);
    incomplete.metrics.complete = false;
    fixture.send_heartbeat("n1", &incomplete).await;
    assert_eq!(fixture.show_drain().await.containers, None);

    // The agent reports no container while the scheduler reports an allocation.
    fixture.scheduler.publish_progress("n1", 1, 2, Vec::new());
    fixture.wait_for_progress(2).await;
    fixture.send_heartbeat("n1", &heartbeat_with(0)).await;
    assert_eq!(fixture.show_drain().await.state, DrainState::Draining);

    fixture.scheduler.publish_progress("n1", 1, 0, Vec::new());
    let view = fixture.wait_for_state(DrainState::Drained).await;
    assert!(view.next.unwrap().what.contains("cancelled"));
    let node = fixture.node("n1").await;
    assert_eq!(node.drain_state, Some(DrainState::Drained));
    assert!(!node.entry.takes_work(), "a drained node takes no work");

    // A container appears later.
    fixture.send_heartbeat("n1", &heartbeat_with(1)).await;
    fixture.wait_for_state(DrainState::Draining).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_about_an_earlier_drain_are_ignored() {
    let fixture = Fixture::with_three_nodes().await;
    fixture.drain(&request("new disk")).await.unwrap();
    fixture.scheduler.publish_progress("n1", 1, 0, Vec::new());
    fixture.wait_for_progress(0).await;
    let cancelled: DrainView = fixture.operator().delete_command(PATH).await.unwrap();
    assert_eq!(cancelled.state, DrainState::Cancelled);
    assert!(fixture.node("n1").await.entry.takes_work());
    let repeated = fixture.operator().delete_command::<DrainView>(PATH).await;
    assert_eq!(refusal_status(repeated), 404);

    let second = fixture.drain(&request("new fan")).await.unwrap();
    assert_eq!(second.order.number, 2);
    assert!(
        second.moves.is_none(),
        "the report is about the first drain"
    );
    fixture.send_heartbeat("n1", &heartbeat_with(0)).await;
    assert_eq!(fixture.show_drain().await.state, DrainState::Draining);
    fixture.scheduler.publish_progress("n1", 2, 0, Vec::new());
    fixture.wait_for_state(DrainState::Drained).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_crashes_of_the_service() {
    let mut fixture = Fixture::with_three_nodes().await;
    let request = DrainRequest {
        deadline_ms: Some(3_600_000),
        ..request("new disk")
    };
    let begun = fixture.drain(&request).await.unwrap();
    fixture
        .scheduler
        .publish_progress("n1", 1, 1, vec![reservation("rsv_1", "ben")]);
    fixture.wait_for_progress(1).await;
    fixture.kill_and_restart().await;
    fixture.wait_for_progress(1).await;
    let view = fixture.show_drain().await;
    assert_eq!(
        (view.state, &view.order),
        (DrainState::Draining, &begun.order)
    );
    assert_eq!(view.containers, None, "the count is not stored");
    let blockers = view.moves.unwrap().blockers;
    assert_eq!(
        (&*blockers[0].user, &*blockers[0].why),
        ("ben", "reservation")
    );
    assert_eq!(
        fixture.node("n1").await.entry.drain.as_ref(),
        Some(&begun.order),
        "the published drain is unchanged"
    );
    fixture.scheduler.publish_progress("n1", 1, 0, Vec::new());
    fixture.send_heartbeat("n1", &heartbeat_with(0)).await;
    fixture.wait_for_state(DrainState::Drained).await;

    fixture.kill_and_restart().await;
    let view = fixture.show_drain().await;
    assert_eq!(view.state, DrainState::Drained, "the state is stored");
    fixture.send_heartbeat("n1", &heartbeat_with(0)).await;
    assert_eq!(fixture.show_drain().await.state, DrainState::Drained);
    assert!(!fixture.node("n1").await.entry.takes_work());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_paused_resumed_and_changed_and_each_change_is_in_the_history() {
    let mut fixture = Fixture::with_three_nodes().await;
    fixture.drain(&request("new disk")).await.unwrap();
    let revision = fixture.running().publisher.revision();
    fixture.drain(&request("new disk")).await.unwrap();
    assert_eq!(
        fixture.running().publisher.revision(),
        revision,
        "the second request changes nothing"
    );
    let pause = |paused| DrainRequest {
        paused: Some(paused),
        ..DrainRequest::default()
    };
    let paused = fixture.drain(&pause(true)).await.unwrap();
    assert_eq!(
        (paused.state, paused.order.paused),
        (DrainState::Paused, true)
    );
    assert_eq!(
        paused.order.reason, "new disk",
        "an absent field is unchanged"
    );
    fixture.kill_and_restart().await;
    assert_eq!(fixture.show_drain().await.state, DrainState::Paused);
    assert!(!fixture.node("n1").await.entry.takes_work());
    let resumed = fixture.drain(&pause(false)).await.unwrap();
    assert_eq!(resumed.state, DrainState::Draining);
    let _: DrainView = fixture.operator().delete_command(PATH).await.unwrap();

    let history: NodeHistory = fixture.viewer().get("/v1/nodes/n1/history").await.unwrap();
    let mut reasons: Vec<&str> = history.changes.iter().map(|it| &*it.reason).collect();
    reasons.reverse();
    for (event, by) in [
        ("drain 1 begun: new disk", Some("ann")),
        ("drain 1 paused: new disk", Some("ann")),
        ("drain 1 resumed: new disk", Some("ann")),
        ("drain 1 cancelled", Some("ann")),
    ] {
        let line = history
            .changes
            .iter()
            .find(|it| it.reason.starts_with(event));
        let line = line.unwrap_or_else(|| panic!("{event} in {reasons:#?}"));
        assert_eq!(line.by.as_deref(), by, "{event}");
    }
    let paused = reasons.iter().filter(|it| it.contains("paused")).count();
    assert_eq!(paused, 1, "recorded once in {reasons:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_with_unmovable_work_fails_at_its_deadline_and_stays_active() {
    let fixture = Fixture::with_three_nodes().await;
    let request = DrainRequest {
        deadline_ms: Some(300),
        ..request("new disk")
    };
    fixture.drain(&request).await.unwrap();
    fixture
        .scheduler
        .publish_progress("n1", 1, 1, vec![reservation("rsv_1", "ben")]);
    let failed = fixture.wait_for_state(DrainState::Failed).await;
    assert!(failed.why.contains("deadline has passed"), "{}", failed.why);
    assert_eq!(failed.moves.unwrap().blockers[0].work, "rsv_1");
    assert!(!fixture.node("n1").await.entry.takes_work());
    // The reservation is released later.
    fixture.scheduler.publish_progress("n1", 1, 0, Vec::new());
    fixture.send_heartbeat("n1", &heartbeat_with(0)).await;
    fixture.wait_for_state(DrainState::Drained).await;
    fixture.scheduler.withdraw_progress("n1");
    let _: DrainView = fixture.operator().delete_command(PATH).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_not_drained_below_its_minimum_without_force() {
    let fixture = Fixture::without_losses().await;
    for number in 1..=4 {
        fixture
            .send_heartbeat(&format!("n{number}"), &healthy_heartbeat())
            .await;
    }
    let drain = |node: &'static str, request: DrainRequest| {
        let (operator, path) = (fixture.operator(), format!("/v1/nodes/{node}/drain"));
        async move { operator.put_command::<_, DrainView>(&path, &request).await }
    };
    drain("n1", request("disk")).await.unwrap();
    drain("n2", request("disk")).await.unwrap();
    let revision = fixture.running().publisher.revision();
    let refused = drain("n3", request("disk")).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 409);
    assert_eq!(problem.errors[0].pointer, "/force");
    let text = &*problem.detail;
    assert!(
        text.contains("4 nodes") && text.contains("2 take no work") && text.contains("25 %"),
        "{text}"
    );
    assert_eq!(fixture.running().publisher.revision(), revision);
    assert_eq!(
        refusal_status(
            fixture
                .viewer()
                .get::<DrainView>("/v1/nodes/n3/drain")
                .await
        ),
        404
    );

    let forced = DrainRequest {
        force: true,
        ..request("disk")
    };
    drain("n3", forced.clone()).await.unwrap();
    // The last node is protected by the floor.
    let refused = drain("n4", request("disk")).await.unwrap_err();
    let text = refused.problem().unwrap().detail.to_string();
    assert!(text.contains("its floor is 1"), "{text}");
    drain("n4", forced).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_limits_count_the_pools_of_the_policy() {
    let fixture = Fixture::without_losses().await;
    for number in 1..=8 {
        fixture
            .send_heartbeat(&format!("n{number}"), &healthy_heartbeat())
            .await;
    }
    fixture.scheduler.publish_pool("n1", "gpu");
    fixture.scheduler.publish_pool("n2", "gpu");
    fixture.scheduler.publish_pool("n3", "default");
    until("the pool by policy of n2", async || {
        let counted = fixture.node("n2").await.counted_in;
        (counted.as_deref() == Some("gpu")).then_some(())
    })
    .await;
    assert_eq!(
        fixture.node("n2").await.entry.pool,
        "default",
        "the pool that its agent names"
    );
    assert_eq!(
        fixture.node("n3").await.counted_in,
        None,
        "both pools are equal"
    );
    let drain = |node: &'static str| {
        let (operator, path) = (fixture.operator(), format!("/v1/nodes/{node}/drain"));
        async move {
            operator
                .put_command::<_, DrainView>(&path, &request("disk"))
                .await
        }
    };
    drain("n1").await.unwrap();
    // The pool gpu of the policy has two nodes, and n1 is being drained.
    let refused = drain("n2").await.unwrap_err();
    let text = refused.problem().unwrap().detail.to_string();
    assert!(text.starts_with("pool gpu has 2 nodes"), "{text}");
    drain("n3").await.unwrap();
    fixture.scheduler.publish_pool("n2", "default");
    until("the new pool of n2", async || {
        let counted = fixture.node("n2").await.counted_in;
        counted.is_none().then_some(())
    })
    .await;
    drain("n2").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_an_unknown_node_or_without_the_role_is_refused() {
    let fixture = Fixture::with_three_nodes().await;
    let revision = fixture.running().publisher.revision();
    let (operator, viewer) = (fixture.operator(), fixture.viewer());
    let unknown_path = "/v1/nodes/n9/drain";
    let drain = request("disk");
    let unknown = operator
        .put_command::<_, DrainView>(unknown_path, &drain)
        .await;
    assert_eq!(refusal_status(unknown), 404);
    for path in [unknown_path, PATH] {
        assert_eq!(refusal_status(viewer.get::<DrainView>(path).await), 404);
    }
    let denied = viewer.put_command::<_, DrainView>(PATH, &drain).await;
    assert_eq!(refusal_status(denied), 403);
    let denied = fixture.agent("n1").delete_command::<DrainView>(PATH).await;
    assert_eq!(refusal_status(denied), 403);
    assert_eq!(fixture.running().publisher.revision(), revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_drain_request_changes_nothing() {
    let fixture = Fixture::with_three_nodes().await;
    let revision = fixture.running().publisher.revision();
    let operator = fixture.operator();
    for (request, pointers) in [
        (DrainRequest::default(), vec!["/reason"]),
        (request(" "), vec!["/reason"]),
        (
            DrainRequest {
                deadline_ms: Some(-5),
                ..request("disk")
            },
            vec!["/deadline_ms"],
        ),
        (
            DrainRequest {
                deadline_ms: Some(i64::MAX),
                ..request("disk")
            },
            vec!["/deadline_ms"],
        ),
        (
            DrainRequest {
                deadline: Some(Timestamp::from_unix_ms(0)),
                ..request("disk")
            },
            vec!["/deadline"],
        ),
        (
            DrainRequest {
                deadline_ms: Some(60_000),
                deadline: Some(Timestamp::from_unix_ms(0)),
                ..request("disk")
            },
            vec!["/deadline_ms", "/deadline"],
        ),
    ] {
        let result = refusal(fixture.drain(&request).await);
        assert_eq!(
            result,
            (422, pointers.into_iter().map(str::to_owned).collect())
        );
    }
    let invalid = serde_json::json!({ "reason": "disk", "deadline_ms": "soon" });
    let answer = operator.put_command::<_, DrainView>(PATH, &invalid).await;
    assert_eq!(refusal(answer), (422, vec!["/deadline_ms".to_owned()]));
    let invalid = serde_json::json!({ "reason": "disk", "until": 5 });
    assert_eq!(
        refusal_status(operator.put_command::<_, DrainView>(PATH, &invalid).await),
        422
    );
    assert_eq!(fixture.running().publisher.revision(), revision);
    let entry: NodeEntry = fixture.viewer().get("/v1/nodes/n1").await.unwrap();
    assert!(entry.takes_work());
}

/// Starts a drain in each state. Each node has its own pool, so that the brakes stay off.
async fn drains_in_all_states(fixture: &Fixture, outcome: &str) -> Vec<(String, DrainState)> {
    let states = [
        DrainState::Draining,
        DrainState::Paused,
        DrainState::Drained,
        DrainState::Failed,
    ];
    let mut drains = Vec::new();
    for state in states {
        let node = format!("{outcome}-{state:?}").to_lowercase();
        let mut heartbeat = heartbeat_with(0);
        heartbeat.inventory.pool = Some(node.clone());
        fixture.send_heartbeat(&node, &heartbeat).await;
        let request = DrainRequest {
            deadline_ms: (state == DrainState::Failed).then_some(1),
            paused: Some(state == DrainState::Paused),
            force: true,
            ..request("new disk")
        };
        let path = format!("/v1/nodes/{node}/drain");
        let operator = fixture.operator();
        let _: DrainView = operator.put_command(&path, &request).await.unwrap();
        let (remaining, blockers) = match state {
            DrainState::Drained => (0, Vec::new()),
            _ => (1, vec![reservation("rsv_1", "ben")]),
        };
        fixture
            .scheduler
            .publish_progress(&node, 1, remaining, blockers);
        until(node.as_str(), async || {
            fixture.send_heartbeat(&node, &heartbeat).await;
            let view: DrainView = fixture.viewer().get(&path).await.unwrap();
            (view.state == state && view.moves.is_some()).then_some(())
        })
        .await;
        drains.push((node, state));
    }
    drains
}

#[tokio::test(flavor = "multi_thread")]
async fn every_drain_can_be_cancelled_even_if_its_node_is_lost() {
    let fixture = Fixture::with_limits(500, 1500).await;
    for outcome in ["lost", "removed", "returned"] {
        let drains = drains_in_all_states(&fixture, outcome).await;
        for (node, state) in drains {
            let text = format!("{node} {state:?}");
            until(&format!("{text} to be lost"), async || {
                (fixture.node(&node).await.entry.health == Health::Lost).then_some(())
            })
            .await;
            let (path, operator) = (format!("/v1/nodes/{node}"), fixture.operator());
            let drain = format!("{path}/drain");
            if outcome == "removed" {
                let _: Option<()> = operator.delete_command(&path).await.unwrap();
            }
            let mut heartbeat = heartbeat_with(0);
            heartbeat.inventory.pool = Some(node.clone());
            if outcome != "lost" {
                fixture.send_heartbeat(&node, &heartbeat).await;
            }
            if outcome == "removed" {
                let view: DrainView = fixture.viewer().get(&drain).await.unwrap();
                assert_eq!(view.state, DrainState::Cancelled, "{text}");
            } else {
                let view: DrainView = operator.delete_command(&drain).await.unwrap();
                assert_eq!(view.state, DrainState::Cancelled, "{text}");
            }
            fixture.send_heartbeat(&node, &heartbeat).await;
            assert!(fixture.node(&node).await.entry.takes_work(), "{text}");
        }
    }
}
