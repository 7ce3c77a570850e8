//! Limits on requests and connections of one address without a valid token (S27).

use std::time::Duration;

use hayward_service::auth::Scope;
use hayward_service::{Code, Limits};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::fixture::{Fixture, TIMEOUT, fixture, http_client, problem_of, send_text};

fn one_per_second() -> Limits {
    Limits {
        stranger_requests_per_second: 1,
        ..Limits::default()
    }
}

async fn echo(fixture: &Fixture, token: &str) -> reqwest::Response {
    let request = http_client()
        .get(fixture.url("/v1/echo"))
        .bearer_auth(token);
    request.send().await.unwrap()
}

async fn send_without_token(fixture: &Fixture, path: &str) -> reqwest::Response {
    http_client().get(fixture.url(path)).send().await.unwrap()
}

/// Sends requests until the address has used up its limit, part of which refills meanwhile.
async fn repeat_until_429(send_one: impl AsyncFn() -> reqwest::Response) -> reqwest::Response {
    for _ in 0..100 {
        let response = send_one().await;
        if response.status() == 429 {
            return response;
        }
    }
    panic!("a hundred requests, and none was refused");
}

/// Callers with a valid token at the same address are not limited (S28).
#[tokio::test]
async fn requests_without_valid_token_are_limited_per_address() {
    let fixture = fixture(one_per_second()).await;
    let ann = fixture.token();
    assert_eq!(echo(&fixture, &ann).await.status(), 200);
    let refused = repeat_until_429(async || echo(&fixture, "no token of ours").await).await;
    assert_eq!(refused.headers()["connection"], "close");
    assert!(refused.headers().contains_key("retry-after"));
    let (status, refusal) = problem_of(refused).await;
    assert_eq!((status, refusal.code), (429, Code::TooManyRequests));
    assert!(refusal.retryable && refusal.request_id.is_some());
    // These requests have no token. One route needs none.
    for path in ["/v1/echo", "/v1/openapi.json"] {
        repeat_until_429(async || send_without_token(&fixture, path).await).await;
    }
    assert_eq!(send_without_token(&fixture, "/livez").await.status(), 200);
    // A known token continues, and so does a valid token that was never used before.
    for _ in 0..20 {
        assert_eq!(echo(&fixture, &ann).await.status(), 200);
    }
    let scopes = [Scope::Submitter];
    let ben = fixture.issuer.mint("ben", &scopes, 60_000).unwrap();
    for _ in 0..2 {
        assert_eq!(echo(&fixture, &ben).await.status(), 200);
    }
    let expired = fixture.expired_token();
    repeat_until_429(async || echo(&fixture, &expired).await).await;
}

/// Only a token that cannot be ours is refused unverified (S28).
#[tokio::test]
async fn a_plausible_token_is_verified_during_a_flood() {
    let (ours, theirs) = (
        fixture(one_per_second()).await,
        fixture(Limits::default()).await,
    );
    repeat_until_429(async || echo(&ours, "no token of ours").await).await;
    // The name is valid and the key is wrong, so only verification can detect it. The result is
    // then cached.
    let forged = theirs.token();
    assert_eq!(echo(&ours, &forged).await.status(), 401);
    repeat_until_429(async || echo(&ours, &forged).await).await;
}

/// The two limits are separate (S28).
#[tokio::test]
async fn valid_tokens_do_not_use_the_limit_of_their_address() {
    let fixture = fixture(one_per_second()).await;
    for number in 0..20 {
        let name = format!("user-{number}");
        let token = fixture.issuer.mint(&name, &[Scope::Submitter], 60_000);
        assert_eq!(echo(&fixture, &token.unwrap()).await.status(), 200);
    }
    assert_eq!(send_without_token(&fixture, "/v1/echo").await.status(), 401);
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    tokio::time::timeout(TIMEOUT, read).await.is_ok()
}

/// Reads one complete response.
async fn read_response(stream: &mut TcpStream, head: &str) {
    send_text(stream, &format!("{head}\r\n")).await;
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\nann") && !received.ends_with(b"}") {
        let read = tokio::time::timeout(TIMEOUT, stream.read_buf(&mut received));
        assert_ne!(read.await.unwrap().unwrap(), 0, "the connection was closed");
    }
}

/// Connections with a valid token stay open (S27).
#[tokio::test]
async fn unauthenticated_connections_replace_each_other_only() {
    const CONNECTIONS: usize = 4;
    let fixture = fixture(Limits {
        connections_per_address: CONNECTIONS,
        ..Limits::default()
    })
    .await;
    let mut authenticated = fixture.connect().await;
    read_response(&mut authenticated, &fixture.head("GET /v1/echo")).await;
    let mut refused = fixture.connect().await;
    read_response(&mut refused, "GET /v1/echo HTTP/1.1\r\nhost: x\r\n").await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS * 2 {
        silent.push(fixture.connect().await);
    }
    assert!(is_closed(&mut refused).await, "it is still unauthenticated");
    for stream in &mut silent[..CONNECTIONS] {
        assert!(
            is_closed(stream).await,
            "the longest idle connection is closed"
        );
    }
    // The idle time is a minute, so these connections are open because the limit permits them.
    for stream in &mut silent[CONNECTIONS..] {
        read_response(stream, &fixture.head("GET /v1/echo")).await;
    }
    read_response(&mut authenticated, &fixture.head("GET /v1/echo")).await;
}

/// Only a limited number of connections can wait that long (S27).
#[tokio::test]
async fn a_connection_without_request_is_closed_after_the_idle_time() {
    let fixture = fixture(Limits {
        idle_timeout: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    assert!(is_closed(&mut fixture.connect().await).await);
    fixture.shutdown.begin();
    assert!(fixture.server_task.await.unwrap().is_ok());
}
