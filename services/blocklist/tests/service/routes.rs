//! Tests of the routes of nodes, workers, the strategy and failures: statuses, pointers to faults,
//! filters, the change feed, and permissions.

use std::collections::BTreeMap;

use axum::http::Method;
use axum::http::header::{ETAG, IF_MATCH};
use hayward_blocklist::Settings;
use hayward_blocklist_api::{
    BlockBatchAnswer, BlockEntry, BlockOverview, BlockView, ChangeKind, FailureAnswer, FeedChanges,
    StrategyView,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, ROOT_PATH, refusal, refusal_status};

fn mark_body() -> Value {
    json!({ "action": "MARK_BLOCKLISTED", "cause": "disk slow", "duration_ms": 60_000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_a_request_are_reported_at_once() {
    let fixture = Fixture::new().await;
    let body = json!({
        "action": "destroy", "cause": " ", "duration_ms": -1, "scope": "RACK:1", "permanent": true,
    });
    let (status, pointers) = fixture.expect_refusal("nodes/-x", &body).await;
    assert_eq!(status, 422);
    for expected in [
        "/path/id",
        "/action",
        "/cause",
        "/duration_ms",
        "/scope",
        "/permanent",
    ] {
        assert!(
            pointers.iter().any(|pointer| pointer == expected),
            "{expected} in {pointers:?}"
        );
    }
    // A whole number may be written with a zero fraction (A2).
    let with_fraction =
        json!({ "action": "MARK_BLOCKLISTED", "cause": "hot", "duration_ms": 60_000.0 });
    assert_eq!(
        fixture.put_block_status("nodes/k2", &with_fraction).await,
        201
    );
    let mut graceful = mark_body();
    graceful["evacuation"] = json!({ "policy": "GRACEFUL" });
    let pointers = vec!["/evacuation".to_owned()];
    assert_eq!(
        fixture.expect_refusal("nodes/k1", &graceful).await,
        (422, pointers),
        "a mark has no evacuation"
    );
    graceful["action"] = json!("evacuate");
    let item = fixture
        .put_block_answer("nodes/k1", &graceful)
        .await
        .item
        .unwrap();
    let default_policy = hayward_blocklist_api::EvacuationPolicy::Graceful { grace_ms: 120_000 };
    assert_eq!(
        item.evacuation, default_policy,
        "the grace period of the settings"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_node_is_refused_once_the_nodes_are_known() {
    let mut fixture = Fixture::with_nodes(3, Settings::default()).await;
    let pointers = vec!["/path/id".to_owned()];
    assert_eq!(
        fixture.expect_refusal("nodes/n77", &mark_body()).await,
        (422, pointers)
    );
    let batch = json!({ "items": [{
        "type": "NODE", "identifier": "n77", "action": "mark", "cause": "x"
    }] });
    let path = format!("{ROOT_PATH}/items");
    let result = fixture
        .operator()
        .post::<_, BlockBatchAnswer>(&path, &batch, None)
        .await;
    assert_eq!(
        refusal(result),
        (422, vec!["/items/0/identifier".to_owned()])
    );
    assert_eq!(
        fixture
            .put_block_status("workers/alc_9", &mark_body())
            .await,
        201,
        "workers are not checked"
    );
    // A removed node may return under its name, even after a restart.
    fixture.scheduler.machines.remove("n2");
    fixture.crash_and_restart().await;
    fixture.wait_for_node("n1").await;
    assert_eq!(
        fixture.put_block_status("nodes/n2", &mark_body()).await,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_honours_if_match() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body()).await;
    let operator = fixture.operator();
    let path = format!("{ROOT_PATH}/nodes/k1");
    let response = operator
        .call(Method::GET, path.as_str())
        .send_for_response::<BlockView>()
        .await
        .unwrap();
    let tag = response.headers[ETAG].to_str().unwrap().to_owned();
    let mut longer = mark_body();
    longer["duration_ms"] = json!(90_000);
    longer["allow_merge"] = json!(true);
    fixture.put_block("nodes/k1", &longer).await;
    let remove = async |tag: &str| {
        let call = operator
            .call(Method::DELETE, path.as_str())
            .header(IF_MATCH, tag);
        call.send::<Option<()>>().await
    };
    assert_eq!(refusal_status(remove(&tag).await), 412);
    let response = operator
        .call(Method::GET, path.as_str())
        .send_for_response::<BlockView>()
        .await
        .unwrap();
    remove(response.headers[ETAG].to_str().unwrap())
        .await
        .unwrap();
    assert_eq!(refusal_status(remove("*").await), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_applies_filters() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body()).await;
    let evacuate = json!({ "action": "evacuate", "cause": "x", "scope": "JOB:job_1" });
    fixture.put_block("nodes/k2", &evacuate).await;
    fixture.put_block("workers/alc_1", &mark_body()).await;
    let count_blocks = async |query: &str| {
        let path = format!("{ROOT_PATH}?{query}");
        let overview: BlockOverview = fixture.viewer().get(&path).await.unwrap();
        (overview.nodes.len(), overview.workers.len())
    };
    assert_eq!(count_blocks("").await, (2, 1));
    assert_eq!(count_blocks("type=NODE").await, (2, 0));
    assert_eq!(count_blocks("action=MARK_BLOCKED").await, (1, 1));
    assert_eq!(count_blocks("scope=CLUSTER").await, (1, 1));
    assert_eq!(count_blocks("scope=JOB:job_1").await, (1, 0));
    let invalid = format!("{ROOT_PATH}?type=RACK&action=x&scope=y&include=z");
    let (status, pointers) = refusal(fixture.viewer().get::<BlockOverview>(&invalid).await);
    assert_eq!((status, pointers.len()), (400, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_changes_after_a_version_lead_to_the_current_list() {
    let fixture = Fixture::new().await;
    let start: BlockOverview = fixture.overview().await;
    for round in 0..3 {
        for node in ["k1", "k2", "k3"] {
            let mut body = mark_body();
            body["duration_ms"] = json!(60_000 + round);
            body["allow_merge"] = json!(true);
            fixture.put_block(&format!("nodes/{node}"), &body).await;
        }
        fixture.unblock("nodes/k2").await;
    }
    let mut copy: BTreeMap<String, BlockEntry> = BTreeMap::new();
    let feed = fixture.changes(start.version).await;
    assert!(feed.changes.is_sorted_by_key(|change| change.version));
    for change in feed.changes {
        match change.kind {
            ChangeKind::Blocked | ChangeKind::Updated => {
                copy.insert(change.item.key(), change.item);
            }
            _ => drop(copy.remove(&change.item.key())),
        }
    }
    assert_eq!(copy, fixture.published_entries().await);
    let future = format!("{ROOT_PATH}/changes?after=1000000");
    assert_eq!(
        refusal_status(fixture.viewer().get::<FeedChanges>(&future).await),
        410,
        "the version is not in the log"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_strategy_leaves_the_previous_one() {
    let fixture = Fixture::new().await;
    fixture.set_strategy("flapping", json!({ "n": 9 })).await;
    let path = format!("{ROOT_PATH}/strategy");
    let set_strategy = async |body: Value| {
        refusal(
            fixture
                .operator()
                .put::<_, StrategyView>(&path, &body)
                .await,
        )
    };
    let unknown = set_strategy(json!({ "name": "magic" })).await;
    assert_eq!(unknown, (422, vec!["/name".to_owned()]));
    let faults =
        set_strategy(json!({ "name": "flapping", "parameters": { "n": 0, "x": 1 } })).await;
    assert_eq!(faults.0, 422);
    assert_eq!(faults.1, ["/parameters/n", "/parameters/x"]);
    let strategy: StrategyView = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(
        (strategy.name.as_str(), &strategy.parameters["n"]),
        ("flapping", &json!(9))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_admits_only_its_callers() {
    let fixture = Fixture::new().await;
    let item = json!({ "type": "NODE", "identifier": "k1", "action": "mark", "cause": "x" });
    let post = async |client: hayward_service::Client, source: Option<&str>| {
        let body = json!({ "items": [item], "source": source });
        let path = format!("{ROOT_PATH}/items");
        let result = client.post::<_, BlockBatchAnswer>(&path, &body, None).await;
        result
            .err()
            .map_or(200, |error| error.problem().unwrap().status().as_u16())
    };
    assert_eq!(post(fixture.viewer(), Some("detector:x")).await, 403);
    assert_eq!(
        post(fixture.owner(), None).await,
        403,
        "an owner is not an operator"
    );
    assert_eq!(post(fixture.owner(), Some("manual:ann")).await, 403);
    assert_eq!(
        post(fixture.operator(), Some("manual:bob")).await,
        422,
        "the source must be the caller"
    );
    assert_eq!(post(fixture.operator(), Some("magic")).await, 422);
    assert_eq!(
        post(fixture.owner(), Some("detector:x")).await,
        422,
        "the limits on automatic blocks need the nodes of the pool"
    );
    assert_eq!(post(fixture.operator(), None).await, 200);

    let body = json!({
        "job_id": "job_1", "cause": "x", "locations": [{ "node": "n1" }],
        "timestamp": "2026-11-21T10:42:00Z",
    });
    let path = format!("{ROOT_PATH}/failures");
    let report = async |client: hayward_service::Client, body: &Value| {
        client.post::<_, FailureAnswer>(&path, body, None).await
    };
    assert_eq!(refusal_status(report(fixture.viewer(), &body).await), 403);
    report(fixture.scheduler_client(), &body).await.unwrap();
    let invalid = json!({
        "job_id": "", "cause": "", "locations": [], "timestamp": "noon", "cause_code": "a b",
    });
    let (status, pointers) = refusal(report(fixture.owner(), &invalid).await);
    assert_eq!((status, pointers.len()), (422, 5), "{pointers:?}");
    let strategy = json!({ "name": "none" });
    let path = format!("{ROOT_PATH}/strategy");
    let refused = fixture
        .owner()
        .put::<_, StrategyView>(&path, &strategy)
        .await;
    assert_eq!(refusal_status(refused), 403);
}
