//! Tests of the change stream. Users follow their own allocations, without secrets. Operators and
//! viewers also follow verdicts and the policy.

use hayward_container_manager_api::ContainerState;
use hayward_publication::changes::{ObjectChange, ObjectChanges};
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_rm_scheduler_api::views::AllocationView;
use http::Method;
use http::header::IF_MATCH;
use serde_json::Value;

use super::fixture::Fixture;
use super::neighbours::job;

/// Follows the change stream as this caller until a change satisfies the condition. `since` is the
/// cursor, which moves behind the read changes.
async fn until_change(
    fixture: &Fixture,
    name: &str,
    kinds: &str,
    since: &mut String,
    condition: impl Fn(&ObjectChange) -> bool,
) -> ObjectChange {
    let client = fixture.client(name);
    let following = async {
        loop {
            let path = format!("/v1/changes?since={since}&kinds={kinds}&wait=5");
            let page: ObjectChanges = client.get(&path).await.unwrap();
            *since = page.cursor;
            if let Some(found) = page.changes.into_iter().find(|change| condition(change)) {
                return found;
            }
        }
    };
    let found = tokio::time::timeout(std::time::Duration::from_secs(30), following).await;
    found.unwrap_or_else(|_| panic!("{name} did not receive the change"))
}

/// Users see their own work only (S12).
#[tokio::test(flavor = "multi_thread")]
async fn users_follow_their_own_allocations_to_their_end() {
    let fixture = Fixture::new(&[4]).await;
    let mut since = "0".to_owned();
    let mut demand = job("job_b", "bob");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let bob_allocation = fixture.until_one("job_b", "is there", |_| true).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let ann_allocation = fixture.until_one("job_a", "is there", |_| true).await;
    let first = until_change(&fixture, "ann", "allocation", &mut since, |_| true).await;
    assert_eq!(
        first.id,
        ann_allocation.id.as_str(),
        "ann sees no allocation of bob"
    );
    let shown = first.object.unwrap();
    assert_eq!(shown.get("launch"), None, "a launch may hold secrets");
    let view: AllocationView = serde_json::from_value(shown).unwrap();
    assert_eq!(view.work, ann_allocation.work);

    fixture.report(&ann_allocation, ContainerState::Ended);
    let ended = |change: &ObjectChange| {
        let object = change.object.as_ref();
        object.is_some_and(|object| object["state"] == "ended")
    };
    until_change(&fixture, "ann", "allocation", &mut since, ended).await;
    fixture.neighbours.demand.remove("job_b");
    fixture.report(&bob_allocation, ContainerState::Ended);
    fixture.neighbours.demand.remove("job_a");
    fixture
        .neighbours
        .containers
        .remove(ann_allocation.id.as_str());
    fixture
        .neighbours
        .containers
        .remove(bob_allocation.id.as_str());
    let gone = until_change(&fixture, "ann", "allocation", &mut since, |change| {
        change.removed
    })
    .await;
    assert_eq!(gone.id, ann_allocation.id.as_str());
    let mut viewer_since = "0".to_owned();
    let seen = until_change(
        &fixture,
        "viewer",
        "allocation",
        &mut viewer_since,
        |change| change.id == bob_allocation.id.as_str(),
    )
    .await;
    assert!(seen.object.is_none_or(|object| object["user"] == "bob"));
}

/// Other users see neither the policy nor verdicts in the stream (S12).
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_policy_and_verdicts_reach_only_operators_and_viewers() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let mut since = "0".to_owned();
    let is_verdict = |change: &ObjectChange| change.id == "job_a";
    until_change(&fixture, "viewer", "verdict", &mut since, is_verdict).await;
    for kind in ["verdict", "policy"] {
        let path = format!("/v1/changes?since=0&kinds={kind}&wait=0");
        let refused: Result<Value, _> = fixture.client("ann").get(&path).await;
        assert_eq!(refused.unwrap_err().problem().unwrap().status(), 403);
    }

    let operator = fixture.client("operator");
    let now: PolicyView = operator.get("/v1/policy").await.unwrap();
    let policy: Policy = now.policy;
    let etag = format!("\"{}\"", now.generation);
    let put = operator
        .call(Method::PUT, "/v1/policy")
        .header(IF_MATCH, &etag);
    put.body(&policy).send::<Value>().await.unwrap();
    let change = until_change(&fixture, "viewer", "policy", &mut since, |_| true).await;
    let shown: Value = operator.get("/v1/policy").await.unwrap();
    assert_eq!(change.object, Some(shown));
}
