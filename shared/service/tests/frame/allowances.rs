//! How much one caller may ask for, and what happens when there is no room.

use std::time::Duration;

use hayward_service::auth::{ACT_AS, Scope};
use hayward_service::{Code, Limits};
use reqwest::Method;
use tokio::io::AsyncReadExt as _;

use crate::world::{PATIENCE, World, plain, problem, rest, say, world};

async fn echo(world: &World, token: &str) -> reqwest::Response {
    let request = plain().get(world.url("/v1/echo")).bearer_auth(token);
    request.send().await.unwrap()
}

#[tokio::test]
async fn s28_who_asks_too_often_is_told_when_to_come_again_and_others_go_on() {
    let world = world(Limits {
        // None grows back during the test, however slow this machine is.
        requests_per_second: 1,
        ..Limits::default()
    })
    .await;
    let ben = world
        .issuer
        .mint("ben", &[Scope::Submitter], 60_000)
        .unwrap();
    let mut refused = None;
    // A new token of the same name changes nothing.
    for _ in 0..20 {
        let answer = echo(&world, &world.token()).await;
        if answer.status() != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("twenty requests within some seconds");
    assert_eq!(refused.headers()["retry-after"], "1");
    let (status, said) = problem(refused).await;
    assert_eq!((status, said.code), (429, Code::TooManyRequests));
    assert!(said.retryable && said.retry_after_ms.is_some());
    assert_eq!(echo(&world, &ben).await.status(), 200);
    let service = [Scope::Service("blocklist".to_owned())];
    let service = world.issuer.mint("blocklist", &service, 60_000).unwrap();
    for _ in 0..20 {
        assert_eq!(echo(&world, &service).await.status(), 200);
    }
}

#[tokio::test]
async fn s27_so_many_long_polls_of_one_caller_at_once() {
    let world = world(Limits {
        streams_at_once: 1,
        ..Limits::default()
    })
    .await;
    let poll = tokio::spawn(world.request(Method::GET, "/v1/poll?wait=25").send());
    world.entered.notified().await;
    let second = world.get("/v1/poll?wait=25").await;
    assert_eq!(problem(second).await.1.code, Code::TooManyRequests);
    assert_eq!(
        world.get("/v1/echo").await.status(),
        200,
        "work is another thing"
    );
    world.shutdown.begin();
    assert_eq!(poll.await.unwrap().unwrap().status(), 503);
}

#[tokio::test]
async fn f39_idle_connections_make_room_for_those_that_ask() {
    const ROOM: usize = 8;
    let world = world(Limits {
        connections: ROOM,
        ..Limits::default()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..ROOM {
        let mut stream = world.raw().await;
        // Half of them have asked once, and say no more.
        if idle.len() % 2 == 0 {
            let head = world.head("GET /v1/echo");
            say(&mut stream, &format!("{head}\r\n")).await;
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
        }
        idle.push(stream);
    }
    // Idle time is a minute: without room made, nobody would be let in before the patience ends.
    assert_eq!(world.get("/v1/echo").await.status(), 200);
    let mut closed = false;
    for stream in &mut idle {
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        closed |= tokio::time::timeout(Duration::from_secs(5), read)
            .await
            .is_ok();
    }
    assert!(closed, "somebody made room");
}

#[tokio::test]
async fn f39_who_works_is_not_closed_for_the_crowd() {
    const ROOM: usize = 4;
    let world = world(Limits {
        connections: ROOM,
        ..Limits::default()
    })
    .await;
    let work = tokio::spawn(world.request(Method::GET, "/v1/work").send());
    world.entered.notified().await;
    let mut idle = Vec::new();
    for _ in 0..ROOM - 1 {
        idle.push(world.raw().await);
    }
    assert_eq!(world.get("/v1/echo").await.status(), 200);
    world.release.notify_one();
    assert_eq!(work.await.unwrap().unwrap().text().await.unwrap(), "done");
}

#[tokio::test]
async fn s10_an_orchestrator_acts_for_a_listed_user() {
    let world = world(Limits::default()).await;
    let scope = [Scope::Orchestrator("etl".parse().unwrap())];
    let users = vec!["ada".to_owned()];
    let etl = world
        .issuer
        .mint_for_orchestrator("orchestrator-etl", &scope, users, 60_000);
    let etl = etl.unwrap();
    let ask = async |token: &str, user: &str| {
        let request = plain().get(world.url("/v1/echo")).bearer_auth(token);
        request.header(ACT_AS, user).send().await.unwrap()
    };
    assert_eq!(ask(&etl, "ada").await.text().await.unwrap(), "ada");
    assert_eq!(ask(&etl, "ben").await.status(), 403);
    assert_eq!(ask(&etl, "ada,ben").await.status(), 400);
    assert_eq!(ask(&world.token(), "ada").await.status(), 403);
    let operator = world
        .issuer
        .mint("olga", &[Scope::Operator], 60_000)
        .unwrap();
    assert_eq!(ask(&operator, "ada").await.status(), 403);
}

#[tokio::test]
async fn a_body_without_end_is_cut_where_it_is_too_long() {
    let world = world(Limits::default()).await;
    let mut stream = world.raw().await;
    let head = world.head("POST /v1/items");
    let head =
        format!("{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    say(&mut stream, &head).await;
    let (mut reader, mut writer) = stream.split();
    let flood = async {
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        while tokio::io::AsyncWriteExt::write_all(&mut writer, chunk.as_bytes())
            .await
            .is_ok()
        {}
        std::future::pending::<()>().await;
    };
    let mut answer = vec![0; 12];
    tokio::select! {
        () = flood => unreachable!("it only ends by the other branch"),
        read = tokio::time::timeout(PATIENCE, reader.read_exact(&mut answer)) => {
            read.expect("an answer in time").unwrap();
        }
    }
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");
    let _ = rest(&mut stream).await;
}
