//! The limit of open connections. At the limit, idle connections are closed for new ones (F39).

use std::time::Duration;

use hayward_service::Limits;
use reqwest::Method;
use tokio::io::AsyncReadExt as _;

use crate::fixture::{fixture, send_text};

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
