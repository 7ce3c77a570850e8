//! Drains: begin, progress, pause and cancel; a node is drained only when it is empty (I17).

use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_node_status_api::{Health, Heartbeat, NodeEntry, NodeHistory};
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::Timestamp;

use crate::fixture::{Orders as _, World, refusal, well};
use crate::scheduler::reserved;

const PATH: &str = "/v1/nodes/n1/drain";

fn request(reason: &str) -> DrainRequest {
    DrainRequest {
        reason: Some(reason.to_owned()),
        ..DrainRequest::default()
    }
}

fn heartbeat_with(containers: u64) -> Heartbeat {
    let mut beat = well();
    beat.metrics.containers = containers;
    beat
}

impl World {
    /// A fixture for drains of `n1`, in a pool of three nodes.
    async fn with_three_nodes() -> Self {
        let world = Self::calm().await;
        for node in ["n1", "n2", "n3"] {
            world.beat(node, &heartbeat_with(2)).await;
        }
        world
    }

    async fn drain(&self, request: &DrainRequest) -> Result<DrainView, ClientError> {
        self.operator().order(PATH, request).await
    }

    async fn drained(&self) -> DrainView {
        self.viewer().get(PATH).await.unwrap()
    }

    async fn wait_for_state(&self, state: DrainState) -> DrainView {
        until(&format!("{state:?}"), async || {
            Some(self.drained().await).filter(|view| view.state == state)
        })
        .await
    }

    async fn scheduler_reports(&self, remaining: u64) {
        until("news of rm-scheduler", async || {
            let moves = self.drained().await.moves?;
            (moves.remaining == remaining).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_when_both_the_agent_and_the_scheduler_report_it_empty() {
    let world = World::with_three_nodes().await;
    let begun = world.drain(&request("new disk")).await.unwrap();
    assert_eq!((begun.state, begun.order.number), (DrainState::Draining, 1));
    assert!(begun.why.contains("not taken it up"), "{}", begun.why);
    let entry = world.node("n1").await.entry;
    assert!(!entry.takes_work() && entry.schedulable);
    assert_eq!(entry.drain.unwrap().reason, "new disk");
    assert!(entry.reason.starts_with("being drained by ann: new disk; "));

    // The scheduler reports no allocation while the agent reports a container.
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.scheduler_reports(0).await;
    world.beat("n1", &heartbeat_with(1)).await;
    let view = world.drained().await;
    assert_eq!(
        (view.state, view.containers),
        (DrainState::Draining, Some(1))
    );
    assert!(view.why.contains("1 containers still run"), "{}", view.why);

    // An incomplete report of the agent proves nothing.
    let mut blind = heartbeat_with(0);
    blind.metrics.complete = false;
    world.beat("n1", &blind).await;
    assert_eq!(world.drained().await.containers, None);

    // The agent reports no container while the scheduler reports an allocation.
    world.scheduler.says("n1", 1, 2, Vec::new());
    world.scheduler_reports(2).await;
    world.beat("n1", &heartbeat_with(0)).await;
    assert_eq!(world.drained().await.state, DrainState::Draining);

    world.scheduler.says("n1", 1, 0, Vec::new());
    let view = world.wait_for_state(DrainState::Drained).await;
    assert!(view.next.unwrap().what.contains("cancelled"));
    let node = world.node("n1").await;
    assert_eq!(node.drain_state, Some(DrainState::Drained));
    assert!(!node.entry.takes_work(), "it stays empty");

    // A container appears later.
    world.beat("n1", &heartbeat_with(1)).await;
    world.wait_for_state(DrainState::Draining).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_about_an_earlier_drain_are_ignored() {
    let world = World::with_three_nodes().await;
    world.drain(&request("new disk")).await.unwrap();
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.scheduler_reports(0).await;
    let over: DrainView = world.operator().end(PATH).await.unwrap();
    assert_eq!(over.state, DrainState::Cancelled);
    assert!(world.node("n1").await.entry.takes_work());
    let gone = world.operator().end::<DrainView>(PATH).await;
    assert_eq!(refusal(gone).0, 404);

    let again = world.drain(&request("new fan")).await.unwrap();
    assert_eq!(again.order.number, 2);
    assert!(
        again.moves.is_none(),
        "that report was about the first drain"
    );
    world.beat("n1", &heartbeat_with(0)).await;
    assert_eq!(world.drained().await.state, DrainState::Draining);
    world.scheduler.says("n1", 2, 0, Vec::new());
    world.wait_for_state(DrainState::Drained).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_crashes_of_the_service() {
    let mut world = World::with_three_nodes().await;
    let request = DrainRequest {
        deadline_ms: Some(3_600_000),
        ..request("new disk")
    };
    let begun = world.drain(&request).await.unwrap();
    world
        .scheduler
        .says("n1", 1, 1, vec![reserved("rsv_1", "ben")]);
    world.scheduler_reports(1).await;
    world.kill_and_restart().await;
    world.scheduler_reports(1).await;
    let view = world.drained().await;
    assert_eq!(
        (view.state, &view.order),
        (DrainState::Draining, &begun.order)
    );
    assert_eq!(view.containers, None, "the agent has to say it again");
    let blockers = view.moves.unwrap().blockers;
    assert_eq!(
        (&*blockers[0].user, &*blockers[0].why),
        ("ben", "reservation")
    );
    assert_eq!(
        world.node("n1").await.entry.drain.as_ref(),
        Some(&begun.order),
        "published as before"
    );
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.beat("n1", &heartbeat_with(0)).await;
    world.wait_for_state(DrainState::Drained).await;

    world.kill_and_restart().await;
    let view = world.drained().await;
    assert_eq!(
        view.state,
        DrainState::Drained,
        "known before anybody spoke"
    );
    world.beat("n1", &heartbeat_with(0)).await;
    assert_eq!(world.drained().await.state, DrainState::Drained);
    assert!(!world.node("n1").await.entry.takes_work());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_paused_resumed_and_changed_and_each_change_is_in_the_history() {
    let mut world = World::with_three_nodes().await;
    world.drain(&request("new disk")).await.unwrap();
    let revision = world.running().publisher.revision();
    world.drain(&request("new disk")).await.unwrap();
    assert_eq!(
        world.running().publisher.revision(),
        revision,
        "saying it twice is no news"
    );
    let pause = |paused| DrainRequest {
        paused: Some(paused),
        ..DrainRequest::default()
    };
    let paused = world.drain(&pause(true)).await.unwrap();
    assert_eq!(
        (paused.state, paused.order.paused),
        (DrainState::Paused, true)
    );
    assert_eq!(paused.order.reason, "new disk", "what is not named stays");
    world.kill_and_restart().await;
    assert_eq!(world.drained().await.state, DrainState::Paused);
    assert!(!world.node("n1").await.entry.takes_work());
    let resumed = world.drain(&pause(false)).await.unwrap();
    assert_eq!(resumed.state, DrainState::Draining);
    let _: DrainView = world.operator().end(PATH).await.unwrap();

    let history: NodeHistory = world.viewer().get("/v1/nodes/n1/history").await.unwrap();
    let mut text: Vec<&str> = history.changes.iter().map(|it| &*it.reason).collect();
    text.reverse();
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
        let line = line.unwrap_or_else(|| panic!("{event} in {text:#?}"));
        assert_eq!(line.by.as_deref(), by, "{event}");
    }
    let paused = text.iter().filter(|it| it.contains("paused")).count();
    assert_eq!(paused, 1, "recorded once in {text:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_with_unmovable_work_fails_at_its_deadline_and_stays_active() {
    let world = World::with_three_nodes().await;
    let request = DrainRequest {
        deadline_ms: Some(300),
        ..request("new disk")
    };
    world.drain(&request).await.unwrap();
    world
        .scheduler
        .says("n1", 1, 1, vec![reserved("rsv_1", "ben")]);
    let failed = world.wait_for_state(DrainState::Failed).await;
    assert!(failed.why.contains("deadline has passed"), "{}", failed.why);
    assert_eq!(failed.moves.unwrap().blockers[0].work, "rsv_1");
    assert!(!world.node("n1").await.entry.takes_work());
    // The reservation is released later.
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.beat("n1", &heartbeat_with(0)).await;
    world.wait_for_state(DrainState::Drained).await;
    world.scheduler.withdraws("n1");
    let _: DrainView = world.operator().end(PATH).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_not_drained_below_its_minimum_without_force() {
    let world = World::calm().await;
    for number in 1..=4 {
        world.beat(&format!("n{number}"), &well()).await;
    }
    let drain = |node: &'static str, request: DrainRequest| {
        let (operator, path) = (world.operator(), format!("/v1/nodes/{node}/drain"));
        async move { operator.order::<_, DrainView>(&path, &request).await }
    };
    drain("n1", request("disk")).await.unwrap();
    drain("n2", request("disk")).await.unwrap();
    let revision = world.running().publisher.revision();
    let refused = drain("n3", request("disk")).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 409);
    assert_eq!(problem.errors[0].pointer, "/force");
    let text = &*problem.detail;
    assert!(
        text.contains("4 nodes") && text.contains("2 take no work") && text.contains("25 %"),
        "{text}"
    );
    assert_eq!(world.running().publisher.revision(), revision);
    assert_eq!(
        refusal(world.viewer().get::<DrainView>("/v1/nodes/n3/drain").await).0,
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
    let world = World::calm().await;
    for number in 1..=8 {
        world.beat(&format!("n{number}"), &well()).await;
    }
    world.scheduler.places("n1", "gpu");
    world.scheduler.places("n2", "gpu");
    world.scheduler.places("n3", "default");
    until("what the policy says", async || {
        let counted = world.node("n2").await.counted_in;
        (counted.as_deref() == Some("gpu")).then_some(())
    })
    .await;
    assert_eq!(world.node("n2").await.entry.pool, "default", "as it says");
    assert_eq!(world.node("n3").await.counted_in, None, "the same");
    let drain = |node: &'static str| {
        let (operator, path) = (world.operator(), format!("/v1/nodes/{node}/drain"));
        async move {
            operator
                .order::<_, DrainView>(&path, &request("disk"))
                .await
        }
    };
    drain("n1").await.unwrap();
    // With eight nodes in one pool it could be drained; in this pool it is the last of two.
    let refused = drain("n2").await.unwrap_err();
    let text = refused.problem().unwrap().detail.to_string();
    assert!(text.starts_with("pool gpu has 2 nodes"), "{text}");
    drain("n3").await.unwrap();
    world.scheduler.places("n2", "default");
    until("that it was moved", async || {
        let counted = world.node("n2").await.counted_in;
        counted.is_none().then_some(())
    })
    .await;
    drain("n2").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_drain_request_changes_nothing() {
    let world = World::with_three_nodes().await;
    let revision = world.running().publisher.revision();
    let operator = world.operator();
    let unknown = operator
        .order::<_, DrainView>("/v1/nodes/n9/drain", &request("disk"))
        .await;
    assert_eq!(refusal(unknown).0, 404);
    assert_eq!(
        refusal(world.viewer().get::<DrainView>("/v1/nodes/n9/drain").await).0,
        404
    );
    assert_eq!(refusal(world.viewer().get::<DrainView>(PATH).await).0, 404);
    let denied = world
        .viewer()
        .order::<_, DrainView>(PATH, &request("disk"))
        .await;
    assert_eq!(refusal(denied).0, 403);
    let denied = world.agent("n1").end::<DrainView>(PATH).await;
    assert_eq!(refusal(denied).0, 403);
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
        let (status, text) = refusal(world.drain(&request).await);
        assert_eq!(
            (status, text),
            (422, pointers.iter().map(|p| (*p).to_owned()).collect())
        );
    }
    let odd = serde_json::json!({ "reason": "disk", "deadline_ms": "soon" });
    let answer = operator.order::<_, DrainView>(PATH, &odd).await;
    assert_eq!(refusal(answer), (422, vec!["/deadline_ms".to_owned()]));
    let odd = serde_json::json!({ "reason": "disk", "until": 5 });
    assert_eq!(
        refusal(operator.order::<_, DrainView>(PATH, &odd).await).0,
        422
    );
    assert_eq!(world.running().publisher.revision(), revision);
    let entry: NodeEntry = world.viewer().get("/v1/nodes/n1").await.unwrap();
    assert!(entry.takes_work());
}

/// One drain in each state, each on a node in its own pool, so that their silence is no incident.
async fn drains_in(world: &World, fate: &str) -> Vec<(String, DrainState)> {
    let states = [
        DrainState::Draining,
        DrainState::Paused,
        DrainState::Drained,
        DrainState::Failed,
    ];
    let mut all = Vec::new();
    for state in states {
        let node = format!("{fate}-{state:?}").to_lowercase();
        let mut beat = heartbeat_with(0);
        beat.inventory.pool = Some(node.clone());
        world.beat(&node, &beat).await;
        let failed = state == DrainState::Failed;
        let request = DrainRequest {
            deadline_ms: failed.then_some(1),
            paused: Some(state == DrainState::Paused),
            force: true,
            ..request("new disk")
        };
        let path = format!("/v1/nodes/{node}/drain");
        let _: DrainView = world.operator().order(&path, &request).await.unwrap();
        let (remaining, blockers) = match state {
            DrainState::Drained => (0, Vec::new()),
            _ => (1, vec![reserved("rsv_1", "ben")]),
        };
        world.scheduler.says(&node, 1, remaining, blockers);
        until(node.as_str(), async || {
            world.beat(&node, &beat).await;
            let view: DrainView = world.viewer().get(&path).await.unwrap();
            (view.state == state && view.moves.is_some()).then_some(())
        })
        .await;
        all.push((node, state));
    }
    all
}

/// Every drain can be ended by a command.
#[tokio::test(flavor = "multi_thread")]
async fn every_drain_can_be_cancelled_even_if_its_node_is_lost() {
    let world = World::with(500, 1500).await;
    for fate in ["lost", "forgotten", "back"] {
        let all = drains_in(&world, fate).await;
        for (node, state) in all {
            let text = format!("{node} {state:?}");
            until(&format!("{text} to be lost"), async || {
                (world.node(&node).await.entry.health == Health::Lost).then_some(())
            })
            .await;
            let (path, operator) = (format!("/v1/nodes/{node}"), world.operator());
            let drain = format!("{path}/drain");
            if fate == "forgotten" {
                let _: Option<()> = operator.end(&path).await.unwrap();
            }
            let mut beat = heartbeat_with(0);
            beat.inventory.pool = Some(node.clone());
            if fate != "lost" {
                world.beat(&node, &beat).await;
            }
            if fate == "forgotten" {
                let view: DrainView = world.viewer().get(&drain).await.unwrap();
                assert_eq!(view.state, DrainState::Cancelled, "{text}");
            } else {
                let view: DrainView = operator.end(&drain).await.unwrap();
                assert_eq!(view.state, DrainState::Cancelled, "{text}");
            }
            world.beat(&node, &beat).await;
            assert!(world.node(&node).await.entry.takes_work(), "{text}");
        }
    }
}
