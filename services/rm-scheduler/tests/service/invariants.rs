//! Tests of `GET /v1/invariants`, the results of the invariants that the scheduler checks on
//! itself.

use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_service::invariants::{Invariants, RuleResult};
use hayward_testkit::until;

use super::fixture::Fixture;
use super::neighbours::job;

const PATH: &str = "/v1/invariants";

fn results(all: &Invariants) -> Vec<(&str, RuleResult)> {
    let rules = all.rules.iter();
    rules.map(|it| (it.id.as_str(), it.result)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn invariants_hold_on_a_working_scheduler() {
    use RuleResult::Holds;
    let fixture = Fixture::new(&[2, 2]).await;
    for (work, user) in [("job_a", "ann"), ("job_b", "bob")] {
        let mut demand = job(work, user);
        demand.max_processes = 3;
        fixture.neighbours.submit(&demand);
    }
    fixture.until("four processes", |all| all.len() == 4).await;
    let viewer = fixture.client("viewer");
    let seen = until("a check of all rules", async || {
        let all: Invariants = viewer.get(PATH).await.unwrap();
        let rules = all.rules.iter();
        let known = rules.clone().all(|it| it.result != RuleResult::NotChecked);
        let examined = rules.filter(|it| it.id == "I20").all(|it| it.examined == 2);
        (known && examined).then_some(all)
    })
    .await;
    assert_eq!(
        results(&seen),
        [
            ("I2", Holds),
            ("I10", Holds),
            ("I13", Holds),
            ("I14", Holds),
            ("I16", Holds),
            ("I19", Holds),
            ("I20", Holds),
            ("I21", Holds),
            ("I25", Holds),
        ],
        "{seen:#?}"
    );
    assert_eq!(seen.service, "rm-scheduler");
    let capacity = &seen.rules[0];
    assert_eq!(
        (capacity.examined, capacity.last_good_at),
        (2, Some(capacity.checked_at))
    );
    assert!(seen.revision > 0 && capacity.revision == seen.revision);
    assert!(seen.rules.iter().all(|it| it.why.is_none()), "{seen:#?}");

    let refused = |outcome: Result<Invariants, ClientError>| {
        let error = outcome.expect_err("a refusal");
        error.problem().expect("a problem document").code
    };
    let anonymous = fixture.anonymous_client().get(PATH).await;
    assert_eq!(refused(anonymous), Code::Unauthenticated);
    let submitter = fixture.client("ann").get(PATH).await;
    assert_eq!(refused(submitter), Code::Forbidden);
}
