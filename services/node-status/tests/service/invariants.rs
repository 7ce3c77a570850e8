//! `GET /v1/invariants` of a working service.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use crate::fixture::{Fixture, well};

const PATH: &str = "/v1/invariants";

fn results(all: &Invariants) -> Vec<(&str, RuleResult)> {
    let rules = all.rules.iter();
    rules.map(|it| (it.id.as_str(), it.result)).collect()
}

fn refusal(answer: Result<Invariants, ClientError>) -> Code {
    let error = answer.expect_err("it is not for everybody");
    error.problem().expect("a problem document").code
}

#[tokio::test(flavor = "multi_thread")]
async fn the_invariants_of_node_status_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::calm().await;
    fixture.beat("n1", &well()).await;
    let seen: Invariants = fixture.viewer().get(PATH).await.unwrap();
    let expected = [("I19", Holds), ("I24", Holds), ("I25", Holds)];
    assert_eq!(results(&seen), expected, "{seen:#?}");
    assert_eq!(seen.service, "node-status");
    let states = &seen.rules[1];
    assert_eq!((states.examined, states.violations), (1, 0));
    assert_eq!(states.last_good_at, Some(states.checked_at));
    assert!(
        seen.rules[0].examined > 0,
        "a node that came has its record"
    );

    let bounds = &seen.rules[2];
    assert_eq!(
        bounds.examined, 6,
        "nodes, drains, commands and descriptors"
    );

    assert_eq!(
        refusal(fixture.stranger().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(
        refusal(fixture.agent("n1").get(PATH).await),
        Code::Forbidden
    );
    let status: Status = fixture.viewer().get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}

/// The limit is both enforced and checked (I25).
#[tokio::test(flavor = "multi_thread")]
async fn a_node_over_the_limit_is_refused() {
    let fixture = Fixture::set(60_000, 120_000, |it| it.max_nodes = 2).await;
    fixture.beat("n1", &well()).await;
    fixture.beat("n2", &well()).await;
    let path = "/v1/nodes/n3/heartbeat";
    let refused: Result<serde_json::Value, _> = fixture.agent("n3").put(path, &well()).await;
    let problem = refused.expect_err("one too many");
    let problem = problem.problem().expect("a document").clone();
    assert_eq!(problem.code, Code::Conflict);
    assert!(problem.detail.contains("max_nodes"), "{problem}");
    fixture.beat("n2", &well()).await;
    let seen: Invariants = fixture.viewer().get(PATH).await.unwrap();
    assert_eq!(seen.rules[2].result, RuleResult::Holds, "{seen:#?}");
}

/// Rows from before the limit was lowered exceed it, and the check reports that (I25).
#[tokio::test(flavor = "multi_thread")]
async fn more_nodes_than_allowed_are_reported() {
    let mut fixture = Fixture::calm().await;
    for node in ["n1", "n2", "n3"] {
        fixture.beat(node, &well()).await;
    }
    fixture.settings.max_nodes = 2;
    fixture.stop_and_restart().await;
    let seen: Invariants = fixture.viewer().get(PATH).await.unwrap();
    let bounds = &seen.rules[2];
    assert_eq!(bounds.result, RuleResult::Violated, "{seen:#?}");
    let found: Vec<&str> = bounds
        .evidence
        .iter()
        .map(|it| it.subject.as_str())
        .collect();
    assert!(found.contains(&"nodes"), "{found:?}");
}
