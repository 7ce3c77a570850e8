//! Slow clients, and shutdown of the server (S27).

use std::time::{Duration, Instant};

use hayward_service::{Code, Limits};
use reqwest::Method;
use tokio::io::AsyncReadExt as _;

use crate::fixture::{TIMEOUT, fixture, problem_of, read_to_end, send_text};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_slowly_sent_head_has_one_deadline() {
    let fixture = fixture(Limits {
        head_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut stream = fixture.connect().await;
    let began = Instant::now();
    let (mut reader, mut writer) = stream.split();
    // The client sends one byte from time to time. A deadline per byte would never expire.
    let trickle = async {
        loop {
            if tokio::io::AsyncWriteExt::write_all(&mut writer, b"G")
                .await
                .is_err()
            {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut byte = [0];
    tokio::select! {
        () = trickle => unreachable!("this branch never ends"),
        read = tokio::time::timeout(TIMEOUT, reader.read(&mut byte)) => {
            let closed = read.expect("the server never closed");
            assert!(matches!(closed, Ok(0) | Err(_)));
        }
    }
    assert!(began.elapsed() >= SHORT);
}

#[tokio::test]
async fn the_idle_timeout_is_longer_than_the_head_timeout() {
    let limits = Limits {
        head_timeout: SHORT,
        idle_timeout: SHORT * 4,
        ..Limits::default()
    };
    let fixture = fixture(limits).await;
    let mut stream = fixture.connect().await;
    let began = Instant::now();
    send_text(
        &mut stream,
        &format!("{}\r\n", fixture.head("GET /v1/echo")),
    )
    .await;
    let response = read_to_end(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(began.elapsed() >= SHORT * 4, "the idle timeout applies");
}

#[tokio::test]
async fn a_missing_body_gives_a_timeout() {
    let fixture = fixture(Limits {
        body_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let mut stream = fixture.connect().await;
    let head = fixture.head("POST /v1/items");
    send_text(
        &mut stream,
        &format!("{head}content-type: application/json\r\ncontent-length: 9\r\n\r\n["),
    )
    .await;
    let response = read_to_end(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert!(response.contains("\"code\":\"timeout\""), "{response}");
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_cancelled() {
    let fixture = fixture(Limits {
        handler_timeout: SHORT,
        ..Limits::default()
    })
    .await;
    let (status, refused) = problem_of(fixture.get("/v1/work").await).await;
    assert_eq!((status, refused.code), (503, Code::Unavailable));
    // A long poll may take longer than other requests.
    assert_eq!(fixture.get("/v1/poll?wait=1").await.status(), 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_the_response_is_disconnected() {
    // With such a long drain, only the write timeout can end the connection in time.
    let drain_timeout = TIMEOUT * 3;
    let fixture = fixture(Limits {
        write_timeout: SHORT,
        drain_timeout,
        ..Limits::default()
    })
    .await;
    let mut stream = fixture.connect().await;
    send_text(
        &mut stream,
        &format!("{}\r\n", fixture.head("GET /v1/flood")),
    )
    .await;
    // The read waits until the server has closed the connection, so that the drain has no request
    // to wait for.
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    fixture.shutdown.begin();
    tokio::time::timeout(TIMEOUT, fixture.server_task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let received = read_to_end(&mut stream).await;
    assert!(received.len() < 64 << 20, "the whole response arrived");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let fixture = fixture(Limits::default()).await;
    let mut stream = fixture.connect().await;
    let head = fixture.head("GET /v1/echo");
    send_text(
        &mut stream,
        &format!("{head}x-long: {}\r\n\r\n", "x".repeat(20 * 1024)),
    )
    .await;
    let response = read_to_end(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 431"), "{response}");
}

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
        drain_timeout: SHORT,
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
