//! Commands of operators: lists, varying off and on, removal and history.

use hayward_node_status_api::{Health, NodeEntry, NodeHistory, NodeList, Schedulable};
use hayward_testkit::until;

use crate::fixture::{Fixture, NodeCommands as _, healthy_heartbeat, refusal, refusal_status};

fn varied_off(reason: &str) -> Schedulable {
    Schedulable {
        schedulable: false,
        reason: Some(reason.to_owned()),
    }
}

const VARIED_ON: Schedulable = Schedulable {
    schedulable: true,
    reason: None,
};

/// Neither heartbeats nor restarts of the service vary the node on.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_varied_off_stays_off_until_varied_on() {
    let mut fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let path = "/v1/nodes/n1/schedulable";
    let entry: NodeEntry = fixture
        .operator()
        .put_command(path, &varied_off("new disk"))
        .await
        .unwrap();
    assert!(!entry.takes_work());
    assert_eq!(
        entry.reason,
        "varied off by ann: new disk; heartbeats arrive"
    );
    let revision = fixture.running().publisher.revision();
    let _: NodeEntry = fixture
        .operator()
        .put_command(path, &varied_off("new disk"))
        .await
        .unwrap();
    assert_eq!(
        fixture.running().publisher.revision(),
        revision,
        "the second request changes nothing"
    );

    fixture.kill_and_restart().await;
    assert!(
        !fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .schedulable
    );
    assert!(
        !fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .schedulable,
        "the second heartbeat bypasses the ledger"
    );
    assert!(!fixture.node("n1").await.entry.schedulable);
    let entry: NodeEntry = fixture
        .operator()
        .put_command(path, &VARIED_ON)
        .await
        .unwrap();
    assert!(entry.takes_work());
    assert!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .schedulable
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_vary_a_node_are_checked() {
    let fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let path = "/v1/nodes/n1/schedulable";
    assert_eq!(
        refusal_status(
            fixture
                .viewer()
                .put_command::<_, NodeEntry>(path, &VARIED_ON)
                .await
        ),
        403
    );
    let unknown = fixture
        .operator()
        .put_command::<_, NodeEntry>("/v1/nodes/n9/schedulable", &VARIED_ON)
        .await;
    assert_eq!(refusal_status(unknown), 404);
    let invalid = serde_json::json!({ "schedulable": "no" });
    let answer = fixture
        .operator()
        .put_command::<_, NodeEntry>(path, &invalid)
        .await;
    assert_eq!(refusal(answer), (422, vec!["/schedulable".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_lost_node_can_be_removed() {
    let fixture = Fixture::with_limits(500, 1500).await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let operator = fixture.operator();
    let refused = operator.delete_command::<Option<()>>("/v1/nodes/n1").await;
    let problem = refused.unwrap_err().problem().cloned().unwrap();
    assert_eq!(problem.code, hayward_service::Code::Conflict);
    assert!(problem.detail.contains("stop its agent"), "{problem}");
    until("n1 lost", async || {
        (fixture.node("n1").await.entry.health == Health::Lost).then_some(())
    })
    .await;
    assert_eq!(
        refusal_status(
            fixture
                .viewer()
                .delete_command::<Option<()>>("/v1/nodes/n1")
                .await
        ),
        403
    );
    let _: Option<()> = operator.delete_command("/v1/nodes/n1").await.unwrap();
    let removed = operator.get::<NodeEntry>("/v1/nodes/n1").await;
    assert_eq!(refusal_status(removed), 404);
    assert_eq!(
        refusal_status(operator.delete_command::<Option<()>>("/v1/nodes/n1").await),
        404
    );
    // The agent of a removed node may return as a new node.
    assert_eq!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .health,
        Health::Healthy
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn history_holds_caller_and_reason_and_is_bounded() {
    let fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let (operator, path) = (fixture.operator(), "/v1/nodes/n1/schedulable");
    for round in 0..260 {
        let change = if round % 2 == 0 {
            varied_off("maintenance")
        } else {
            VARIED_ON
        };
        let _: NodeEntry = operator.put_command(path, &change).await.unwrap();
    }
    let page = "/v1/nodes/n1/history?limit=2";
    let first: NodeHistory = fixture.viewer().get(page).await.unwrap();
    assert_eq!(first.changes[0].reason, "varied on");
    assert_eq!(
        first.changes[1].reason,
        "varied off by ann: maintenance; heartbeats arrive"
    );
    assert_eq!(first.changes[0].by.as_deref(), Some("ann"));
    let next = format!("{page}&cursor={}", first.next_cursor.unwrap());
    let second: NodeHistory = fixture.viewer().get(&next).await.unwrap();
    assert_eq!(second.changes[0].reason, "varied on");
    let count = fixture
        .query_count("select count(*) from node_status.node_change")
        .await;
    assert!((200..=250).contains(&count), "{count} changes");
    let unknown = fixture
        .viewer()
        .get::<NodeHistory>("/v1/nodes/n9/history")
        .await;
    assert_eq!(refusal_status(unknown), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_pages_and_wait_for_writes() {
    let fixture = Fixture::without_losses().await;
    for number in 0..5 {
        fixture
            .send_heartbeat(&format!("n{number}"), &healthy_heartbeat())
            .await;
    }
    let viewer = fixture.viewer();
    let (mut names, mut query) = (Vec::new(), "limit=2".to_owned());
    loop {
        let page: NodeList = viewer.get(&format!("/v1/nodes?{query}")).await.unwrap();
        names.extend(page.nodes.iter().map(|node| node.entry.node.to_string()));
        let Some(cursor) = page.next_cursor else {
            break;
        };
        query = format!("limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"]);

    let next_revision = fixture.running().publisher.revision() + 1;
    let waiting = tokio::spawn({
        let viewer = viewer.clone();
        async move {
            viewer
                .get::<NodeList>(&format!("/v1/nodes?min_revision={next_revision}"))
                .await
        }
    });
    fixture.send_heartbeat("n5", &healthy_heartbeat()).await;
    let list = waiting.await.unwrap().unwrap();
    assert_eq!((list.nodes.len(), list.revision), (6, next_revision));
    let invalid = viewer.get::<NodeList>("/v1/nodes?limit=0").await;
    assert_eq!(refusal(invalid), (400, vec!["/query/limit".to_owned()]));
    assert_eq!(
        refusal_status(
            fixture
                .anonymous_client()
                .get::<NodeList>("/v1/nodes")
                .await
        ),
        401
    );
}
