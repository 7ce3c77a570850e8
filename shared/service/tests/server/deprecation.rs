//! A deprecated route over HTTP (A14).

use hayward_service::Limits;

use crate::fixture::fixture;

/// The response has the headers for deprecation (A14).
#[tokio::test]
async fn a_deprecated_route_announces_its_end() {
    let fixture = fixture(Limits::default()).await;
    let response = fixture.get("/v1/old").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["deprecation"], "@1688169599");
    assert_eq!(
        response.headers()["sunset"],
        "Sun, 30 Jun 2024 23:59:59 GMT"
    );
    let link = &response.headers()["link"];
    assert_eq!(link, "</v1/echo>; rel=\"successor-version\"");
    let new = fixture.get("/v1/echo").await;
    assert!(!new.headers().contains_key("deprecation"));
    let described = fixture.get("/v1/openapi.json").await;
    let described: serde_json::Value = described.json().await.unwrap();
    assert_eq!(described["paths"]["/v1/old"]["get"]["deprecated"], true);
}
