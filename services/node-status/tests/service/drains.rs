//! Emptying a node (W5): begun, watched, paused, taken back; drained only when it is empty (I17).

use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_node_status_api::{Health, Heartbeat, NodeEntry, NodeHistory};
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::Timestamp;

use crate::fixture::{Orders as _, World, refusal, well};
use crate::scheduler::reserved;

const PATH: &str = "/v1/nodes/n1/drain";

fn because(reason: &str) -> DrainRequest {
    DrainRequest {
        reason: Some(reason.to_owned()),
        ..DrainRequest::default()
    }
}

fn alive(containers: u64) -> Heartbeat {
    let mut beat = well();
    beat.metrics.containers = containers;
    beat
}

impl World {
    /// Of `n1`, in a pool of three.
    async fn of_three() -> Self {
        let world = Self::calm().await;
        for node in ["n1", "n2", "n3"] {
            world.beat(node, &alive(2)).await;
        }
        world
    }

    async fn drain(&self, request: &DrainRequest) -> Result<DrainView, ClientError> {
        self.operator().order(PATH, request).await
    }

    async fn drained(&self) -> DrainView {
        self.viewer().get(PATH).await.unwrap()
    }

    async fn comes_to(&self, state: DrainState) -> DrainView {
        until(&format!("{state:?}"), async || {
            Some(self.drained().await).filter(|view| view.state == state)
        })
        .await
    }

    async fn hears_of(&self, remaining: u64) {
        until("news of rm-scheduler", async || {
            let moves = self.drained().await.moves?;
            (moves.remaining == remaining).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_drained_is_said_when_both_the_agent_and_the_scheduler_say_so() {
    let world = World::of_three().await;
    let begun = world.drain(&because("new disk")).await.unwrap();
    assert_eq!((begun.state, begun.order.number), (DrainState::Draining, 1));
    assert!(begun.why.contains("not taken it up"), "{}", begun.why);
    let entry = world.node("n1").await.entry;
    assert!(!entry.takes_work() && entry.schedulable);
    assert_eq!(entry.drain.unwrap().reason, "new disk");
    assert!(entry.reason.starts_with("being drained by ann: new disk; "));

    // The scheduler says that nothing is placed there, the agent that something is alive.
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.hears_of(0).await;
    world.beat("n1", &alive(1)).await;
    let view = world.drained().await;
    assert_eq!(
        (view.state, view.containers),
        (DrainState::Draining, Some(1))
    );
    assert!(view.why.contains("1 still alive"), "{}", view.why);

    // An agent that has not looked yet says nothing.
    let mut blind = alive(0);
    blind.metrics.complete = false;
    world.beat("n1", &blind).await;
    assert_eq!(world.drained().await.containers, None);

    // The agent finds nothing, while the scheduler has placed something.
    world.scheduler.says("n1", 1, 2, Vec::new());
    world.hears_of(2).await;
    world.beat("n1", &alive(0)).await;
    assert_eq!(world.drained().await.state, DrainState::Draining);

    world.scheduler.says("n1", 1, 0, Vec::new());
    let view = world.comes_to(DrainState::Drained).await;
    assert!(view.next.unwrap().what.contains("cancelled"));
    let node = world.node("n1").await;
    assert_eq!(node.drain_state, Some(DrainState::Drained));
    assert!(!node.entry.takes_work(), "it stays empty");

    // Something turns up after all.
    world.beat("n1", &alive(1)).await;
    world.comes_to(DrainState::Draining).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_an_earlier_drain_does_not_concern_this_one() {
    let world = World::of_three().await;
    world.drain(&because("new disk")).await.unwrap();
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.hears_of(0).await;
    let over: DrainView = world.operator().end(PATH).await.unwrap();
    assert_eq!(over.state, DrainState::Cancelled);
    assert!(world.node("n1").await.entry.takes_work());
    let gone = world.operator().end::<DrainView>(PATH).await;
    assert_eq!(refusal(gone).0, 404);

    let again = world.drain(&because("new fan")).await.unwrap();
    assert_eq!(again.order.number, 2);
    assert!(again.moves.is_none(), "that was told of the first one");
    world.beat("n1", &alive(0)).await;
    assert_eq!(world.drained().await.state, DrainState::Draining);
    world.scheduler.says("n1", 2, 0, Vec::new());
    world.comes_to(DrainState::Drained).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_a_crash_of_ours_in_its_middle_and_at_its_end() {
    let mut world = World::of_three().await;
    let request = DrainRequest {
        deadline_ms: Some(3_600_000),
        ..because("new disk")
    };
    let begun = world.drain(&request).await.unwrap();
    world
        .scheduler
        .says("n1", 1, 1, vec![reserved("rsv_1", "ben")]);
    world.hears_of(1).await;
    world.kill_and_restart().await;
    world.hears_of(1).await;
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
    world.beat("n1", &alive(0)).await;
    world.comes_to(DrainState::Drained).await;

    world.kill_and_restart().await;
    let view = world.drained().await;
    assert_eq!(
        view.state,
        DrainState::Drained,
        "known before anybody spoke"
    );
    world.beat("n1", &alive(0)).await;
    assert_eq!(world.drained().await.state, DrainState::Drained);
    assert!(!world.node("n1").await.entry.takes_work());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_paused_resumed_and_changed_and_its_history_tells() {
    let mut world = World::of_three().await;
    world.drain(&because("new disk")).await.unwrap();
    let revision = world.running().publisher.revision();
    world.drain(&because("new disk")).await.unwrap();
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
    let mut told: Vec<&str> = history.changes.iter().map(|it| &*it.reason).collect();
    told.reverse();
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
        let line = line.unwrap_or_else(|| panic!("{event} in {told:#?}"));
        assert_eq!(line.by.as_deref(), by, "{event}");
    }
    let paused = told.iter().filter(|it| it.contains("paused")).count();
    assert_eq!(paused, 1, "told once in {told:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_deadline_with_what_never_moves_it_has_failed_and_holds_on() {
    let world = World::of_three().await;
    let request = DrainRequest {
        deadline_ms: Some(300),
        ..because("new disk")
    };
    world.drain(&request).await.unwrap();
    world
        .scheduler
        .says("n1", 1, 1, vec![reserved("rsv_1", "ben")]);
    let failed = world.comes_to(DrainState::Failed).await;
    assert!(failed.why.contains("deadline has passed"), "{}", failed.why);
    assert_eq!(failed.moves.unwrap().blockers[0].work, "rsv_1");
    assert!(!world.node("n1").await.entry.takes_work());
    // It is given back after all.
    world.scheduler.says("n1", 1, 0, Vec::new());
    world.beat("n1", &alive(0)).await;
    world.comes_to(DrainState::Drained).await;
    world.scheduler.withdraws("n1");
    let _: DrainView = world.operator().end(PATH).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_a_pool_is_not_emptied_by_mistake() {
    let world = World::calm().await;
    for number in 1..=4 {
        world.beat(&format!("n{number}"), &well()).await;
    }
    let drain = |node: &'static str, request: DrainRequest| {
        let (operator, path) = (world.operator(), format!("/v1/nodes/{node}/drain"));
        async move { operator.order::<_, DrainView>(&path, &request).await }
    };
    drain("n1", because("disk")).await.unwrap();
    drain("n2", because("disk")).await.unwrap();
    let revision = world.running().publisher.revision();
    let refused = drain("n3", because("disk")).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 409);
    assert_eq!(problem.errors[0].pointer, "/force");
    let told = &*problem.detail;
    assert!(
        told.contains("4 nodes") && told.contains("2 take no work") && told.contains("25 %"),
        "{told}"
    );
    assert_eq!(world.running().publisher.revision(), revision);
    assert_eq!(
        refusal(world.viewer().get::<DrainView>("/v1/nodes/n3/drain").await).0,
        404
    );

    let forced = DrainRequest {
        force: true,
        ..because("disk")
    };
    drain("n3", forced.clone()).await.unwrap();
    // The last one is a matter of the floor.
    let refused = drain("n4", because("disk")).await.unwrap_err();
    let told = refused.problem().unwrap().detail.to_string();
    assert!(told.contains("its floor is 1"), "{told}");
    drain("n4", forced).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_pools_are_those_of_the_policy() {
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
                .order::<_, DrainView>(&path, &because("disk"))
                .await
        }
    };
    drain("n1").await.unwrap();
    // Of eight machines of one pool it could go; of these two it is the last one.
    let refused = drain("n2").await.unwrap_err();
    let told = refused.problem().unwrap().detail.to_string();
    assert!(told.starts_with("pool gpu has 2 nodes"), "{told}");
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
async fn what_cannot_be_meant_changes_nothing() {
    let world = World::of_three().await;
    let revision = world.running().publisher.revision();
    let operator = world.operator();
    let unknown = operator
        .order::<_, DrainView>("/v1/nodes/n9/drain", &because("disk"))
        .await;
    assert_eq!(refusal(unknown).0, 404);
    assert_eq!(
        refusal(world.viewer().get::<DrainView>("/v1/nodes/n9/drain").await).0,
        404
    );
    assert_eq!(refusal(world.viewer().get::<DrainView>(PATH).await).0, 404);
    let denied = world
        .viewer()
        .order::<_, DrainView>(PATH, &because("disk"))
        .await;
    assert_eq!(refusal(denied).0, 403);
    let denied = world.agent("n1").end::<DrainView>(PATH).await;
    assert_eq!(refusal(denied).0, 403);
    for (request, pointers) in [
        (DrainRequest::default(), vec!["/reason"]),
        (because(" "), vec!["/reason"]),
        (
            DrainRequest {
                deadline_ms: Some(-5),
                ..because("disk")
            },
            vec!["/deadline_ms"],
        ),
        (
            DrainRequest {
                deadline_ms: Some(i64::MAX),
                ..because("disk")
            },
            vec!["/deadline_ms"],
        ),
        (
            DrainRequest {
                deadline: Some(Timestamp::from_unix_ms(0)),
                ..because("disk")
            },
            vec!["/deadline"],
        ),
        (
            DrainRequest {
                deadline_ms: Some(60_000),
                deadline: Some(Timestamp::from_unix_ms(0)),
                ..because("disk")
            },
            vec!["/deadline_ms", "/deadline"],
        ),
    ] {
        let (status, told) = refusal(world.drain(&request).await);
        assert_eq!(
            (status, told),
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

/// One of each state that a drain can be in, each on a node of a pool of its own: silent together,
/// they are no incident.
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
        let mut beat = alive(0);
        beat.inventory.pool = Some(node.clone());
        world.beat(&node, &beat).await;
        let failed = state == DrainState::Failed;
        let request = DrainRequest {
            deadline_ms: failed.then_some(1),
            paused: Some(state == DrainState::Paused),
            force: true,
            ..because("new disk")
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

/// Nothing is left that no command can clear.
#[tokio::test(flavor = "multi_thread")]
async fn every_drain_can_be_ended_whatever_becomes_of_its_node() {
    let world = World::with(500, 1500).await;
    for fate in ["lost", "forgotten", "back"] {
        let all = drains_in(&world, fate).await;
        for (node, state) in all {
            let told = format!("{node} {state:?}");
            until(&format!("{told} to be lost"), async || {
                (world.node(&node).await.entry.health == Health::Lost).then_some(())
            })
            .await;
            let (path, operator) = (format!("/v1/nodes/{node}"), world.operator());
            let drain = format!("{path}/drain");
            if fate == "forgotten" {
                let _: Option<()> = operator.end(&path).await.unwrap();
            }
            let mut beat = alive(0);
            beat.inventory.pool = Some(node.clone());
            if fate != "lost" {
                world.beat(&node, &beat).await;
            }
            if fate == "forgotten" {
                let view: DrainView = world.viewer().get(&drain).await.unwrap();
                assert_eq!(view.state, DrainState::Cancelled, "{told}");
            } else {
                let view: DrainView = operator.end(&drain).await.unwrap();
                assert_eq!(view.state, DrainState::Cancelled, "{told}");
            }
            world.beat(&node, &beat).await;
            assert!(world.node(&node).await.entry.takes_work(), "{told}");
        }
    }
}
