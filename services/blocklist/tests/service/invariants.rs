//! `GET /v1/invariants` on a service that works.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use crate::world::{World, mark};

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
    let world = World::new().await;
    world.put(&mark("n1")).await;
    let seen: Invariants = world.viewer().get(PATH).await.unwrap();
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
        refusal(world.stranger().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(refusal(world.owner().get(PATH).await), Code::Forbidden);
    let status: Status = world.viewer().get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}
