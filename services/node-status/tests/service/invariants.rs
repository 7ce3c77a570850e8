//! `GET /v1/invariants` on a service that works.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};

use crate::world::{World, well};

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
    let world = World::calm().await;
    world.beat("n1", &well()).await;
    let seen: Invariants = world.viewer().get(PATH).await.unwrap();
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

    assert_eq!(
        refusal(world.stranger().get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(refusal(world.agent("n1").get(PATH).await), Code::Forbidden);
    let status: Status = world.viewer().get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
}
