//! Details of a node besides its health: reason, next change, flapping, history.

use hayward_node_status_api::{Health, NodeHistory, NodeView};
use hayward_testkit::until;
use hayward_vocabulary::resources::GIB;

use crate::fixture::{Fixture, SECONDS, refusal, try_beat, well};

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
    // Limits far enough apart that no state passes while it is read.
    let calm = Fixture::with(60 * SECONDS, 120 * SECONDS).await;
    calm.beat("n1", &well()).await;
    let next = calm.node("n1").await.next.unwrap();
    assert!(next.what.contains("takes no new work"), "{}", next.what);
    assert!((1..=60 * SECONDS).contains(&next.after_ms.unwrap()));

    let silent = Fixture::with(200, 120 * SECONDS).await;
    silent.beat("n1", &well()).await;
    let next = silent
        .wait_for_health("n1", Health::Suspect)
        .await
        .next
        .unwrap();
    assert!(next.what.contains("given up"), "{}", next.what);
    assert!((1..120 * SECONDS).contains(&next.after_ms.unwrap()));

    let strict = Fixture::with(200, 600).await;
    strict.beat("n1", &well()).await;
    let next = strict
        .wait_for_health("n1", Health::Lost)
        .await
        .next
        .unwrap();
    assert!(next.what.contains("next heartbeat"), "{}", next.what);
    assert_eq!(next.after_ms, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_before_its_node_becomes_lost() {
    let fixture = Fixture::set(15 * SECONDS, 60 * SECONDS, |settings| {
        settings.lease_margin_ms = None;
    })
    .await;
    let first = fixture.beat("n1", &well()).await.lease_ms;
    assert_eq!(first, Some(45 * SECONDS), "through the ledger");
    assert_eq!(
        fixture.beat("n1", &well()).await.lease_ms,
        first,
        "and past it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn flapping_is_counted_and_shown() {
    let fixture = Fixture::with(250, 60 * SECONDS).await;
    for _ in 0..3 {
        fixture.beat("n1", &well()).await;
        fixture.wait_for_health("n1", Health::Suspect).await;
    }
    fixture.beat("n1", &well()).await;
    let node = fixture.node("n1").await;
    assert_eq!((node.entry.health, node.flaps), (Health::Healthy, 3));
    let text = "heartbeats arrive; came and went 3 times in 15 min";
    assert_eq!(node.entry.reason, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reports_why_it_takes_no_work() {
    let mut fixture = Fixture::calm().await;
    let mut beat = well();
    beat.quiesced = true;
    beat.quiesce_reason = Some("less than 512 MiB of disk is free".into());
    fixture.beat("n1", &beat).await;
    let text = "the node asks for no new work: less than 512 MiB of disk is free";
    let node = fixture.node("n1").await;
    assert_eq!(
        (node.entry.health, &*node.entry.reason),
        (Health::Quiesced, text)
    );
    let revision = fixture.running().publisher.revision();
    assert_eq!(fixture.beat("n1", &beat).await.health, Health::Quiesced);
    assert_eq!(fixture.running().publisher.revision(), revision, "no news");
    fixture.kill_and_restart().await;
    assert_eq!(fixture.node("n1").await.entry.reason, text, "remembered");
    beat.quiesce_reason = Some("x\u{7}".into());
    let (status, pointers) = refusal(try_beat(&fixture.agent("n1"), "n1", &beat).await);
    assert_eq!(
        (status, pointers),
        (422, vec!["/quiesce_reason".to_owned()])
    );
    fixture.beat("n1", &well()).await;
    assert!(fixture.node("n1").await.entry.takes_work());
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_node_are_in_its_history() {
    let fixture = Fixture::calm().await;
    fixture.beat("n1", &well()).await;
    let mut beat = well();
    beat.inventory.capacity.memory_bytes = 4 * GIB;
    fixture.beat("n1", &beat).await;
    let text = "shrank from 8192 MiB, 4000 milli cpu to 4096 MiB, 4000 milli cpu";
    assert_eq!(fixture.history("n1").await[0], text);

    // Another pool applies after the agent restarted.
    beat.inventory.pool = Some("fast".into());
    fixture.beat("n1", &beat).await;
    assert_eq!(fixture.node("n1").await.entry.pool, "default");
    beat.agent_instance = "agent-2".into();
    beat.boot_id = "boot-2".into();
    fixture.beat("n1", &beat).await;
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
    let mut fixture = Fixture::set(300, 900, |settings| {
        settings.warm_up_ms = Some(60 * SECONDS);
    })
    .await;
    fixture.beat("n1", &well()).await;
    fixture.beat("n2", &well()).await;
    fixture.kill_and_restart().await;
    fixture.beat("n2", &well()).await;
    // n2 sent a heartbeat in this term and is judged as usual; n1 has been silent for longer.
    fixture.wait_for_health("n2", Health::Lost).await;
    let spared = until("n1 spared", async || {
        let node = fixture.node("n1").await;
        node.entry.reason.contains("coming back").then_some(node)
    })
    .await;
    assert_eq!(spared.entry.health, Health::Suspect);
    assert!(spared.next.unwrap().after_ms.unwrap() > 900);
}
