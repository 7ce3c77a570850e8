//! Invalid and oversized requests over HTTP: each case has its status, and a problem document if
//! the server could read the head (A8).

use std::time::Duration;

use hayward_service::{Code, Limits, Problem};
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixture::{Fixture, TIMEOUT, fixture, problem_of, read_to_end, send_text};

/// Sends this body unchanged. Returns the refusal.
async fn post_and_get_problem(fixture: &Fixture, body: Vec<u8>) -> (u16, Problem) {
    let request = fixture
        .request(Method::POST, "/v1/labels")
        .header("content-type", "application/json");
    problem_of(request.body(body).send().await.unwrap()).await
}

#[tokio::test]
async fn a_body_of_the_wrong_type_gives_422_with_the_reason() {
    let fixture = fixture(Limits::default()).await;
    for (body, reason) in [
        (&b"[]"[..], "map"),
        (br#"{"a":-1}"#, "u32"),
        (br#"{"a":4294967296}"#, "u32"),
        (br#"{"a":1.5}"#, "u32"),
        (br#"{"a":null}"#, "null"),
    ] {
        let body_text = String::from_utf8_lossy(body).into_owned();
        let (status, refusal) = post_and_get_problem(&fixture, body.to_vec()).await;
        assert_eq!((status, refusal.code), (422, Code::Invalid), "{body_text}");
        assert!(
            refusal.to_string().contains(reason),
            "{body_text}: {refusal}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_gives_400_with_the_reason() {
    let fixture = fixture(Limits::default()).await;
    let nested_arrays = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested_objects = "{\"a\":".repeat(50_000);
    for (body, reason) in [
        (b"".to_vec(), "EOF"),
        (b"{".to_vec(), "EOF"),
        (b"{}x".to_vec(), "follows"),
        (br#"{"a":1,"a":2}"#.to_vec(), "\"a\" is twice"),
        (br#"{"a":1,"\u0061":2}"#.to_vec(), "is twice"),
        (br#"{"a":1e400}"#.to_vec(), "number"),
        (b"{\"a\xff\":1}".to_vec(), "unicode"),
        (b"\xef\xbb\xbf{}".to_vec(), "expected value"),
        (br#"{"a\ud800":1}"#.to_vec(), "hex escape"),
        (b"{\"a\x00\":1}".to_vec(), "control character"),
        (nested_arrays.into_bytes(), "nested deeper"),
        (nested_objects.into_bytes(), "nested deeper"),
    ] {
        let body_text = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let (status, refusal) = post_and_get_problem(&fixture, body).await;
        assert_eq!(
            (status, refusal.code),
            (400, Code::MalformedJson),
            "{body_text}"
        );
        assert!(
            refusal.to_string().contains(reason),
            "{body_text}: {refusal}"
        );
        assert!(refusal.request_id.is_some() && refusal.instance.is_some());
        assert!(!refusal.retryable, "the same body will not do better");
    }
    let good = fixture
        .request(Method::POST, "/v1/labels")
        .header("content-type", "application/json");
    let good = good.body(r#"{"a":1,"b":2}"#).send().await.unwrap();
    assert_eq!(good.text().await.unwrap(), "3");
}

/// Sends a request written by hand. Returns the complete response.
async fn send_raw(fixture: &Fixture, request_line: &str, headers: &str, body: &[u8]) -> String {
    let mut stream = fixture.connect().await;
    send_text(&mut stream, &fixture.head(request_line)).await;
    send_text(&mut stream, &format!("{headers}connection: close\r\n\r\n")).await;
    // The server may refuse the request and close the connection before everything is sent.
    let _ = stream.write_all(body).await;
    read_to_end(&mut stream).await
}

#[tokio::test]
async fn a_body_of_100_mb_is_refused_at_the_limit() {
    let fixture = fixture(Limits::default()).await;
    let json = "content-type: application/json\r\n";
    let announced = format!("{json}content-length: 104857600\r\n");
    let body = vec![b' '; 2 << 20];
    let response = send_raw(&fixture, "POST /v1/labels", &announced, &body).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    assert!(response.contains("application/problem+json"), "{response}");
    assert!(response.contains("payload_too_large"), "{response}");
    let chunked = format!("{json}transfer-encoding: chunked\r\n");
    let body = [b"200000\r\n", &vec![b' '; 2 << 20][..], b"\r\n"].concat();
    let response = send_raw(&fixture, "POST /v1/labels", &chunked, &body).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}

#[tokio::test]
async fn a_slow_body_gives_408() {
    let limits = Limits {
        body_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let fixture = fixture(limits).await;
    let headers = "content-type: application/json\r\ncontent-length: 10\r\n";
    let response = send_raw(&fixture, "POST /v1/labels", headers, b"{").await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("application/problem+json"), "{response}");
}

#[tokio::test]
async fn paths_and_queries_that_are_not_text_give_400() {
    let fixture = fixture(Limits::default()).await;
    for (path, pointer) in [
        ("/v1/things/%ff", "/path/name"),
        ("/v1/poll?wait=%ff", "/query/wait"),
        ("/v1/poll?wait=1&wait=2", "/query"),
        ("/v1/poll?wait=-1", "/query/wait"),
    ] {
        let (status, refusal) = problem_of(fixture.get(path).await).await;
        assert_eq!((status, refusal.code), (400, Code::BadRequest), "{path}");
        assert_eq!(refusal.errors[0].pointer, pointer, "{path}");
    }
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
        while writer.write_all(chunk.as_bytes()).await.is_ok() {}
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
