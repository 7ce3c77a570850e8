//! What may be asked, and how many may stay, from one address without a good token (S27, S28).

use std::time::Duration;

use hayward_service::auth::Scope;
use hayward_service::{Code, Limits};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::world::{PATIENCE, World, plain, problem, say, world};

fn one_a_second() -> Limits {
    Limits {
        stranger_requests_per_second: 1,
        ..Limits::default()
    }
}

async fn echo(world: &World, token: &str) -> reqwest::Response {
    let request = plain().get(world.url("/v1/echo")).bearer_auth(token);
    request.send().await.unwrap()
}

async fn open(world: &World, path: &str) -> reqwest::Response {
    plain().get(world.url(path)).send().await.unwrap()
}

/// Asks until this address has used up its allowance, of which a part grows back meanwhile.
async fn flood(ask: impl AsyncFn() -> reqwest::Response) -> reqwest::Response {
    for _ in 0..100 {
        let answer = ask().await;
        if answer.status() == 429 {
            return answer;
        }
    }
    panic!("a hundred requests, and none was told to come later");
}

#[tokio::test]
async fn s28_strangers_of_an_address_are_held_back_and_its_callers_are_not() {
    let world = world(one_a_second()).await;
    let ann = world.token();
    assert_eq!(echo(&world, &ann).await.status(), 200);
    let refused = flood(async || echo(&world, "no token of ours").await).await;
    assert_eq!(refused.headers()["connection"], "close");
    assert!(refused.headers().contains_key("retry-after"));
    let (status, said) = problem(refused).await;
    assert_eq!((status, said.code), (429, Code::TooManyRequests));
    assert!(said.retryable && said.request_id.is_some());
    // Without any token, and where none is asked for.
    for path in ["/v1/echo", "/v1/openapi.json"] {
        flood(async || open(&world, path).await).await;
    }
    assert_eq!(open(&world, "/livez").await.status(), 200);
    // Whoever was here before goes on, and so does whoever never was.
    for _ in 0..20 {
        assert_eq!(echo(&world, &ann).await.status(), 200);
    }
    let ben = [Scope::Submitter];
    let ben = world.issuer.mint("ben", &ben, 60_000).unwrap();
    for _ in 0..2 {
        assert_eq!(echo(&world, &ben).await.status(), 200);
    }
    let expired = world.token_expired();
    flood(async || echo(&world, &expired).await).await;
}

#[tokio::test]
async fn s28_what_could_be_ours_is_looked_at_also_in_a_flood() {
    let (ours, theirs) = (world(one_a_second()).await, world(Limits::default()).await);
    flood(async || echo(&ours, "no token of ours").await).await;
    // A good name, and the wrong key: only the look tells. After that it is known.
    let forged = theirs.token();
    assert_eq!(echo(&ours, &forged).await.status(), 401);
    flood(async || echo(&ours, &forged).await).await;
}

#[tokio::test]
async fn s28_good_tokens_use_up_nothing_of_what_strangers_may() {
    let world = world(one_a_second()).await;
    for number in 0..20 {
        let name = format!("user-{number}");
        let token = world.issuer.mint(&name, &[Scope::Submitter], 60_000);
        assert_eq!(echo(&world, &token.unwrap()).await.status(), 200);
    }
    assert_eq!(open(&world, "/v1/echo").await.status(), 401);
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    tokio::time::timeout(PATIENCE, read).await.is_ok()
}

/// One whole answer.
async fn answered(stream: &mut TcpStream, head: &str) {
    say(stream, &format!("{head}\r\n")).await;
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\nann") && !said.ends_with(b"}") {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut said));
        assert_ne!(read.await.unwrap().unwrap(), 0, "closed");
    }
}

#[tokio::test]
async fn s27_the_silent_make_room_for_each_other_and_not_those_who_are_known() {
    const SEATS: usize = 4;
    let world = world(Limits {
        connections_per_address: SEATS,
        ..Limits::default()
    })
    .await;
    let mut known = world.raw().await;
    answered(&mut known, &world.head("GET /v1/echo")).await;
    let mut refused = world.raw().await;
    answered(&mut refused, "GET /v1/echo HTTP/1.1\r\nhost: x\r\n").await;
    let mut silent = Vec::new();
    for _ in 0..SEATS * 2 {
        silent.push(world.raw().await);
    }
    assert!(is_closed(&mut refused).await, "it is a stranger still");
    for stream in &mut silent[..SEATS] {
        assert!(is_closed(stream).await, "the longest silent go");
    }
    // Idle time is a minute: these are here because they may be.
    for stream in &mut silent[SEATS..] {
        answered(stream, &world.head("GET /v1/echo")).await;
    }
    answered(&mut known, &world.head("GET /v1/echo")).await;
}

#[tokio::test]
async fn s27_who_never_says_a_word_is_closed_when_the_idle_time_is_over() {
    let world = world(Limits {
        idle: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    assert!(is_closed(&mut world.raw().await).await);
    world.shutdown.begin();
    assert!(world.served.await.unwrap().is_ok());
}
