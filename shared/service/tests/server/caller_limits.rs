//! Limits per caller, and connection limits that are reached.

use std::time::Duration;

use hayward_service::auth::{ACT_AS, Scope};
use hayward_service::{Code, Limits};
use reqwest::Method;
use tokio::io::AsyncReadExt as _;

use crate::fixture::{Fixture, TIMEOUT, fixture, http_client, problem_of, read_to_end, send_text};

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

/// The connection limit is reached with idle connections (F39).
#[tokio::test]
async fn idle_connections_are_closed_for_new_ones() {
    const CONNECTIONS: usize = 8;
    let fixture = fixture(Limits {
        connections: CONNECTIONS,
        ..Limits::default()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = fixture.connect().await;
        // Half of the connections have sent one request and are silent.
        if idle.len() % 2 == 0 {
            let head = fixture.head("GET /v1/echo");
            send_text(&mut stream, &format!("{head}\r\n")).await;
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
        }
        idle.push(stream);
    }
    // The idle time is a minute. If no connection were closed for the new one, this would exceed
    // the time limit.
    assert_eq!(fixture.get("/v1/echo").await.status(), 200);
    let mut closed = false;
    for stream in &mut idle {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        closed |= tokio::time::timeout(Duration::from_secs(5), read)
            .await
            .is_ok();
    }
    assert!(closed, "an idle connection was closed");
}

/// Only idle connections are closed at the limit (F39).
#[tokio::test]
async fn a_busy_connection_is_not_closed_for_new_ones() {
    const CONNECTIONS: usize = 4;
    let fixture = fixture(Limits {
        connections: CONNECTIONS,
        ..Limits::default()
    })
    .await;
    let work_request = tokio::spawn(fixture.request(Method::GET, "/v1/work").send());
    fixture.entered.notified().await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS - 1 {
        idle.push(fixture.connect().await);
    }
    assert_eq!(fixture.get("/v1/echo").await.status(), 200);
    fixture.release.notify_one();
    assert_eq!(
        work_request.await.unwrap().unwrap().text().await.unwrap(),
        "done"
    );
}

/// The token of the orchestrator lists the users (S10).
#[tokio::test]
async fn an_orchestrator_acts_for_a_listed_user() {
    let fixture = fixture(Limits::default()).await;
    let scope = [Scope::Orchestrator("etl".parse().unwrap())];
    let users = vec!["ada".to_owned()];
    let etl = fixture
        .issuer
        .mint_for_orchestrator("orchestrator-etl", &scope, users, 60_000);
    let etl = etl.unwrap();
    let echo_as = async |token: &str, user: &str| {
        let request = http_client()
            .get(fixture.url("/v1/echo"))
            .bearer_auth(token);
        request.header(ACT_AS, user).send().await.unwrap()
    };
    assert_eq!(echo_as(&etl, "ada").await.text().await.unwrap(), "ada");
    assert_eq!(echo_as(&etl, "ben").await.status(), 403);
    assert_eq!(echo_as(&etl, "ada,ben").await.status(), 400);
    assert_eq!(echo_as(&fixture.token(), "ada").await.status(), 403);
    let operator = fixture
        .issuer
        .mint("olga", &[Scope::Operator], 60_000)
        .unwrap();
    assert_eq!(echo_as(&operator, "ada").await.status(), 403);
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_size_limit() {
    let fixture = fixture(Limits::default()).await;
    let mut stream = fixture.connect().await;
    let head = fixture.head("POST /v1/items");
    let head =
        format!("{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    send_text(&mut stream, &head).await;
    let (mut reader, mut writer) = stream.split();
    let flood = async {
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        while tokio::io::AsyncWriteExt::write_all(&mut writer, chunk.as_bytes())
            .await
            .is_ok()
        {}
        std::future::pending::<()>().await;
    };
    let mut response = vec![0; 12];
    tokio::select! {
        () = flood => unreachable!("this branch never ends"),
        read = tokio::time::timeout(TIMEOUT, reader.read_exact(&mut response)) => {
            read.expect("an answer in time").unwrap();
        }
    }
    assert_eq!(String::from_utf8_lossy(&response), "HTTP/1.1 413");
    let _ = read_to_end(&mut stream).await;
}
