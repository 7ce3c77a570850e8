//! `GET /v1/invariants` on a service that works.

use hayward_service::Code;
use hayward_service::Scope;
use hayward_service::client::ClientError;
use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleResult};
use serde_json::json;

use crate::fixture::Fixture;

const PATH: &str = "/v1/invariants";

fn results(invariants: &Invariants) -> Vec<(&str, RuleResult)> {
    let rules = invariants.rules.iter();
    rules.map(|it| (it.id.as_str(), it.result)).collect()
}

fn refusal(answer: Result<Invariants, ClientError>) -> Code {
    let error = answer.expect_err("the caller may not read it");
    error.problem().expect("a problem document").code
}

#[tokio::test(flavor = "multi_thread")]
async fn the_invariants_of_job_converter_hold() {
    use RuleResult::Holds;
    let fixture = Fixture::new().await;
    let body = json!({ "command": ["/bin/true"], "tasks": { "count": 3 } });
    let job = fixture.submit(body).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let leased = fixture.runner(&demand).lease(&process.id, 2).await;
    assert_eq!(leased.tasks.len(), 2);

    let viewer = fixture.client("vic", &[Scope::Viewer]);
    let invariants: Invariants = viewer.get(PATH).await.unwrap();
    let expected = [
        ("I5", Holds),
        ("I13", Holds),
        ("I19", Holds),
        ("I24", Holds),
        ("I25", Holds),
    ];
    assert_eq!(results(&invariants), expected, "{invariants:#?}");
    assert_eq!(
        (invariants.service.as_str(), invariants.rules[0].examined),
        ("job-converter", 1)
    );

    let unauthenticated = fixture.client_with_token("nonsense");
    assert_eq!(
        refusal(unauthenticated.get(PATH).await),
        Code::Unauthenticated
    );
    assert_eq!(
        refusal(fixture.user("ann").get(PATH).await),
        Code::Forbidden
    );
    let status: Status = viewer.get("/v1/status").await.unwrap();
    assert!(status.schema.is_some_and(|schema| schema > 0), "{status:?}");
    let followed = status.followers.iter().map(|it| it.publication.as_str());
    assert_eq!(followed.collect::<Vec<_>>(), ["allocations", "verdicts"]);
}
