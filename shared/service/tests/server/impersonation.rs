//! An orchestrator acts for users (S10).

use hayward_service::Limits;
use hayward_service::auth::{ACT_AS, Scope};

use crate::fixture::{fixture, http_client};

/// The token of the orchestrator lists the users (S10).
#[tokio::test]
async fn an_orchestrator_acts_for_a_listed_user() {
    let fixture = fixture(Limits::default()).await;
    let scope = [Scope::Orchestrator("etl".parse().unwrap())];
    let users = vec!["ada".to_owned()];
    let etl = fixture
        .issuer
        .mint_for_orchestrator("orchestrator-etl", &scope, users, 60_000);
    let etl = etl.unwrap();
    let echo_as = async |token: &str, user: &str| {
        let request = http_client()
            .get(fixture.url("/v1/echo"))
            .bearer_auth(token);
        request.header(ACT_AS, user).send().await.unwrap()
    };
    assert_eq!(echo_as(&etl, "ada").await.text().await.unwrap(), "ada");
    assert_eq!(echo_as(&etl, "ben").await.status(), 403);
    assert_eq!(echo_as(&etl, "ada,ben").await.status(), 400);
    assert_eq!(echo_as(&fixture.token(), "ada").await.status(), 403);
    let operator = fixture
        .issuer
        .mint("olga", &[Scope::Operator], 60_000)
        .unwrap();
    assert_eq!(echo_as(&operator, "ada").await.status(), 403);
}
