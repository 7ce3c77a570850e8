//! Two agents that report as one node, such as after cloning a disk (F28).

use hayward_node_status_api::{Health, Heartbeat, Identity, NodeEntry};
use hayward_testkit::until;

use crate::fixture::{
    Fixture, NodeCommands as _, healthy_heartbeat, refusal, refusal_status, try_heartbeat,
};

fn heartbeat_of(instance: &str) -> Heartbeat {
    Heartbeat {
        agent_instance: instance.into(),
        ..healthy_heartbeat()
    }
}

impl Fixture {
    /// Lets two agents report alternately as `n1`.
    async fn cause_conflict_of_agents(&self) {
        for instance in ["agent-1", "agent-2", "agent-1"] {
            self.send_heartbeat("n1", &heartbeat_of(instance)).await;
        }
        let node = self.node("n1").await;
        assert_eq!(node.entry.health, Health::Quiesced);
        let mut rivals = node.rivals;
        rivals.sort();
        assert_eq!(rivals, ["agent-1", "agent-2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_does_not_end_a_conflict_of_agents() {
    let mut fixture = Fixture::without_losses().await;
    fixture.cause_conflict_of_agents().await;
    fixture.kill_and_restart().await;
    assert_eq!(fixture.node("n1").await.entry.health, Health::Quiesced);
    let answer = fixture.send_heartbeat("n1", &heartbeat_of("agent-1")).await;
    assert_eq!(answer.health, Health::Quiesced, "the conflict goes on");
    let next = fixture.node("n1").await.next.unwrap();
    assert!(next.what.contains("chooses one of them"), "{}", next.what);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_selects_one_agent_and_the_other_is_refused() {
    let mut fixture = Fixture::without_losses().await;
    fixture.cause_conflict_of_agents().await;
    let select = |instance: &str| Identity {
        agent_instance: instance.to_owned(),
    };
    let (operator, path) = (fixture.operator(), "/v1/nodes/n1/identity");
    let unknown_instance = operator
        .put_command::<_, NodeEntry>(path, &select("agent-9"))
        .await;
    assert_eq!(
        refusal(unknown_instance),
        (422, vec!["/agent_instance".to_owned()])
    );
    let denied = fixture
        .viewer()
        .put_command::<_, NodeEntry>(path, &select("agent-2"))
        .await;
    assert_eq!(refusal_status(denied), 403);
    let unknown = operator
        .put_command::<_, NodeEntry>("/v1/nodes/n9/identity", &select("agent-2"))
        .await;
    assert_eq!(refusal_status(unknown), 404);
    assert_eq!(fixture.node("n1").await.entry.health, Health::Quiesced);

    let _: NodeEntry = operator
        .put_command(path, &select("agent-2"))
        .await
        .unwrap();
    for _ in 0..2 {
        let refused = try_heartbeat(&fixture.agent("n1"), "n1", &heartbeat_of("agent-1")).await;
        assert_eq!(refusal_status(refused), 409);
        let answer = fixture.send_heartbeat("n1", &heartbeat_of("agent-2")).await;
        assert_eq!(answer.health, Health::Healthy);
    }
    let entry = fixture.node("n1").await.entry;
    assert_eq!(entry.agent_instance, "agent-2");

    fixture.kill_and_restart().await;
    let refused = try_heartbeat(&fixture.agent("n1"), "n1", &heartbeat_of("agent-1")).await;
    assert_eq!(
        refusal_status(refused),
        409,
        "the selection survives a restart"
    );
    // The refused agent restarts as agent-3, and is detected as a duplicate again.
    fixture.send_heartbeat("n1", &heartbeat_of("agent-3")).await;
    let answer = fixture.send_heartbeat("n1", &heartbeat_of("agent-2")).await;
    assert_eq!(answer.health, Health::Quiesced);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_duplicate_leaves_the_node_to_the_other_agent() {
    let fixture = Fixture::with_limits(600, 1500).await;
    fixture.cause_conflict_of_agents().await;
    until("one of them to be accepted", async || {
        let answer = fixture.send_heartbeat("n1", &heartbeat_of("agent-2")).await;
        (answer.health == Health::Healthy).then_some(())
    })
    .await;
    let node = fixture.node("n1").await;
    assert!(node.rivals.is_empty());
    assert_eq!(node.entry.agent_instance, "agent-2");
}
