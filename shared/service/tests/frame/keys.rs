//! Keys and tokens that change while the server runs (S8).

use std::fs;

use hayward_service::auth::{Scope, max_lifetime_ms};
use hayward_service::{Code, Limits};

use crate::fixture::{Fixture, PATIENCE, fixture, plain, problem};

async fn status(fixture: &Fixture, token: &str) -> u16 {
    let request = plain().get(fixture.url("/v1/echo")).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

/// Returns the time until the server responded with the wanted status.
async fn becomes(fixture: &Fixture, token: &str, wanted: u16) -> std::time::Duration {
    let began = std::time::Instant::now();
    while status(fixture, token).await != wanted {
        assert!(began.elapsed() < PATIENCE, "it never answered {wanted}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    began.elapsed()
}

/// The running server reads the revocations again (S8).
#[tokio::test]
async fn a_revoked_token_is_refused_within_seconds() {
    let fixture = fixture(Limits::default()).await;
    let (revoked, other) = (fixture.token(), fixture.token());
    assert_eq!(status(&fixture, &revoked).await, 200);
    let keys = fixture.keys();
    let verifier = keys.verifier(std::sync::Arc::new(hayward_service::SystemClock));
    let id = verifier.unwrap().token_id(&revoked).unwrap();
    fs::write(keys.revoked_path(), format!("{id}\n")).unwrap();
    let took = becomes(&fixture, &revoked, 401).await;
    println!("revoked after {took:?}");
    assert_eq!(status(&fixture, &other).await, 200);
}

/// Two announced keys are valid at a time (S8).
#[tokio::test]
async fn the_key_of_the_issuer_is_replaced_while_the_server_runs() {
    let fixture = fixture(Limits::default()).await;
    let keys = fixture.keys();
    let first = fixture.token();
    assert_eq!(status(&fixture, &first).await, 200);
    let another = keys.announce_another().unwrap();
    keys.install(&another).unwrap();
    // The running issuer reads its key again too.
    let issuer = keys.issuer(std::sync::Arc::new(hayward_service::SystemClock));
    let second = issuer
        .unwrap()
        .mint("ann", &[Scope::Submitter], 60_000)
        .unwrap();
    becomes(&fixture, &second, 200).await;
    assert_eq!(
        status(&fixture, &first).await,
        200,
        "both keys are accepted"
    );
    // The third key replaces the first. Tokens that the first key signed become invalid, even if
    // they were verified before.
    let another = keys.announce_another().unwrap();
    keys.install(&another).unwrap();
    becomes(&fixture, &first, 401).await;
    assert_eq!(status(&fixture, &second).await, 200);
    // A broken file does not change the keys.
    let broken = keys.dir().join("issuer.pub.pem");
    let good = fs::read_to_string(&broken).unwrap();
    fs::write(&broken, good.replace("MCow", "moth")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(status(&fixture, &second).await, 200);
}

#[tokio::test]
async fn a_token_with_too_long_a_lifetime_is_refused() {
    let fixture = fixture(Limits::default()).await;
    for scope in [Scope::Submitter, Scope::Operator] {
        let most = max_lifetime_ms(std::slice::from_ref(&scope));
        let mint = |life| {
            fixture
                .issuer
                .mint("ann", std::slice::from_ref(&scope), life)
        };
        assert_eq!(status(&fixture, &mint(most).unwrap()).await, 200);
        let long = mint(most + 2_000).unwrap();
        let request = plain().get(fixture.url("/v1/echo")).bearer_auth(long);
        let (status, refused) = problem(request.send().await.unwrap()).await;
        assert_eq!((status, refused.code), (401, Code::Unauthenticated));
        assert!(
            refused.detail.contains("good for longer"),
            "{}",
            refused.detail
        );
    }
}
