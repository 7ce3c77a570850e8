//! Shutdown of the server: requests in progress get some time, and long polls end at once (S27).

use std::time::{Duration, Instant};

use hayward_service::{Code, Limits};
use reqwest::Method;

use crate::fixture::{TIMEOUT, fixture, problem_of};

#[tokio::test]
async fn shutdown_finishes_requests_and_ends_long_polls() {
    let fixture = fixture(Limits::default()).await;
    let work = tokio::spawn(fixture.request(Method::GET, "/v1/work").send());
    fixture.entered.notified().await;
    let poll = tokio::spawn(fixture.request(Method::GET, "/v1/poll?wait=25").send());
    fixture.entered.notified().await;
    let began = Instant::now();
    fixture.shutdown.begin();
    let (status, refusal) = problem_of(poll.await.unwrap().unwrap()).await;
    assert_eq!((status, refusal.code), (503, Code::Unavailable));
    fixture.release.notify_one();
    assert_eq!(work.await.unwrap().unwrap().text().await.unwrap(), "done");
    tokio::time::timeout(TIMEOUT, fixture.server_task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "no connection was cut by force"
    );
}

#[tokio::test]
async fn shutdown_cancels_requests_that_do_not_end() {
    let fixture = fixture(Limits {
        drain_timeout: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    let work = tokio::spawn(fixture.request(Method::GET, "/v1/work").send());
    fixture.entered.notified().await;
    fixture.shutdown.begin();
    tokio::time::timeout(TIMEOUT, fixture.server_task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(work.await.unwrap().is_err());
}

#[tokio::test]
async fn a_request_with_its_wait_in_the_body_is_treated_as_a_long_poll() {
    let fixture = fixture(Limits {
        in_progress: 1,
        ..Limits::default()
    })
    .await;
    let lease = tokio::spawn(fixture.request(Method::POST, "/v1/lease").send());
    fixture.entered.notified().await;
    assert_eq!(fixture.get("/v1/echo").await.status(), 200);
    fixture.shutdown.begin();
    assert_eq!(problem_of(lease.await.unwrap().unwrap()).await.0, 503);
    tokio::time::timeout(TIMEOUT, fixture.server_task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
