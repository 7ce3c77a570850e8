//! Bad input over HTTP: each case has its status and a problem document (A8).

use std::time::Duration;

use hayward_service::{Code, Limits, Problem};
use reqwest::Method;
use tokio::io::AsyncWriteExt as _;

use crate::fixture::{Fixture, fixture, problem, rest, write};

/// Sends this body unchanged. Returns the refusal.
async fn refused(fixture: &Fixture, body: Vec<u8>) -> (u16, Problem) {
    let request = fixture
        .request(Method::POST, "/v1/labels")
        .header("content-type", "application/json");
    problem(request.body(body).send().await.unwrap()).await
}

#[tokio::test]
async fn a_body_of_the_wrong_type_gives_422_with_the_reason() {
    let fixture = fixture(Limits::default()).await;
    for (body, why) in [
        (&b"[]"[..], "map"),
        (br#"{"a":-1}"#, "u32"),
        (br#"{"a":4294967296}"#, "u32"),
        (br#"{"a":1.5}"#, "u32"),
        (br#"{"a":null}"#, "null"),
    ] {
        let shown = String::from_utf8_lossy(body).into_owned();
        let (status, refusal) = refused(&fixture, body.to_vec()).await;
        assert_eq!((status, refusal.code), (422, Code::Invalid), "{shown}");
        assert!(refusal.to_string().contains(why), "{shown}: {refusal}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_gives_400_with_the_reason() {
    let fixture = fixture(Limits::default()).await;
    let bomb = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let objects = "{\"a\":".repeat(50_000);
    for (body, why) in [
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
        (bomb.into_bytes(), "nested deeper"),
        (objects.into_bytes(), "nested deeper"),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let (status, refusal) = refused(&fixture, body).await;
        assert_eq!(
            (status, refusal.code),
            (400, Code::MalformedJson),
            "{shown}"
        );
        assert!(refusal.to_string().contains(why), "{shown}: {refusal}");
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
async fn answered(fixture: &Fixture, line: &str, headers: &str, body: &[u8]) -> String {
    let mut stream = fixture.raw().await;
    write(&mut stream, &fixture.head(line)).await;
    write(&mut stream, &format!("{headers}connection: close\r\n\r\n")).await;
    // The server may refuse the request and close the connection before everything is sent.
    let _ = stream.write_all(body).await;
    rest(&mut stream).await
}

#[tokio::test]
async fn a_body_of_100_mb_is_refused_at_the_limit() {
    let fixture = fixture(Limits::default()).await;
    let json = "content-type: application/json\r\n";
    let announced = format!("{json}content-length: 104857600\r\n");
    let body = vec![b' '; 2 << 20];
    let answer = answered(&fixture, "POST /v1/labels", &announced, &body).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
    assert!(answer.contains("payload_too_large"), "{answer}");
    let chunked = format!("{json}transfer-encoding: chunked\r\n");
    let body = [b"200000\r\n", &vec![b' '; 2 << 20][..], b"\r\n"].concat();
    let answer = answered(&fixture, "POST /v1/labels", &chunked, &body).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_slow_body_gives_408() {
    let limits = Limits {
        body: Duration::from_millis(100),
        ..Limits::default()
    };
    let fixture = fixture(limits).await;
    let headers = "content-type: application/json\r\ncontent-length: 10\r\n";
    let answer = answered(&fixture, "POST /v1/labels", headers, b"{").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
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
        let (status, refusal) = problem(fixture.get(path).await).await;
        assert_eq!((status, refusal.code), (400, Code::BadRequest), "{path}");
        assert_eq!(refusal.errors[0].pointer, pointer, "{path}");
    }
}

/// The response has the headers for deprecation (A14).
#[tokio::test]
async fn a_deprecated_route_announces_its_end() {
    let fixture = fixture(Limits::default()).await;
    let answer = fixture.get("/v1/old").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["deprecation"], "@1688169599");
    assert_eq!(answer.headers()["sunset"], "Sun, 30 Jun 2024 23:59:59 GMT");
    let link = &answer.headers()["link"];
    assert_eq!(link, "</v1/echo>; rel=\"successor-version\"");
    let new = fixture.get("/v1/echo").await;
    assert!(!new.headers().contains_key("deprecation"));
    let described = fixture.get("/v1/openapi.json").await;
    let described: serde_json::Value = described.json().await.unwrap();
    assert_eq!(described["paths"]["/v1/old"]["get"]["deprecated"], true);
}
