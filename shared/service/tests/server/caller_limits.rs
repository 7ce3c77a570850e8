//! Limits per caller: requests per second, and concurrent long polls.

use hayward_service::auth::Scope;
use hayward_service::{Code, Limits};
use reqwest::Method;

use crate::fixture::{Fixture, fixture, http_client, problem_of};

async fn echo(fixture: &Fixture, token: &str) -> reqwest::Response {
    let request = http_client()
        .get(fixture.url("/v1/echo"))
        .bearer_auth(token);
    request.send().await.unwrap()
}

/// The rate limit counts per caller (S28).
#[tokio::test]
async fn a_caller_over_its_rate_is_refused_with_a_retry_time_and_others_continue() {
    let fixture = fixture(Limits {
        // With this rate, the bucket does not refill during the test, even on a slow node.
        requests_per_second: 1,
        ..Limits::default()
    })
    .await;
    let ben = fixture
        .issuer
        .mint("ben", &[Scope::Submitter], 60_000)
        .unwrap();
    let mut first_refusal = None;
    // A new token with the same name does not change the limit.
    for _ in 0..20 {
        let response = echo(&fixture, &fixture.token()).await;
        if response.status() != 200 {
            first_refusal = Some(response);
            break;
        }
    }
    let first_refusal = first_refusal.expect("twenty requests within some seconds");
    assert_eq!(first_refusal.headers()["retry-after"], "1");
    let (status, refusal) = problem_of(first_refusal).await;
    assert_eq!((status, refusal.code), (429, Code::TooManyRequests));
    assert!(refusal.retryable && refusal.retry_after_ms.is_some());
    assert_eq!(echo(&fixture, &ben).await.status(), 200);
    let service = [Scope::Service("blocklist".to_owned())];
    let service = fixture.issuer.mint("blocklist", &service, 60_000).unwrap();
    for _ in 0..20 {
        assert_eq!(echo(&fixture, &service).await.status(), 200);
    }
}

/// Long polls have a limit of their own (S27).
#[tokio::test]
async fn concurrent_long_polls_of_one_caller_are_limited() {
    let fixture = fixture(Limits {
        streams_at_once: 1,
        ..Limits::default()
    })
    .await;
    let long_poll = tokio::spawn(fixture.request(Method::GET, "/v1/poll?wait=25").send());
    fixture.entered.notified().await;
    let second = fixture.get("/v1/poll?wait=25").await;
    assert_eq!(problem_of(second).await.1.code, Code::TooManyRequests);
    assert_eq!(
        fixture.get("/v1/echo").await.status(),
        200,
        "other requests are not long polls"
    );
    fixture.shutdown.begin();
    assert_eq!(long_poll.await.unwrap().unwrap().status(), 503);
}
