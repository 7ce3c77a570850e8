//! `GET /v1/invariants` on a healthy service.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use super::fixture::Fixture;
use super::upstream::allocation;

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
async fn the_invariants_of_container_manager_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::new().await;
    fixture.upstream.put(&allocation("alc_1", "n1"));
    fixture.until("one", |all| all.len() == 1).await;
    let seen: Invariants = fixture.client("viewer").get(PATH).await.unwrap();
    let expected = [("I19", Holds), ("I24", Holds), ("I25", Holds)];
    assert_eq!(results(&seen), expected, "{seen:#?}");
    assert_eq!(seen.service, "container-manager");
    assert_eq!(seen.rules[1].examined, 1, "ordered, and not taken up yet");

    assert_eq!(
        refusal(fixture.anonymous_client().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(
        refusal(fixture.client("ann").get(PATH).await),
        Code::Forbidden
    );
    let status: Status = fixture.client("viewer").get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}
