//! Agents: enrolment, heartbeats, loss and return.

use hayward_node_status_api::{
    AgentCredentials, Enrolment, EnrolmentRequest, EnrolmentSecret, Health, Heartbeat, NodeEntry,
    NodeHistory,
};
use hayward_publication::{Followed, Update};
use hayward_service::auth::Scope;
use hayward_service::client::{Client, TokenSource};
use hayward_testkit::until;

use crate::fixture::{Fixture, SECONDS, name, refusal, try_beat, well};

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_creates_a_node_and_a_repeated_one_writes_nothing() {
    let fixture = Fixture::calm().await;
    let answer = fixture.beat("n1", &well()).await;
    assert_eq!((answer.health, answer.schedulable), (Health::Healthy, true));
    assert_eq!(answer.heartbeat_ms, fixture.settings.heartbeat_ms);

    let revision = fixture.running().publisher.revision();
    let mut beat = well();
    for round in 0..20 {
        beat.metrics.containers = round;
        fixture.beat("n1", &beat).await;
    }
    assert_eq!(
        fixture.running().publisher.revision(),
        revision,
        "metrics are no news"
    );
    let node = fixture.node("n1").await;
    assert_eq!(
        (node.metrics.containers, node.version.as_str()),
        (19, "0.1.0")
    );
    assert_eq!((node.entry.pool.as_str(), node.missed), ("default", 0));

    beat.inventory.capacity.cpu_milli = 8000;
    fixture.beat("n1", &beat).await;
    assert!(fixture.running().publisher.revision() > revision);
    assert_eq!(fixture.node("n1").await.entry.capacity.cpu_milli, 8000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heartbeat_period_grows_with_the_fleet() {
    let fixture = Fixture::set(60 * SECONDS, 120 * SECONDS, |settings| {
        settings.heartbeat_ms = SECONDS;
        settings.heartbeats_per_second = 1;
    })
    .await;
    assert_eq!(fixture.beat("n1", &well()).await.heartbeat_ms, SECONDS);
    assert_eq!(fixture.beat("n2", &well()).await.heartbeat_ms, 2 * SECONDS);
    let again = fixture.beat("n1", &well()).await;
    assert_eq!(
        again.heartbeat_ms,
        2 * SECONDS,
        "nothing new is answered alike"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_its_lease_and_when_a_successor_may_start() {
    let fixture = Fixture::with(200, 1_000).await;
    let answer = fixture.beat("n1", &well()).await;
    let lease = fixture.node("n1").await.lease.unwrap();
    assert_eq!(Some(lease.lasts_ms), answer.lease_ms);
    assert!(lease.ends_after_ms <= lease.lasts_ms, "{lease:?}");
    let until_lost = lease.replacement_after_ms.unwrap();
    // The lease ends first, by the margin.
    let margin_ms = 1_000 - lease.lasts_ms;
    assert_eq!(until_lost, lease.ends_after_ms + margin_ms, "{lease:?}");
    let over = until("the lease to end before the node is given up", async || {
        let node = fixture.node("n1").await;
        let lease = node.lease.unwrap();
        if node.entry.health == Health::Lost {
            assert_eq!(
                (lease.ends_after_ms, lease.replacement_after_ms),
                (0, Some(0))
            );
        }
        (node.entry.health == Health::Lost).then_some(lease)
    })
    .await;
    assert_eq!(over.lasts_ms, lease.lasts_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reports_only_for_its_own_node() {
    let fixture = Fixture::calm().await;
    let other = fixture.agent("n2");
    assert_eq!(refusal(try_beat(&other, "n1", &well()).await).0, 403);
    assert_eq!(
        refusal(try_beat(&fixture.operator(), "n1", &well()).await).0,
        403
    );
    assert_eq!(
        refusal(try_beat(&fixture.stranger(), "n1", &well()).await).0,
        401
    );
    let renewed = other
        .put::<_, AgentCredentials>("/v1/nodes/n1/credentials", &())
        .await;
    assert_eq!(refusal(renewed).0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fields_of_a_heartbeat_are_bounded() {
    let fixture = Fixture::calm().await;
    let mut beat = well();
    beat.boot_id.clear();
    beat.inventory.pool = Some("x\u{7}".into());
    beat.inventory.labels = (0..65).map(|n| (format!("l{n}"), String::new())).collect();
    let (status, pointers) = refusal(try_beat(&fixture.agent("n1"), "n1", &beat).await);
    assert_eq!(status, 422);
    assert_eq!(
        pointers,
        ["/boot_id", "/inventory/pool", "/inventory/labels"]
    );
    let half = serde_json::json!({ "boot_id": "b", "agent_instance": 3 });
    let answer = fixture
        .agent("n1")
        .put::<_, Heartbeat>("/v1/nodes/n1/heartbeat", &half)
        .await;
    assert_eq!(refusal(answer), (422, vec!["/agent_instance".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_becomes_suspect_then_lost_and_returns_with_one_heartbeat() {
    let fixture = Fixture::with(300, 900).await;
    fixture.beat("n1", &well()).await;
    until("n1 out of favour", async || {
        let health = fixture.node("n1").await.entry.health;
        matches!(health, Health::Suspect | Health::Lost).then_some(())
    })
    .await;
    until("n1 lost", async || {
        (fixture.node("n1").await.entry.health == Health::Lost).then_some(())
    })
    .await;
    assert_eq!(
        fixture.node("n1").await.entry.reason,
        "no heartbeat for more than 900 ms"
    );
    // A heartbeat revives a lost node at once.
    assert_eq!(fixture.beat("n1", &well()).await.health, Health::Healthy);
    assert_eq!(fixture.node("n1").await.entry.health, Health::Healthy);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_loses_contact_as_a_whole_does_not_become_lost() {
    let fixture = Fixture::with(600, 2400).await;
    for node in ["n1", "n2", "n3", "n4"] {
        fixture.beat(node, &well()).await;
    }
    until("the brake", async || {
        fixture
            .node("n4")
            .await
            .entry
            .reason
            .contains("not given up")
            .then_some(())
    })
    .await;
    for node in ["n1", "n2", "n3", "n4"] {
        assert_eq!(fixture.node(node).await.entry.health, Health::Suspect);
    }
    // Two nodes return, so the remaining losses are no incident and become lost as usual.
    let lost = until("n3 and n4 lost", async || {
        fixture.beat("n1", &well()).await;
        fixture.beat("n2", &well()).await;
        let lost = [fixture.node("n3").await, fixture.node("n4").await];
        lost.iter()
            .all(|node| node.entry.health == Health::Lost)
            .then_some(lost)
    })
    .await;
    assert!(
        lost.iter()
            .all(|node| !node.entry.reason.contains("not given up"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_service_does_not_count_against_nodes() {
    let mut fixture = Fixture::with(5 * SECONDS, 10 * SECONDS).await;
    fixture.beat("n1", &well()).await;
    fixture.kill_and_restart().await;
    let node = fixture.node("n1").await;
    assert_eq!(node.entry.health, Health::Healthy);
    assert!(
        node.heartbeat_age_ms < 5 * SECONDS,
        "counted from when we were back"
    );
    until("suspect after all", async || {
        (fixture.node("n1").await.entry.health == Health::Suspect).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_enrolment_is_limited_to_the_claims_of_any_node() {
    let most = 16 << 30;
    let fixture = Fixture::set(60 * SECONDS, 120 * SECONDS, |settings| {
        settings.node_most_memory_bytes = most;
    })
    .await;
    fixture.beat("n1", &well()).await;
    let mut greedy = well();
    greedy.inventory.capacity.memory_bytes = 1 << 50;
    for node in ["n1", "n2"] {
        fixture.beat(node, &greedy).await;
        let entry = fixture.node(node).await.entry;
        assert_eq!(entry.capacity.memory_bytes, most);
        let path = format!("/v1/nodes/{node}/history");
        let history: NodeHistory = fixture.viewer().get(&path).await.unwrap();
        let text = &history.changes[0].reason;
        let claim = "claims 1073741824 MiB, 4000 milli cpu, limited to 16384 MiB, 4000 milli cpu";
        assert!(text.contains(claim), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_of_one_node_quiesce_the_node() {
    let fixture = Fixture::calm().await;
    let (one, mut two) = (well(), well());
    two.agent_instance = "agent-2".into();
    fixture.beat("n1", &one).await;
    assert_eq!(
        fixture.beat("n1", &two).await.health,
        Health::Healthy,
        "a restart"
    );
    assert_eq!(
        fixture.beat("n1", &one).await.health,
        Health::Quiesced,
        "a return is a twin"
    );
    assert_eq!(fixture.beat("n1", &two).await.health, Health::Quiesced);
    assert!(fixture.node("n1").await.entry.reason.contains("two agents"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_exchanged_for_a_token_once() {
    let mut fixture = Fixture::calm().await;
    let (operator, request) = (
        fixture.operator(),
        EnrolmentRequest {
            node: name("n1"),
            limit: None,
            pool: None,
        },
    );
    let ask = |client: Client, key: &'static str, request: EnrolmentRequest| async move {
        let call = client
            .call(axum::http::Method::POST, "/v1/enrolments")
            .body(&request);
        call.idempotency_key(key).send::<Enrolment>().await
    };
    let first = ask(operator.clone(), "k1", request.clone()).await.unwrap();
    assert_eq!(
        ask(operator.clone(), "k1", request.clone()).await.unwrap(),
        first,
        "A4"
    );
    let other = EnrolmentRequest {
        node: name("n2"),
        limit: None,
        pool: None,
    };
    assert_eq!(refusal(ask(operator.clone(), "k1", other).await).0, 422);
    assert_eq!(
        refusal(ask(fixture.viewer(), "k2", request.clone()).await).0,
        403
    );

    fixture.kill_and_restart().await;
    let stranger = fixture.stranger();
    let redeem = |node: &str, secret: &str| {
        let (path, stranger) = (format!("/v1/nodes/{node}/credentials"), stranger.clone());
        let body = EnrolmentSecret {
            secret: secret.to_owned(),
        };
        async move {
            stranger
                .post::<_, AgentCredentials>(&path, &body, None)
                .await
        }
    };
    assert_eq!(refusal(redeem("n1", "hwd_wrong").await).0, 401);
    assert_eq!(refusal(redeem("n2", &first.secret).await).0, 401);
    let credentials = redeem("n1", &first.secret).await.unwrap();
    assert_eq!(refusal(redeem("n1", &first.secret).await).0, 401, "used");

    let agent = Client::new(&[fixture.url()], TokenSource::fixed(&credentials.token)).unwrap();
    try_beat(&agent, "n1", &well()).await.unwrap();
    let renewed = agent
        .put::<_, AgentCredentials>("/v1/nodes/n1/credentials", &())
        .await
        .unwrap();
    assert!(renewed.expires_at >= credentials.expires_at);
    let stored = fixture
        .rows("select count(*) from node_status.enrolment")
        .await;
    assert_eq!(stored, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_receives_all_published_entries() {
    let mut fixture = Fixture::calm().await;
    let scheduler = |fixture: &Fixture| {
        fixture.client("rm-scheduler", &[Scope::Service("rm-scheduler".into())])
    };
    fixture.beat("n1", &well()).await;
    let path = "/v1/nodes/publication";
    let mut followed = Followed::<NodeEntry>::default();
    let update: Update<NodeEntry> = scheduler(&fixture).get(path).await.unwrap();
    assert!(update.full);
    let cursor = update.cursor.clone();
    followed.absorb(update, 0);
    assert!(followed.get("n1").unwrap().takes_work());

    let client = scheduler(&fixture);
    let next = format!("{path}?wait=20&since={cursor}");
    let waiting = tokio::spawn(async move { client.get::<Update<NodeEntry>>(&next).await });
    fixture.beat("n2", &well()).await;
    let update = waiting.await.unwrap().unwrap();
    assert!(
        !update.full && update.changed.contains_key("n2"),
        "{update:?}"
    );
    followed.absorb(update, 1);

    fixture.kill_and_restart().await;
    let update: Update<NodeEntry> = scheduler(&fixture).get(path).await.unwrap();
    assert!(
        followed.absorb(update, 2).is_empty(),
        "the same after a crash"
    );
    assert_eq!(
        refusal(fixture.operator().get::<Update<NodeEntry>>(path).await).0,
        403
    );
}
