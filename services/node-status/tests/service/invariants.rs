//! `GET /v1/invariants`: the results of the rules that the service checks about itself.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult, RuleStatus};

use crate::fixture::{Fixture, healthy_heartbeat};

const PATH: &str = "/v1/invariants";

fn rule_results(invariants: &Invariants) -> Vec<(&str, RuleResult)> {
    let rules = invariants.rules.iter();
    rules.map(|rule| (rule.id.as_str(), rule.result)).collect()
}

/// Returns the result of the rule that no collection exceeds its limit.
fn bounds_rule(invariants: &Invariants) -> &RuleStatus {
    find_rule(invariants, "I25")
}

fn find_rule<'a>(invariants: &'a Invariants, id: &str) -> &'a RuleStatus {
    invariants.rules.iter().find(|rule| rule.id == id).unwrap()
}

fn refusal_code(result: Result<Invariants, ClientError>) -> Code {
    let error = result.expect_err("the caller has no permission");
    error.problem().expect("a problem document").code
}

#[tokio::test(flavor = "multi_thread")]
async fn the_invariants_of_node_status_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let invariants: Invariants = fixture.viewer().get(PATH).await.unwrap();
    // Audit records form a chain, nothing is late, and nothing exceeds its limit.
    let expected = [("I19", Holds), ("I24", Holds), ("I25", Holds)];
    assert_eq!(rule_results(&invariants), expected, "{invariants:#?}");
    assert_eq!(invariants.service, "node-status");
    let lateness = find_rule(&invariants, "I24");
    assert_eq!((lateness.examined, lateness.violations), (1, 0));
    assert_eq!(lateness.last_good_at, Some(lateness.checked_at));
    assert!(
        find_rule(&invariants, "I19").examined > 0,
        "the new node is recorded"
    );

    let bounds = bounds_rule(&invariants);
    assert_eq!(
        bounds.examined, 6,
        "nodes, drains, commands and descriptors"
    );

    assert_eq!(
        refusal_code(fixture.anonymous_client().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(
        refusal_code(fixture.agent("n1").get(PATH).await),
        Code::Forbidden
    );
    let status: Status = fixture.viewer().get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}

/// The limit is both enforced and checked (I25).
#[tokio::test(flavor = "multi_thread")]
async fn a_node_over_the_limit_is_refused() {
    let fixture = Fixture::with_settings(60_000, 120_000, |it| it.max_nodes = 2).await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    fixture.send_heartbeat("n2", &healthy_heartbeat()).await;
    let path = "/v1/nodes/n3/heartbeat";
    let refused: Result<serde_json::Value, _> =
        fixture.agent("n3").put(path, &healthy_heartbeat()).await;
    let problem = refused.expect_err("the node exceeds the limit");
    let problem = problem.problem().expect("a problem document").clone();
    assert_eq!(problem.code, Code::Conflict);
    assert!(problem.detail.contains("max_nodes"), "{problem}");
    fixture.send_heartbeat("n2", &healthy_heartbeat()).await;
    let invariants: Invariants = fixture.viewer().get(PATH).await.unwrap();
    assert_eq!(
        bounds_rule(&invariants).result,
        RuleResult::Holds,
        "{invariants:#?}"
    );
}

/// Stored nodes may exceed a lower limit (I25).
#[tokio::test(flavor = "multi_thread")]
async fn more_nodes_than_allowed_are_reported() {
    let mut fixture = Fixture::without_losses().await;
    for node in ["n1", "n2", "n3"] {
        fixture.send_heartbeat(node, &healthy_heartbeat()).await;
    }
    fixture.settings.max_nodes = 2;
    fixture.stop_and_restart().await;
    let invariants: Invariants = fixture.viewer().get(PATH).await.unwrap();
    let bounds = bounds_rule(&invariants);
    assert_eq!(bounds.result, RuleResult::Violated, "{invariants:#?}");
    let subjects: Vec<&str> = bounds
        .evidence
        .iter()
        .map(|it| it.subject.as_str())
        .collect();
    assert!(subjects.contains(&"nodes"), "{subjects:?}");
}
