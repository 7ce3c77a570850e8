//! Tests of `GET /v1/invariants`, which shows whether the invariants of the service hold.

use hayward_blocklist::Settings;
use hayward_blocklist_api::BlockAnswer;
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use crate::fixture::{Fixture, ITEMS_PATH, default_item};

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
async fn the_invariants_of_blocklist_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::new().await;
    fixture.put_item(&default_item("n1")).await;
    let invariants: Invariants = fixture.viewer().get(PATH).await.unwrap();
    let expected = [
        ("I16", Holds),
        ("I19", Holds),
        ("I24", Holds),
        ("I25", Holds),
    ];
    assert_eq!(rule_results(&invariants), expected, "{invariants:#?}");
    // The third rule examines the deadline of each key (I24).
    assert_eq!(
        (invariants.service.as_str(), invariants.rules[2].examined),
        ("blocklist", 1)
    );

    assert_eq!(
        refusal_code(fixture.anonymous_client().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(
        refusal_code(fixture.owner().get(PATH).await),
        Code::Forbidden
    );
    let status: Status = fixture.viewer().get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}

/// A new key over the limit is refused. An existing one can still be changed (I25).
#[tokio::test(flavor = "multi_thread")]
async fn an_item_over_the_limit_is_refused() {
    let fixture = Fixture::with_settings(Settings {
        max_items: 2,
        ..Settings::default()
    })
    .await;
    fixture.put_item(&default_item("n1")).await;
    fixture.put_item(&default_item("n2")).await;
    let refused: Result<BlockAnswer, _> = fixture
        .operator()
        .put(ITEMS_PATH, &default_item("n3"))
        .await;
    let refused = refused.expect_err("the item exceeds the limit");
    let problem = refused.problem().expect("a problem document").clone();
    assert_eq!(problem.code, Code::Conflict);
    assert!(problem.detail.contains("2 of at most 2"), "{problem}");
    fixture.put_item(&default_item("n2")).await;
    let invariants: Invariants = fixture.viewer().get(PATH).await.unwrap();
    // The fourth rule compares the number of items with the limit (I25).
    assert_eq!(
        invariants.rules[3].result,
        RuleResult::Holds,
        "{invariants:#?}"
    );
}
