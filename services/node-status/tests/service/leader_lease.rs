//! The lease of the leader in the database: only one process of the service may write.

use hayward_node_status_api::Health;

use crate::fixture::{Fixture, healthy_heartbeat};

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_releases_the_lease_of_the_leader() {
    let mut fixture = Fixture::without_losses().await;
    fixture.settings.server.lease_ms = 3_600_000;
    fixture.kill_and_restart().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    // A held lease of one hour would prevent a new leader.
    fixture.stop_and_restart().await;
    assert_eq!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .health,
        Health::Healthy
    );
}
