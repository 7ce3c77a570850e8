//! `GET /v1/invariants` of a working service.

use hayward_blocklist::Settings;
use hayward_blocklist_api::BlockAnswer;
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use crate::fixture::{Fixture, ITEMS, mark};

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
async fn the_invariants_of_blocklist_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::new().await;
    fixture.put(&mark("n1")).await;
    let seen: Invariants = fixture.viewer().get(PATH).await.unwrap();
    let expected = [
        ("I16", Holds),
        ("I19", Holds),
        ("I24", Holds),
        ("I25", Holds),
    ];
    assert_eq!(results(&seen), expected, "{seen:#?}");
    assert_eq!(
        (seen.service.as_str(), seen.rules[2].examined),
        ("blocklist", 1)
    );

    assert_eq!(
        refusal(fixture.stranger().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(refusal(fixture.owner().get(PATH).await), Code::Forbidden);
    let status: Status = fixture.viewer().get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}

/// A new key over the limit is refused; an existing one can be changed (I25).
#[tokio::test(flavor = "multi_thread")]
async fn an_item_over_the_limit_is_refused() {
    let fixture = Fixture::with(Settings {
        max_items: 2,
        ..Settings::default()
    })
    .await;
    fixture.put(&mark("n1")).await;
    fixture.put(&mark("n2")).await;
    let refused: Result<BlockAnswer, _> = fixture.operator().put(ITEMS, &mark("n3")).await;
    let refused = refused.expect_err("one too many");
    let problem = refused.problem().expect("a document").clone();
    assert_eq!(problem.code, Code::Conflict);
    assert!(problem.detail.contains("2 of at most 2"), "{problem}");
    fixture.put(&mark("n2")).await;
    let seen: Invariants = fixture.viewer().get(PATH).await.unwrap();
    assert_eq!(seen.rules[3].result, RuleResult::Holds, "{seen:#?}");
}
