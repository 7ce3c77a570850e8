//! Clients that send or read slowly (S27).

use std::time::{Duration, Instant};

use hayward_service::{Code, Limits};
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
