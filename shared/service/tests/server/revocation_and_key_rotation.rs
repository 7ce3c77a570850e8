//! Keys and tokens that change while the server runs (S8).

use std::fs;

use hayward_service::Limits;
use hayward_service::auth::Scope;

use crate::fixture::{Fixture, TIMEOUT, fixture, http_client};

async fn status(fixture: &Fixture, token: &str) -> u16 {
    let request = http_client()
        .get(fixture.url("/v1/echo"))
        .bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

/// Returns the time until the server responded with the wanted status.
async fn wait_for_status(fixture: &Fixture, token: &str, expected: u16) -> std::time::Duration {
    let began = std::time::Instant::now();
    while status(fixture, token).await != expected {
        assert!(
            began.elapsed() < TIMEOUT,
            "the status never became {expected}"
        );
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
    let elapsed = wait_for_status(&fixture, &revoked, 401).await;
    println!("revoked after {elapsed:?}");
    assert_eq!(status(&fixture, &other).await, 200);
}

/// Two announced keys are valid at a time (S8).
#[tokio::test]
async fn the_key_of_the_issuer_is_replaced_while_the_server_runs() {
    let fixture = fixture(Limits::default()).await;
    let keys = fixture.keys();
    let first = fixture.token();
    assert_eq!(status(&fixture, &first).await, 200);
    let new_key = keys.publish_new_key().unwrap();
    keys.install(&new_key).unwrap();
    // The running issuer reads its key again too.
    let issuer = keys.issuer(std::sync::Arc::new(hayward_service::SystemClock));
    let second = issuer
        .unwrap()
        .mint("ann", &[Scope::Submitter], 60_000)
        .unwrap();
    wait_for_status(&fixture, &second, 200).await;
    assert_eq!(
        status(&fixture, &first).await,
        200,
        "both keys are accepted"
    );
    // The third key replaces the first. Tokens that the first key signed become invalid, even if
    // they were verified before.
    let new_key = keys.publish_new_key().unwrap();
    keys.install(&new_key).unwrap();
    wait_for_status(&fixture, &first, 401).await;
    assert_eq!(status(&fixture, &second).await, 200);
    // A broken file does not change the keys.
    let key_file = keys.dir().join("issuer.pub.pem");
    let valid = fs::read_to_string(&key_file).unwrap();
    fs::write(&key_file, valid.replace("MCow", "x")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(status(&fixture, &second).await, 200);
}
