//! Tests of permissions: which callers may read or change which data.

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView, RoundView};
use hayward_service::Code;
use hayward_service::client::{Client, ClientError};
use http::Method;
use http::header::IF_MATCH;
use serde_json::Value;

use super::fixture::Fixture;
use super::neighbours::{SECRET, job};

async fn problem_code(client: &Client, path: &str) -> Option<Code> {
    let outcome: Result<Value, ClientError> = client.get(path).await;
    outcome
        .err()
        .map(|error| error.problem().expect("a problem document").code)
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_without_token_are_refused_and_publications_are_for_services() {
    let fixture = Fixture::new(&[2]).await;
    fixture.settle().await;
    let (ann, anonymous) = (fixture.client("ann"), fixture.anonymous_client());
    let service = fixture.client("job-converter");
    for path in [
        "/v1/policy",
        "/v1/shares",
        "/v1/allocations",
        "/v1/rounds",
        "/v1/rounds/1",
        "/v1/verdicts/job_a",
        "/v1/load",
        "/v1/occupancy",
        "/v1/planners",
    ] {
        assert_eq!(
            problem_code(&anonymous, path).await,
            Some(Code::Unauthenticated),
            "{path}"
        );
    }
    for path in ["/v1/allocations/publication", "/v1/verdicts/publication"] {
        assert_eq!(
            problem_code(&anonymous, path).await,
            Some(Code::Unauthenticated),
            "{path}"
        );
        assert_eq!(
            problem_code(&ann, path).await,
            Some(Code::Forbidden),
            "{path}"
        );
        assert_eq!(problem_code(&service, path).await, None, "{path}");
    }
    assert_eq!(problem_code(&anonymous, "/livez").await, None);
    assert_eq!(problem_code(&anonymous, "/readyz").await, None);
    for name in ["ann", "viewer", "job-converter"] {
        let call = fixture
            .client(name)
            .call(Method::PUT, "/v1/policy")
            .header(IF_MATCH, "\"0\"");
        let refused = call
            .body(&Policy::default())
            .send::<Value>()
            .await
            .unwrap_err();
        assert_eq!(refused.problem().unwrap().code, Code::Forbidden, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allocations_and_rounds_are_shown_without_launches() {
    let fixture = Fixture::new(&[2, 2]).await;
    for work in ["job_a", "job_b"] {
        let mut demand = job(work, "ann");
        demand.max_processes = 2;
        fixture.neighbours.submit(&demand);
    }
    let all = fixture.until("four processes", |all| all.len() == 4).await;
    let viewer = fixture.client("viewer");
    let list: AllocationList = viewer
        .get("/v1/allocations?work=job_a&node=n1")
        .await
        .unwrap();
    let matching = all
        .values()
        .filter(|entry| entry.work.as_str() == "job_a" && entry.node.as_str() == "n1");
    assert_eq!(list.allocations.len(), matching.count());
    let text: Value = viewer.get("/v1/allocations").await.unwrap();
    assert!(!text.to_string().contains(SECRET));
    let allocation = all.values().next().unwrap();
    let path = format!("/v1/allocations/{}", allocation.id);
    let shown: AllocationView = viewer.get(&path).await.unwrap();
    assert_eq!(shown, AllocationView::from(allocation));
    assert_eq!(
        problem_code(&viewer, "/v1/allocations/alc_none").await,
        Some(Code::NotFound)
    );
    assert_eq!(
        problem_code(&viewer, "/v1/rounds/999999").await,
        Some(Code::NotFound)
    );
    assert!(problem_code(&viewer, "/v1/rounds/many").await.is_some());
    assert!(
        problem_code(&viewer, "/v1/allocations?colour=red")
            .await
            .is_some()
    );
    let shares = fixture.shares().await.unwrap();
    let mut granted = 0;
    for round in 1..=shares.round {
        let view: Result<RoundView, _> = viewer.get(&format!("/v1/rounds/{round}")).await;
        granted += view.map_or(0, |view| view.grants.len());
    }
    assert_eq!(granted, 4);
}
