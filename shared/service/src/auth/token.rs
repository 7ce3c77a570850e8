//! Making and checking tokens: EdDSA over a fixed issuer and audience (S8).
//!
//! A signature is checked once per token and process; what was learned is kept in a bounded cache.
//! Time and revocation are not cached: they are looked at each time.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _};
use ed25519_dalek::{SigningKey, VerifyingKey};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Groups, Principal, Scope};
use crate::clock::{Clock, fresh_uuid};
use crate::problem::{Code, Problem};

mod revoked;
mod seen;

use revoked::Revoked;
use seen::Seen;

const ISSUER: &str = "hayward";
const AUDIENCE: &str = "hayward";
/// Clocks of two machines may differ this much before a fresh token is refused, in seconds.
const SKEW_S: i64 = 300;
/// A token longer than this is not looked at: it would not fit a header of ours anyway.
const LONGEST: usize = 8 * 1024;

/// What a token says. Times are seconds since 1970, as RFC 7519 has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub sub: String,
    /// Scopes of a newer version than ours are dropped: they grant nothing here (S4).
    #[serde(deserialize_with = "known_scopes")]
    pub scopes: Vec<Scope>,
    /// Tokens of before carry none.
    #[serde(default, skip_serializing_if = "Groups::is_empty")]
    pub groups: Groups,
    pub exp: i64,
    pub iat: i64,
    pub jti: String,
    pub iss: String,
    pub aud: String,
}

fn known_scopes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Scope>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    Ok(texts
        .into_iter()
        .filter_map(|text| text.parse().ok())
        .collect())
}

/// Signs tokens. Only who prepares a fleet, and job-converter for runners, holds one.
pub struct Issuer {
    key: EncodingKey,
    clock: Arc<dyn Clock>,
}

impl Issuer {
    /// # Errors
    /// When the text is not a PKCS#8 private key of Ed25519.
    pub fn new(private_pem: &str, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let key = SigningKey::from_pkcs8_pem(private_pem)
            .ok()
            .context("the issuer key is not an Ed25519 key in PKCS#8 PEM")?;
        let der = key
            .to_pkcs8_der()
            .ok()
            .context("the issuer key cannot be written as DER")?;
        Ok(Self {
            key: EncodingKey::from_ed_der(der.as_bytes()),
            clock,
        })
    }

    /// A token for `name`, good for `life_ms` from now.
    ///
    /// # Errors
    /// When signing fails, which a good key never does.
    pub fn mint(&self, name: &str, scopes: &[Scope], life_ms: u64) -> anyhow::Result<String> {
        self.mint_in(name, scopes, &Groups::NONE, life_ms)
    }

    /// The same, for somebody who is in these groups.
    ///
    /// # Errors
    /// When signing fails, which a good key never does.
    pub fn mint_in(
        &self,
        name: &str,
        scopes: &[Scope],
        groups: &Groups,
        life_ms: u64,
    ) -> anyhow::Result<String> {
        let now = self.clock.now();
        self.sign(&Claims {
            sub: name.to_owned(),
            scopes: scopes.to_vec(),
            groups: groups.clone(),
            exp: now.plus_ms(life_ms).unix_ms() / 1000,
            iat: now.unix_ms() / 1000,
            jti: fresh_uuid().simple().to_string(),
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
        })
    }

    /// Signs exactly these claims.
    ///
    /// # Errors
    /// When signing fails, which a good key never does.
    pub fn sign(&self, claims: &Claims) -> anyhow::Result<String> {
        jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), claims, &self.key)
            .context("cannot sign a token")
    }
}

/// Why a token was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this request needs a bearer token")]
    Absent,
    #[error("this token is not one of ours")]
    Forged,
    #[error("this token has expired")]
    Expired,
    #[error("this token is from the future")]
    Early,
    #[error("this token was revoked")]
    Revoked,
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(Code::Unauthenticated, refusal.to_string())
    }
}

struct Checked {
    principal: Arc<Principal>,
    exp: i64,
    iat: i64,
    jti: String,
}

/// Checks tokens with the public key alone.
pub struct Verifier {
    key: DecodingKey,
    rules: Validation,
    clock: Arc<dyn Clock>,
    seen: Seen<Checked>,
    revoked: Revoked,
}

impl Verifier {
    /// `revoked` is a file with one `jti` a line; it need not exist.
    ///
    /// # Errors
    /// When the key is no Ed25519 public key, or the list is there and cannot be read.
    pub fn new(
        public_pem: &str,
        revoked: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let key = VerifyingKey::from_public_key_pem(public_pem)
            .ok()
            .context("the public key of the issuer is not an Ed25519 key in PEM")?;
        let mut rules = Validation::new(Algorithm::EdDSA);
        rules.algorithms = vec![Algorithm::EdDSA];
        rules.set_issuer(&[ISSUER]);
        rules.set_audience(&[AUDIENCE]);
        rules.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        // Expiry is checked below with our own clock, for fresh and for cached tokens alike.
        rules.validate_exp = false;
        Ok(Self {
            key: DecodingKey::from_ed_der(key.as_bytes()),
            rules,
            clock,
            seen: Seen::new(),
            revoked: Revoked::open(revoked)?,
        })
    }

    /// # Errors
    /// With the reason, when the token is not accepted now.
    pub fn verify(&self, token: &str) -> Result<Arc<Principal>, Refusal> {
        if token.len() > LONGEST {
            return Err(Refusal::Forged);
        }
        // The token itself is not kept, so that a dump of this process holds nothing to replay.
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let checked = match self.seen.get(&digest) {
            Some(checked) => checked,
            None => self.seen.put(digest, self.check_signature(token)?),
        };
        let now_s = self.clock.now().unix_ms() / 1000;
        if now_s >= checked.exp {
            return Err(Refusal::Expired);
        }
        if checked.iat > now_s + SKEW_S {
            return Err(Refusal::Early);
        }
        if self.revoked.contains(&checked.jti) {
            return Err(Refusal::Revoked);
        }
        Ok(Arc::clone(&checked.principal))
    }

    /// Whom a token of ours names, also one that has expired.
    ///
    /// # Errors
    /// When it is none of ours.
    pub fn named_by(&self, token: &str) -> Result<Arc<Principal>, Refusal> {
        Ok(self.check_signature(token)?.principal)
    }

    fn check_signature(&self, token: &str) -> Result<Checked, Refusal> {
        let claims = jsonwebtoken::decode::<Claims>(token, &self.key, &self.rules)
            .map_err(|error| {
                tracing::debug!(%error, "token refused");
                Refusal::Forged
            })?
            .claims;
        Ok(Checked {
            principal: Arc::new(Principal {
                name: claims.sub,
                scopes: claims.scopes,
                groups: claims.groups,
            }),
            exp: claims.exp,
            iat: claims.iat,
            jti: claims.jti,
        })
    }

    #[cfg(test)]
    pub(super) fn signatures_checked(&self) -> u64 {
        self.seen.misses()
    }
}
