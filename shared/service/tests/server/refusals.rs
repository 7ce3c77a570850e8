//! Every refusal is a problem document, and unauthenticated clients are refused first.

use hayward_service::auth::{Scope, max_lifetime_ms};
use hayward_service::{Code, Limits};
use reqwest::Method;

use crate::fixture::{fixture, http_client, problem_of};

#[tokio::test]
async fn a_client_without_token_reads_only_health_and_the_description() {
    let fixture = fixture(Limits::default()).await;
    for public in ["/livez", "/readyz", "/v1/openapi.json", "/docs/"] {
        let response = http_client().get(fixture.url(public)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{public}");
    }
    for protected in [
        "/v1/status",
        "/v1/careless",
        "/v1/nowhere",
        "/docsx",
        "/v1/echo",
        "/livez/x",
    ] {
        let response = http_client()
            .get(fixture.url(protected))
            .send()
            .await
            .unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let (status, refusal) = problem_of(response).await;
        assert_eq!(
            (status, refusal.code),
            (401, Code::Unauthenticated),
            "{protected}"
        );
    }
}

#[tokio::test]
async fn wrong_and_expired_tokens_are_refused() {
    let (ours, theirs) = (
        fixture(Limits::default()).await,
        fixture(Limits::default()).await,
    );
    let send = |token: String| {
        let request = http_client().get(ours.url("/v1/echo")).bearer_auth(token);
        async { request.send().await.unwrap() }
    };
    let good = send(ours.token()).await;
    assert_eq!(
        (good.status().as_u16(), good.text().await.unwrap()),
        (200, "ann".to_owned())
    );
    let (status, refused) = problem_of(send(theirs.token()).await).await;
    assert_eq!(
        (status, &*refused.detail),
        (401, "this token is not one of ours")
    );
    let (status, refused) = problem_of(send(ours.expired_token()).await).await;
    assert_eq!((status, &*refused.detail), (401, "this token has expired"));
    let basic = http_client()
        .get(ours.url("/v1/echo"))
        .basic_auth("ann", Some("x"));
    assert_eq!(problem_of(basic.send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_problems() {
    let fixture = fixture(Limits::default()).await;
    let (status, refused) = problem_of(fixture.get("/v1/nowhere").await).await;
    assert_eq!((status, refused.code), (404, Code::NotFound));
    let response = fixture
        .request(Method::DELETE, "/v1/echo")
        .send()
        .await
        .unwrap();
    assert!(response.headers().contains_key("allow"));
    let (status, refused) = problem_of(response).await;
    assert_eq!((status, refused.code), (405, Code::MethodNotAllowed));
}

#[tokio::test]
async fn a_panic_gives_one_error_response_and_the_server_continues() {
    let fixture = fixture(Limits::default()).await;
    for path in ["/v1/panic", "/v1/broken"] {
        let (status, refused) = problem_of(fixture.get(path).await).await;
        assert_eq!((status, refused.code), (500, Code::Internal));
        assert!(!refused.to_string().contains("tea") && !refused.to_string().contains("secret"));
        assert!(
            refused.request_id.is_some(),
            "the user quotes it in a report"
        );
    }
    assert_eq!(fixture.get("/v1/echo").await.status(), 200);
}

#[tokio::test]
async fn an_invalid_body_is_refused_with_the_path_of_the_fault() {
    let fixture = fixture(Limits::default()).await;
    let post = |body: &'static str, kind: &'static str| {
        let request = fixture.request(Method::POST, "/v1/items");
        async move {
            request
                .header("content-type", kind)
                .body(body)
                .send()
                .await
                .unwrap()
        }
    };
    let good = post(
        r#"[{"size":1},{"size":2}]"#,
        "application/json; charset=utf-8",
    )
    .await;
    assert_eq!(good.text().await.unwrap(), "3");
    let (status, refused) = problem_of(post(r#"[{"size":-1}]"#, "application/json").await).await;
    assert_eq!((status, refused.code), (422, Code::Invalid));
    assert_eq!(refused.errors[0].pointer, "/0/size");
    let (status, _) = problem_of(post("[]", "text/plain").await).await;
    assert_eq!(status, 415);
    let (status, refused) = problem_of(fixture.get("/v1/poll?wait=long").await).await;
    assert_eq!(
        (status, refused.errors[0].pointer.as_str()),
        (400, "/query/wait")
    );
}

#[tokio::test]
async fn oversized_bodies_are_refused_except_on_bulk_routes() {
    let fixture = fixture(Limits::default()).await;
    let large = format!("[{}]", " ".repeat(max_body_bytes()));
    let request = fixture
        .request(Method::POST, "/v1/items")
        .header("content-type", "application/json");
    let (status, refused) = problem_of(request.body(large.clone()).send().await.unwrap()).await;
    assert_eq!((status, refused.code), (413, Code::PayloadTooLarge));
    let bulk = fixture
        .request(Method::POST, "/v1/bulk")
        .body(large.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(bulk.text().await.unwrap(), large.len().to_string());
}

fn max_body_bytes() -> usize {
    hayward_service::http::limits::MAX_BODY_BYTES
}

#[tokio::test]
async fn requests_over_the_limit_are_shed_and_long_polls_do_not_count() {
    let limits = Limits {
        in_progress: 1,
        ..Limits::default()
    };
    let fixture = fixture(limits).await;
    let first = tokio::spawn(fixture.request(Method::GET, "/v1/work").send());
    fixture.entered.notified().await;
    let response = fixture.get("/v1/echo").await;
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(problem_of(response).await.1.code, Code::Unavailable);
    assert_eq!(fixture.get("/v1/poll?wait=1").await.status(), 200);
    fixture.release.notify_one();
    assert_eq!(first.await.unwrap().unwrap().text().await.unwrap(), "done");
}

#[tokio::test]
async fn a_token_with_too_long_a_lifetime_is_refused() {
    let fixture = fixture(Limits::default()).await;
    for scope in [Scope::Submitter, Scope::Operator] {
        let max_ms = max_lifetime_ms(std::slice::from_ref(&scope));
        let mint = |lifetime_ms| {
            fixture
                .issuer
                .mint("ann", std::slice::from_ref(&scope), lifetime_ms)
        };
        let send = async |lifetime_ms| {
            let token = mint(lifetime_ms).unwrap();
            let request = http_client()
                .get(fixture.url("/v1/echo"))
                .bearer_auth(token);
            request.send().await.unwrap()
        };
        assert_eq!(send(max_ms).await.status(), 200);
        let (status, refused) = problem_of(send(max_ms + 2_000).await).await;
        assert_eq!((status, refused.code), (401, Code::Unauthenticated));
        assert!(
            refused.detail.contains("valid for longer"),
            "{}",
            refused.detail
        );
    }
}
