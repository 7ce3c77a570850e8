//! `GET /v1/invariants` on a healthy service.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use super::fake_scheduler::allocation;
use super::fixture::Fixture;

const PATH: &str = "/v1/invariants";

fn rule_results(invariants: &Invariants) -> Vec<(&str, RuleResult)> {
    let rules = invariants.rules.iter();
    rules.map(|it| (it.id.as_str(), it.result)).collect()
}

fn refusal_code(result: Result<Invariants, ClientError>) -> Code {
    let error = result.expect_err("the caller has no permission");
    error.problem().expect("a problem document").code
}

#[tokio::test(flavor = "multi_thread")]
async fn the_invariants_of_container_manager_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::new().await;
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    fixture
        .wait_until("the container is published", |all| all.len() == 1)
        .await;
    let invariants: Invariants = fixture.client("viewer").get(PATH).await.unwrap();
    // Audit records form a chain, nothing is late, and nothing exceeds its limit.
    let expected = [("I19", Holds), ("I24", Holds), ("I25", Holds)];
    assert_eq!(rule_results(&invariants), expected, "{invariants:#?}");
    assert_eq!(invariants.service, "container-manager");
    assert_eq!(
        invariants.rules[1].examined, 1,
        "a container that is ordered and not reported yet"
    );

    assert_eq!(
        refusal_code(fixture.anonymous_client().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(
        refusal_code(fixture.client("ann").get(PATH).await),
        Code::Forbidden
    );
    let status: Status = fixture.client("viewer").get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}
