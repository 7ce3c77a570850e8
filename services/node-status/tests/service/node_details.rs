//! Details that a read of a node returns: the reason of its state, its next change, its losses of
//! contact and its history.

use hayward_node_status_api::{Health, NodeHistory, NodeView};
use hayward_testkit::until;
use hayward_vocabulary::resources::GIB;

use crate::fixture::{Fixture, SECONDS, healthy_heartbeat, refusal, try_heartbeat};

impl Fixture {
    async fn wait_for_health(&self, node: &str, health: Health) -> NodeView {
        until(&format!("{node} {health:?}"), async || {
            Some(self.node(node).await).filter(|view| view.entry.health == health)
        })
        .await
    }

    async fn history(&self, node: &str) -> Vec<String> {
        let path = format!("/v1/nodes/{node}/history");
        let history: NodeHistory = self.viewer().get(&path).await.unwrap();
        history.changes.into_iter().map(|it| it.reason).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_shows_its_next_change() {
    // The limits are far apart, so that the state does not change during a read.
    let healthy = Fixture::with_limits(60 * SECONDS, 120 * SECONDS).await;
    healthy.send_heartbeat("n1", &healthy_heartbeat()).await;
    let next = healthy.node("n1").await.next.unwrap();
    assert!(next.what.contains("takes no new work"), "{}", next.what);
    assert!((1..=60 * SECONDS).contains(&next.after_ms.unwrap()));

    let suspect = Fixture::with_limits(200, 120 * SECONDS).await;
    suspect.send_heartbeat("n1", &healthy_heartbeat()).await;
    let next = suspect
        .wait_for_health("n1", Health::Suspect)
        .await
        .next
        .unwrap();
    assert!(next.what.contains("given up"), "{}", next.what);
    assert!((1..120 * SECONDS).contains(&next.after_ms.unwrap()));

    let lost = Fixture::with_limits(200, 600).await;
    lost.send_heartbeat("n1", &healthy_heartbeat()).await;
    let next = lost.wait_for_health("n1", Health::Lost).await.next.unwrap();
    assert!(next.what.contains("next heartbeat"), "{}", next.what);
    assert_eq!(next.after_ms, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn flapping_is_counted_and_shown() {
    let fixture = Fixture::with_limits(250, 60 * SECONDS).await;
    for _ in 0..3 {
        fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
        fixture.wait_for_health("n1", Health::Suspect).await;
    }
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let node = fixture.node("n1").await;
    assert_eq!((node.entry.health, node.flaps), (Health::Healthy, 3));
    let text = "heartbeats arrive; came and went 3 times in 15 min";
    assert_eq!(node.entry.reason, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reports_why_it_takes_no_work() {
    let mut fixture = Fixture::without_losses().await;
    let mut heartbeat = healthy_heartbeat();
    heartbeat.quiesced = true;
    heartbeat.quiesce_reason = Some("less than 512 MiB of disk is free".into());
    fixture.send_heartbeat("n1", &heartbeat).await;
    let text = "the node asks for no new work: less than 512 MiB of disk is free";
    let node = fixture.node("n1").await;
    assert_eq!(
        (node.entry.health, &*node.entry.reason),
        (Health::Quiesced, text)
    );
    let revision = fixture.running().publisher.revision();
    assert_eq!(
        fixture.send_heartbeat("n1", &heartbeat).await.health,
        Health::Quiesced
    );
    assert_eq!(
        fixture.running().publisher.revision(),
        revision,
        "nothing changed"
    );
    fixture.kill_and_restart().await;
    assert_eq!(
        fixture.node("n1").await.entry.reason,
        text,
        "the reason is stored"
    );
    heartbeat.quiesce_reason = Some("x\u{7}".into());
    let (status, pointers) = refusal(try_heartbeat(&fixture.agent("n1"), "n1", &heartbeat).await);
    assert_eq!(
        (status, pointers),
        (422, vec!["/quiesce_reason".to_owned()])
    );
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    assert!(fixture.node("n1").await.entry.takes_work());
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_node_are_in_its_history() {
    let fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let mut heartbeat = healthy_heartbeat();
    heartbeat.inventory.capacity.memory_bytes = 4 * GIB;
    fixture.send_heartbeat("n1", &heartbeat).await;
    let text = "shrank from 8192 MiB, 4000 milli cpu to 4096 MiB, 4000 milli cpu";
    assert_eq!(fixture.history("n1").await[0], text);

    // Another pool applies after the agent restarted.
    heartbeat.inventory.pool = Some("fast".into());
    fixture.send_heartbeat("n1", &heartbeat).await;
    assert_eq!(fixture.node("n1").await.entry.pool, "default");
    heartbeat.agent_instance = "agent-2".into();
    heartbeat.boot_id = "boot-2".into();
    fixture.send_heartbeat("n1", &heartbeat).await;
    let node = fixture.node("n1").await;
    assert_eq!(
        (&*node.entry.pool, &*node.entry.boot_id),
        ("fast", "boot-2")
    );
    let text = "the machine booted: its work has ended; moved from pool default to fast";
    assert_eq!(fixture.history("n1").await[0], text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_heartbeat_since_an_outage_becomes_lost_later() {
    let mut fixture = Fixture::with_settings(300, 900, |settings| {
        settings.warm_up_ms = Some(60 * SECONDS);
    })
    .await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    fixture.send_heartbeat("n2", &healthy_heartbeat()).await;
    fixture.kill_and_restart().await;
    fixture.send_heartbeat("n2", &healthy_heartbeat()).await;
    // The warm-up applies only to n1, because n2 sent a heartbeat in this term.
    fixture.wait_for_health("n2", Health::Lost).await;
    let suspect = until("n1 not lost", async || {
        let node = fixture.node("n1").await;
        node.entry.reason.contains("coming back").then_some(node)
    })
    .await;
    assert_eq!(suspect.entry.health, Health::Suspect);
    assert!(suspect.next.unwrap().after_ms.unwrap() > 900);
}
