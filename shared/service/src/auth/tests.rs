//! Tests of tokens, scopes and the keys directory.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _};
use hayward_vocabulary::Timestamp;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::runtime::clock::{Clock, ManualClock};

/// A new keys directory, and a clock that moves only when the test sets it.
struct Fixture {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    keys: Keys,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::create(dir.path().join("keys")).unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_800_000_000_000)));
    Fixture { dir, clock, keys }
}

impl Fixture {
    fn issuer(&self) -> Issuer {
        self.keys.issuer(self.clock.clone()).unwrap()
    }
    fn verifier(&self) -> Verifier {
        self.keys.verifier(self.clock.clone()).unwrap()
    }
}

#[test]
fn a_scope_is_parsed_and_printed_and_an_invalid_text_is_refused() {
    for text in [
        "submitter",
        "operator",
        "viewer",
        "agent:n1",
        "service:blocklist",
        "owner:gpu",
    ] {
        assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
    }
    for bad in [
        "",
        "root",
        "agent",
        "agent:",
        "agent:../x",
        "operator:x",
        "Operator",
        "service:",
    ] {
        assert!(bad.parse::<Scope>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_valid_token_gives_its_principal_and_is_verified_once() {
    let fixture = fixture();
    let token = fixture
        .issuer()
        .mint("ann", &[Scope::Submitter], 60_000)
        .unwrap();
    let verifier = fixture.verifier();
    for _ in 0..3 {
        let principal = verifier.verify(&token).unwrap();
        assert_eq!(*principal, Principal::new("ann", [Scope::Submitter]));
    }
    assert_eq!(verifier.verified_count(), 1);
}

/// The result is cached until the keys change (S28).
#[test]
fn a_forged_token_is_verified_once_per_key() {
    let (ours, theirs) = (fixture(), fixture());
    let verifier = ours.verifier();
    let issuer = theirs.issuer();
    let forged = issuer.mint("ann", &[Scope::Operator], 60_000).unwrap();
    assert_eq!(verifier.peek(&forged), TokenPeek::Unverified);
    for _ in 0..3 {
        assert_eq!(verifier.verify(&forged), Err(Refusal::Forged));
        assert_eq!(verifier.peek(&forged), TokenPeek::Rejected);
    }
    assert_eq!(verifier.forged_count(), 1);
    let key = std::fs::read(theirs.dir.path().join("keys/issuer.pub.pem")).unwrap();
    std::fs::write(ours.dir.path().join("keys/issuer.pub.pem"), key).unwrap();
    verifier.reload_keys();
    assert_eq!(verifier.peek(&forged), TokenPeek::Unverified);
    assert!(verifier.verify(&forged).is_ok());
    assert_eq!(verifier.peek(&forged), TokenPeek::Verified);
}

/// Signature checks are limited in a flood (S28).
#[test]
fn an_expired_or_malformed_token_is_rejected_without_signature_check() {
    let fixture = fixture();
    let verifier = fixture.verifier();
    let issuer = fixture.issuer();
    let fresh = issuer.mint("ann", &[Scope::Submitter], 60_000).unwrap();
    let too_long_lived = issuer.mint("ann", &[Scope::Operator], u64::MAX / 4_000);
    assert_eq!(verifier.peek(&fresh), TokenPeek::Unverified);
    for bad in [&too_long_lived.unwrap(), "", "a.b.c", &"x".repeat(9_000)] {
        assert_eq!(verifier.peek(bad), TokenPeek::Rejected, "{bad:.20}");
    }
    verifier.verify(&fresh).unwrap();
    assert_eq!(verifier.peek(&fresh), TokenPeek::Verified);
    fixture.clock.advance_ms(60_000);
    assert_eq!(verifier.peek(&fresh), TokenPeek::Rejected);
}

/// A clock that was up to a day ahead is tolerated. Runner tokens have no such limit, so that
/// running jobs do not fail.
#[test]
fn a_token_stays_valid_after_the_clock_is_set_back() {
    let hour_ms = 3_600_000;
    let fixture = fixture();
    let job = hayward_vocabulary::WorkId::new("job-1").unwrap();
    let node = hayward_vocabulary::NodeName::new("n1").unwrap();
    let kinds = [
        Scope::Runner(job),
        Scope::Agent(node),
        Scope::Operator,
        Scope::Submitter,
        Scope::Service("blocklist".into()),
    ];
    let mint = |scope: &Scope| {
        let scopes = [scope.clone()];
        let lifetime_ms = max_lifetime_ms(&scopes);
        fixture.issuer().mint("ann", &scopes, lifetime_ms).unwrap()
    };
    let correct_time = fixture.clock.now();
    for (ahead_hours, is_accepted) in [(1, true), (20, true), (100, false)] {
        let ahead_ms = ahead_hours * hour_ms;
        fixture.clock.set(correct_time.plus_ms(ahead_ms));
        let tokens = kinds.each_ref().map(mint);
        fixture.clock.set(correct_time);
        for (scope, token) in kinds.iter().zip(tokens) {
            let result = fixture.verifier().verify(&token);
            let is_runner = matches!(scope, Scope::Runner(_));
            assert_eq!(
                result.is_ok(),
                is_accepted || is_runner,
                "{scope} {ahead_hours} {result:?}"
            );
        }
    }
}

#[test]
fn a_cached_token_still_expires() {
    let fixture = fixture();
    let token = fixture.issuer().mint("ann", &[], 60_000).unwrap();
    let verifier = fixture.verifier();
    verifier.verify(&token).unwrap();
    fixture.clock.advance_ms(60_000);
    assert_eq!(verifier.verify(&token), Err(Refusal::Expired));
}

#[test]
fn other_keys_issuers_audiences_and_algorithms_are_refused() {
    let (ours, theirs) = (fixture(), fixture());
    let verifier = ours.verifier();
    let foreign = theirs
        .issuer()
        .mint("ann", &[Scope::Operator], 60_000)
        .unwrap();
    assert_eq!(verifier.verify(&foreign), Err(Refusal::Forged));

    let now_s = ours.clock.now().unix_ms() / 1000;
    let claims = Claims {
        sub: "ann".into(),
        scopes: vec![],
        act_as: Vec::new(),
        groups: Groups::NONE,
        exp: now_s + 60,
        iat: now_s,
        jti: "1".into(),
        iss: "hayward".into(),
        aud: "hayward".into(),
    };
    verifier
        .verify(&ours.issuer().sign(&claims).unwrap())
        .unwrap();
    let wrong_issuer = Claims {
        iss: "else".into(),
        ..claims.clone()
    };
    assert_eq!(
        verifier.verify(&ours.issuer().sign(&wrong_issuer).unwrap()),
        Err(Refusal::Forged)
    );
    let wrong_audience = Claims {
        aud: "else".into(),
        ..claims.clone()
    };
    assert_eq!(
        verifier.verify(&ours.issuer().sign(&wrong_audience).unwrap()),
        Err(Refusal::Forged)
    );
    // A known attack: a symmetric signature is made with the public key.
    let public = std::fs::read(ours.dir.path().join("keys/issuer.pub.pem")).unwrap();
    let confused = hs256_token(&claims, &public);
    assert_eq!(verifier.verify(&confused), Err(Refusal::Forged));
    for junk in ["", "a.b.c", "hwd_123"] {
        assert_eq!(verifier.verify(junk), Err(Refusal::Forged));
    }
    assert_eq!(verifier.verify(&"x".repeat(100_000)), Err(Refusal::Forged));
}

/// Creates an HS256 token by hand (RFC 2104), because none of our libraries makes such a token.
fn hs256_token(claims: &Claims, secret: &[u8]) -> String {
    let encode = |part: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    let header = serde_json::json!({"typ": "JWT", "alg": "HS256"});
    let claims = serde_json::to_value(claims).unwrap();
    let message = format!("{}.{}", encode(header), encode(claims));
    let sha256 = |parts: [&[u8]; 2]| -> [u8; 32] { Sha256::digest(parts.concat()).into() };
    let mut block = [0; 64];
    block[..32].copy_from_slice(&sha256([secret, b""]));
    let pad = |mask: u8| block.map(|byte| byte ^ mask);
    let inner = sha256([&pad(0x36), message.as_bytes()]);
    let signature = BASE64_URL_SAFE_NO_PAD.encode(sha256([&pad(0x5c), &inner]));
    format!("{message}.{signature}")
}

#[test]
fn an_unknown_scope_grants_nothing_and_breaks_nothing() {
    let claims: Claims = serde_json::from_value(serde_json::json!({
        "sub": "a", "scopes": ["emperor", "viewer"], "exp": 1, "iat": 0,
        "jti": "1", "iss": "hayward", "aud": "hayward",
    }))
    .unwrap();
    assert_eq!(claims.scopes, [Scope::Viewer]);
}

fn groups(names: &[&str]) -> Groups {
    Groups::new(names.iter().map(|name| (*name).to_owned()).collect()).unwrap()
}

#[test]
fn a_token_names_the_groups_of_its_user() {
    let fixture = fixture();
    let scopes = [Scope::Submitter];
    let mint = |groups: &Groups| {
        fixture
            .issuer()
            .mint_with_groups("ann", &scopes, groups, 60_000)
    };
    let verifier = fixture.verifier();
    let token = mint(&groups(&["ops", "dev"])).unwrap();
    let principal = verifier.verify(&token).unwrap();
    assert_eq!(principal.groups.names(), ["dev", "ops"]);
    fixture.clock.advance_ms(60_000);
    assert_eq!(verifier.verify(&token), Err(Refusal::Expired));
    let principal_of_expired = verifier.principal_of(&token).unwrap();
    assert_eq!(
        (
            principal_of_expired.name.as_str(),
            principal_of_expired.groups.names()
        ),
        ("ann", principal.groups.names())
    );
    let foreign = self::fixture()
        .issuer()
        .mint("ann", &scopes, 60_000)
        .unwrap();
    assert_eq!(verifier.principal_of(&foreign).err(), Some(Refusal::Forged));
}

#[test]
fn the_largest_list_of_groups_still_fits_a_token() {
    let fixture = fixture();
    let longest_name =
        |index: usize| format!("g{index:0>width$}", width = Groups::MAX_NAME_BYTES - 1);
    let largest = Groups::new((0..Groups::MAX_COUNT).map(longest_name).collect()).unwrap();
    let token = fixture
        .issuer()
        .mint_with_groups("ann", &[], &largest, 60_000)
        .unwrap();
    assert_eq!(fixture.verifier().verify(&token).unwrap().groups, largest);
}

/// The signature is valid, but the list of groups is not.
#[test]
fn a_token_with_a_bad_list_of_groups_is_refused_and_a_token_without_a_list_has_no_groups() {
    let fixture = fixture();
    let pem = std::fs::read_to_string(fixture.dir.path().join("keys/issuer.pem")).unwrap();
    let key = ed25519_dalek::SigningKey::from_pkcs8_pem(&pem).unwrap();
    let key = jsonwebtoken::EncodingKey::from_ed_der(key.to_pkcs8_der().unwrap().as_bytes());
    let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA);
    let now_s = fixture.clock.now().unix_ms() / 1000;
    let verify = |groups: Option<serde_json::Value>| {
        let mut claims = serde_json::json!({
            "sub": "ann", "scopes": ["submitter"], "exp": now_s + 60, "iat": now_s,
            "jti": "1", "iss": "hayward", "aud": "hayward",
        });
        if let Some(groups) = groups {
            claims["groups"] = groups;
        }
        let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
        fixture.verifier().verify(&token)
    };
    let without_list = verify(None).unwrap();
    assert_eq!(*without_list, Principal::new("ann", [Scope::Submitter]));
    let with_groups = verify(Some(serde_json::json!(["dev"]))).unwrap();
    let expected = Principal::new("ann", [Scope::Submitter]).with_groups(groups(&["dev"]));
    assert_eq!(*with_groups, expected);
    let many: Vec<_> = (0..=Groups::MAX_COUNT).map(|it| format!("g{it}")).collect();
    for bad in [
        serde_json::json!(["*"]),
        serde_json::json!(["a b"]),
        serde_json::json!("dev"),
        serde_json::json!(null),
        serde_json::json!(many),
    ] {
        assert_eq!(verify(Some(bad.clone())), Err(Refusal::Forged), "{bad}");
    }
}

#[test]
fn a_token_revoked_after_its_verification_is_refused() {
    let fixture = fixture();
    let token = fixture.issuer().mint("ann", &[], 60_000).unwrap();
    fixture.verifier().verify(&token).unwrap();
    let jti = jsonwebtoken::dangerous::insecure_decode::<Claims>(&token)
        .unwrap()
        .claims
        .jti;
    std::fs::write(fixture.keys.revoked_path(), format!("{jti}\n")).unwrap();
    assert_eq!(fixture.verifier().verify(&token), Err(Refusal::Revoked));
}

#[test]
fn scopes_are_exact_and_an_empty_requirement_is_never_met() {
    let node = |name: &str| hayward_vocabulary::NodeName::new(name).unwrap();
    let agent = Principal::new("agent-n1", [Scope::Agent(node("n1"))]);
    agent.require_agent(&node("n1")).unwrap();
    assert_eq!(agent.require_agent(&node("n10")).unwrap_err().status(), 403);
    assert_eq!(
        agent
            .require(&[Scope::Operator, Scope::Viewer])
            .unwrap_err()
            .status(),
        403
    );
    assert!(
        Principal::new("op", [Scope::Operator])
            .require(&[])
            .is_err()
    );
    assert!(
        Principal::new("op", [Scope::Operator])
            .require(&[Scope::Viewer])
            .is_err()
    );
    assert!(agent.require_service().is_err());
}

#[test]
fn keys_are_private_and_reused_and_refused_if_others_can_read_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = fixture();
    let spec = TokenSpec {
        subject: "rm-scheduler",
        scopes: &[Scope::Service("rm-scheduler".into())],
        groups: Groups::NONE,
        life_ms: 60_000,
        clock: fixture.clock.clone(),
    };
    let token = fixture.keys.write_token("rm-scheduler", &spec).unwrap();
    assert!(fixture.keys.write_token("../x", &spec).is_err());
    let dir = fixture.dir.path().join("keys");
    let reopened = Keys::create(&dir).unwrap();
    assert_eq!(reopened.token("rm-scheduler").unwrap(), token);
    reopened
        .verifier(fixture.clock.clone())
        .unwrap()
        .verify(&token)
        .unwrap();

    let mode = |name: &str| {
        std::fs::metadata(dir.join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("issuer.pem") & 0o777, 0o600);
    assert_eq!(mode("tokens/rm-scheduler.token") & 0o777, 0o600);
    assert_eq!(mode("tokens") & 0o777, 0o700);
    let readable_by_all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(dir.join("issuer.pem"), readable_by_all).unwrap();
    assert!(reopened.issuer(fixture.clock.clone()).is_err());
    assert!(Keys::open(fixture.dir.path().join("nowhere")).is_err());
}
