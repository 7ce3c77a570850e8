//! Limits of an enrolment: the maximum resources of its node, and its node pool (S15).

use axum::http::Method;
use hayward_node_status_api::{
    AgentCredentials, Enrolment, EnrolmentRequest, EnrolmentSecret, NodeHistory,
};
use hayward_service::Code;
use hayward_vocabulary::{Size, resources::GIB};

use crate::fixture::{Fixture, healthy_heartbeat, node_name, try_heartbeat};

impl Fixture {
    /// Enrols the agent of `n1` with `limit`.
    async fn enrol(&self, limit: Option<Size>, key: &str) {
        self.enrol_in_pool(limit, None, key).await;
    }

    /// Enrols the agent of `n1` with `limit` in `pool`.
    async fn enrol_in_pool(&self, limit: Option<Size>, pool: Option<&str>, key: &str) {
        let request = EnrolmentRequest {
            node: node_name("n1"),
            limit,
            pool: pool.map(str::to_owned),
        };
        let operator = self.operator();
        let call = operator.call(Method::POST, "/v1/enrolments").body(&request);
        let enrolment: Enrolment = call.idempotency_key(key).send().await.unwrap();
        let secret = EnrolmentSecret {
            secret: enrolment.secret,
        };
        let path = "/v1/nodes/n1/credentials";
        let client = self.anonymous_client();
        let _: AgentCredentials = client.post(path, &secret, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_capacity_of_a_node_is_limited_by_its_enrolment() {
    let mut fixture = Fixture::without_losses().await;
    let limit = Size::memory(2 * GIB);
    fixture.enrol(Some(limit), "k1").await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let node = fixture.node("n1").await;
    assert_eq!(node.entry.capacity.memory_bytes, 2 * GIB);
    assert_eq!(
        node.entry.capacity.cpu_milli, 4000,
        "a resource without a limit is not clamped"
    );
    assert_eq!(node.claimed.unwrap().memory_bytes, 8 * GIB);

    fixture.kill_and_restart().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    assert_eq!(
        fixture.node("n1").await.entry.capacity.memory_bytes,
        2 * GIB
    );

    // A new enrolment applies its own limit at once.
    fixture.enrol(None, "k2").await;
    let node = fixture.node("n1").await;
    assert_eq!(node.entry.capacity.memory_bytes, 8 * GIB);
    assert_eq!(node.claimed, None);
    let history: NodeHistory = fixture.viewer().get("/v1/nodes/n1/history").await.unwrap();
    let reason = &history.changes[0].reason;
    assert_eq!(reason, "enrolled without a limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_must_name_the_pool_of_its_enrolment() {
    let mut fixture = Fixture::without_losses().await;
    let heartbeat_in = |pool: Option<&str>| {
        let mut heartbeat = healthy_heartbeat();
        heartbeat.inventory.pool = pool.map(str::to_owned);
        heartbeat
    };
    let is_refused = async |fixture: &Fixture, pool: Option<&str>| {
        let answer = try_heartbeat(&fixture.agent("n1"), "n1", &heartbeat_in(pool)).await;
        let code = answer.err().map(|error| error.problem().unwrap().code);
        code == Some(Code::Forbidden)
    };
    fixture.send_heartbeat("n1", &heartbeat_in(None)).await;
    fixture.enrol_in_pool(None, Some("gpu"), "k1").await;
    assert!(
        is_refused(&fixture, None).await,
        "an unchanged heartbeat is checked too"
    );
    assert!(is_refused(&fixture, Some("gpu2")).await);
    fixture
        .send_heartbeat("n1", &heartbeat_in(Some("gpu")))
        .await;
    fixture.kill_and_restart().await;
    assert!(
        is_refused(&fixture, Some("default")).await,
        "the limit survives a restart"
    );
    fixture
        .send_heartbeat("n1", &heartbeat_in(Some("gpu")))
        .await;
    fixture.enrol(None, "k2").await;
    assert!(
        !is_refused(&fixture, None).await,
        "the new enrolment has no pool"
    );
}
