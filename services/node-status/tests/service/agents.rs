//! Agents: enrolment, heartbeats, leases, loss and return of their nodes.

use hayward_node_status_api::{
    AgentCredentials, Enrolment, EnrolmentRequest, EnrolmentSecret, Health, Heartbeat, NodeEntry,
    NodeHistory,
};
use hayward_publication::{Followed, Update};
use hayward_service::auth::Scope;
use hayward_service::client::{Client, TokenSource};
use hayward_testkit::until;

use crate::fixture::{
    Fixture, SECONDS, healthy_heartbeat, node_name, refusal, refusal_status, try_heartbeat,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_creates_a_node_and_a_repeated_one_writes_nothing() {
    let fixture = Fixture::without_losses().await;
    let answer = fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    assert_eq!((answer.health, answer.schedulable), (Health::Healthy, true));
    assert_eq!(answer.heartbeat_ms, fixture.settings.heartbeat_ms);

    let revision = fixture.running().publisher.revision();
    let mut heartbeat = healthy_heartbeat();
    for round in 0..20 {
        heartbeat.metrics.containers = round;
        fixture.send_heartbeat("n1", &heartbeat).await;
    }
    assert_eq!(
        fixture.running().publisher.revision(),
        revision,
        "changed metrics are not published"
    );
    let node = fixture.node("n1").await;
    assert_eq!(
        (node.metrics.containers, node.version.as_str()),
        (19, "0.1.0")
    );
    assert_eq!((node.entry.pool.as_str(), node.missed), ("default", 0));

    heartbeat.inventory.capacity.cpu_milli = 8000;
    fixture.send_heartbeat("n1", &heartbeat).await;
    assert!(fixture.running().publisher.revision() > revision);
    assert_eq!(fixture.node("n1").await.entry.capacity.cpu_milli, 8000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heartbeat_period_grows_with_the_fleet() {
    let fixture = Fixture::with_settings(60 * SECONDS, 120 * SECONDS, |settings| {
        settings.heartbeat_ms = SECONDS;
        settings.heartbeats_per_second = 1;
    })
    .await;
    assert_eq!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .heartbeat_ms,
        SECONDS
    );
    assert_eq!(
        fixture
            .send_heartbeat("n2", &healthy_heartbeat())
            .await
            .heartbeat_ms,
        2 * SECONDS
    );
    let again = fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    assert_eq!(
        again.heartbeat_ms,
        2 * SECONDS,
        "an unchanged heartbeat gets the same period"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_heartbeat_grants_the_same_lease() {
    let fixture = Fixture::with_settings(15 * SECONDS, 60 * SECONDS, |settings| {
        settings.lease_margin_ms = None;
    })
    .await;
    let first = fixture
        .send_heartbeat("n1", &healthy_heartbeat())
        .await
        .lease_ms;
    assert_eq!(
        first,
        Some(45 * SECONDS),
        "the ledger responds to the first heartbeat"
    );
    assert_eq!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .lease_ms,
        first,
        "the handler responds to an unchanged heartbeat"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_its_lease_and_when_a_successor_may_start() {
    let fixture = Fixture::with_limits(200, 1_000).await;
    let answer = fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let lease = fixture.node("n1").await.lease.unwrap();
    assert_eq!(Some(lease.lasts_ms), answer.lease_ms);
    assert!(lease.ends_after_ms <= lease.lasts_ms, "{lease:?}");
    let until_lost = lease.replacement_after_ms.unwrap();
    // The lease ends earlier than the loss, by the margin.
    let margin_ms = 1_000 - lease.lasts_ms;
    assert_eq!(until_lost, lease.ends_after_ms + margin_ms, "{lease:?}");
    let final_lease = until("the lease ends before the node is lost", async || {
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
    assert_eq!(final_lease.lasts_ms, lease.lasts_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reports_only_for_its_own_node() {
    let fixture = Fixture::without_losses().await;
    let other = fixture.agent("n2");
    assert_eq!(
        refusal_status(try_heartbeat(&other, "n1", &healthy_heartbeat()).await),
        403
    );
    assert_eq!(
        refusal_status(try_heartbeat(&fixture.operator(), "n1", &healthy_heartbeat()).await),
        403
    );
    assert_eq!(
        refusal_status(
            try_heartbeat(&fixture.anonymous_client(), "n1", &healthy_heartbeat()).await
        ),
        401
    );
    let renewed = other
        .put::<_, AgentCredentials>("/v1/nodes/n1/credentials", &())
        .await;
    assert_eq!(refusal_status(renewed), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fields_of_a_heartbeat_are_bounded() {
    let fixture = Fixture::without_losses().await;
    let mut heartbeat = healthy_heartbeat();
    heartbeat.boot_id.clear();
    heartbeat.inventory.pool = Some("x\u{7}".into());
    heartbeat.inventory.labels = (0..65).map(|n| (format!("l{n}"), String::new())).collect();
    let (status, pointers) = refusal(try_heartbeat(&fixture.agent("n1"), "n1", &heartbeat).await);
    assert_eq!(status, 422);
    assert_eq!(
        pointers,
        ["/boot_id", "/inventory/pool", "/inventory/labels"]
    );
    let incomplete = serde_json::json!({ "boot_id": "b", "agent_instance": 3 });
    let answer = fixture
        .agent("n1")
        .put::<_, Heartbeat>("/v1/nodes/n1/heartbeat", &incomplete)
        .await;
    assert_eq!(refusal(answer), (422, vec!["/agent_instance".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_becomes_suspect_then_lost_and_returns_with_one_heartbeat() {
    let fixture = Fixture::with_limits(300, 900).await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    until("n1 suspect or lost", async || {
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
    assert_eq!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .health,
        Health::Healthy
    );
    assert_eq!(fixture.node("n1").await.entry.health, Health::Healthy);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_do_not_become_lost_when_their_whole_pool_loses_contact() {
    let fixture = Fixture::with_limits(600, 2400).await;
    for node in ["n1", "n2", "n3", "n4"] {
        fixture.send_heartbeat(node, &healthy_heartbeat()).await;
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
    // Two nodes return, so the other two are no longer an incident and become lost.
    let lost = until("n3 and n4 lost", async || {
        fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
        fixture.send_heartbeat("n2", &healthy_heartbeat()).await;
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
    let mut fixture = Fixture::with_limits(5 * SECONDS, 10 * SECONDS).await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    fixture.kill_and_restart().await;
    let node = fixture.node("n1").await;
    assert_eq!(node.entry.health, Health::Healthy);
    assert!(
        node.heartbeat_age_ms < 5 * SECONDS,
        "silence counts from the restart"
    );
    until("n1 suspect", async || {
        (fixture.node("n1").await.entry.health == Health::Suspect).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claims_of_a_node_without_enrolment_are_limited_by_the_settings() {
    let max_bytes = 16 << 30;
    let fixture = Fixture::with_settings(60 * SECONDS, 120 * SECONDS, |settings| {
        settings.node_most_memory_bytes = max_bytes;
    })
    .await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let mut excessive = healthy_heartbeat();
    excessive.inventory.capacity.memory_bytes = 1 << 50;
    for node in ["n1", "n2"] {
        fixture.send_heartbeat(node, &excessive).await;
        let entry = fixture.node(node).await.entry;
        assert_eq!(entry.capacity.memory_bytes, max_bytes);
        let path = format!("/v1/nodes/{node}/history");
        let history: NodeHistory = fixture.viewer().get(&path).await.unwrap();
        let text = &history.changes[0].reason;
        let claim = "claims 1073741824 MiB, 4000 milli cpu, limited to 16384 MiB, 4000 milli cpu";
        assert!(text.contains(claim), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_of_one_node_quiesce_the_node() {
    let fixture = Fixture::without_losses().await;
    let (first, mut second) = (healthy_heartbeat(), healthy_heartbeat());
    second.agent_instance = "agent-2".into();
    fixture.send_heartbeat("n1", &first).await;
    assert_eq!(
        fixture.send_heartbeat("n1", &second).await.health,
        Health::Healthy,
        "a new instance is a restart"
    );
    assert_eq!(
        fixture.send_heartbeat("n1", &first).await.health,
        Health::Quiesced,
        "the return of the first agent is a conflict"
    );
    assert_eq!(
        fixture.send_heartbeat("n1", &second).await.health,
        Health::Quiesced
    );
    assert!(fixture.node("n1").await.entry.reason.contains("two agents"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_exchanged_for_a_token_once() {
    let mut fixture = Fixture::without_losses().await;
    let operator = fixture.operator();
    let request = |node| EnrolmentRequest {
        node: node_name(node),
        limit: None,
        pool: None,
    };
    let enrol = |client: Client, key: &'static str, request: EnrolmentRequest| async move {
        let call = client
            .call(axum::http::Method::POST, "/v1/enrolments")
            .body(&request);
        call.idempotency_key(key).send::<Enrolment>().await
    };
    let first = enrol(operator.clone(), "k1", request("n1")).await.unwrap();
    assert_eq!(
        enrol(operator.clone(), "k1", request("n1")).await.unwrap(),
        first,
        "a repeated request gets the same secret (A4)"
    );
    let other = request("n2");
    assert_eq!(
        refusal_status(enrol(operator.clone(), "k1", other).await),
        422
    );
    assert_eq!(
        refusal_status(enrol(fixture.viewer(), "k2", request("n1")).await),
        403
    );

    fixture.kill_and_restart().await;
    let client = fixture.anonymous_client();
    let redeem = |node: &str, secret: &str| {
        let (path, client) = (format!("/v1/nodes/{node}/credentials"), client.clone());
        let body = EnrolmentSecret {
            secret: secret.to_owned(),
        };
        async move { client.post::<_, AgentCredentials>(&path, &body, None).await }
    };
    assert_eq!(refusal_status(redeem("n1", "hwd_wrong").await), 401);
    assert_eq!(refusal_status(redeem("n2", &first.secret).await), 401);
    let credentials = redeem("n1", &first.secret).await.unwrap();
    assert_eq!(
        refusal_status(redeem("n1", &first.secret).await),
        401,
        "the secret was used before"
    );

    let agent = Client::new(&[fixture.url()], TokenSource::fixed(&credentials.token)).unwrap();
    try_heartbeat(&agent, "n1", &healthy_heartbeat())
        .await
        .unwrap();
    let renewed = agent
        .put::<_, AgentCredentials>("/v1/nodes/n1/credentials", &())
        .await
        .unwrap();
    assert!(renewed.expires_at >= credentials.expires_at);
    let stored = fixture
        .query_count("select count(*) from node_status.enrolment")
        .await;
    assert_eq!(stored, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_receives_all_published_entries() {
    let mut fixture = Fixture::without_losses().await;
    let scheduler = |fixture: &Fixture| {
        fixture.client("rm-scheduler", &[Scope::Service("rm-scheduler".into())])
    };
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
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
    fixture.send_heartbeat("n2", &healthy_heartbeat()).await;
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
        "a crash changes no entry"
    );
    assert_eq!(
        refusal_status(fixture.operator().get::<Update<NodeEntry>>(path).await),
        403
    );
}
