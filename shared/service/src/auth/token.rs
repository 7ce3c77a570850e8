//! Signs and verifies tokens: EdDSA with a fixed issuer and audience (S8).
//!
//! A signature is verified once per token and process, and then cached. Expiry and revocation are
//! checked every time.
//!
//! Keys are read again when their files change. While the file of public keys has two keys, tokens
//! of both are accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _};
use ed25519_dalek::{SigningKey, VerifyingKey};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

use super::tenants::Tenants;
use super::token_peek::{TokenPeek, claims_of};
use super::{Groups, Principal, Scope, Tenant, max_lifetime_ms, read_secret, signature};
use crate::problem::{Code, Problem};
use crate::runtime::clock::{Clock, fresh_uuid};
use crate::runtime::file_watch::Watched;

mod cache;
#[cfg(test)]
mod interleaving_tests;
mod revoked;

use cache::TokenCache;
use revoked::Revoked;

const ISSUER: &str = "hayward";
const AUDIENCE: &str = "hayward";
/// Maximum difference between the clocks of two nodes, in seconds.
const MAX_CLOCK_SKEW_S: i64 = 24 * 3600;
/// Maximum length of a token, in bytes. A longer token is refused at once.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Claims of a token. Times are seconds since 1970 (RFC 7519).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub sub: String,
    /// Scopes of the token. Unknown scopes are dropped, because they grant nothing (S4).
    #[serde(deserialize_with = "known_scopes")]
    pub scopes: Vec<Scope>,
    /// Groups of the user. Empty in older tokens.
    #[serde(default, skip_serializing_if = "Groups::is_empty")]
    pub groups: Groups,
    /// Users that an orchestrator may represent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub act_as: Vec<String>,
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

/// Signs tokens.
pub struct Issuer {
    key: Watched<EncodingKey>,
    clock: Arc<dyn Clock>,
}

impl Issuer {
    /// Creates an issuer. `private` is a file with a PKCS#8 private key of Ed25519.
    ///
    /// # Errors
    /// If the file is missing, readable by others, or has no such key.
    pub fn new(private: PathBuf, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        signature::install();
        let key = Watched::open(private, read_private_key)?;
        Ok(Self { key, clock })
    }

    /// Creates a token for `name` that expires after `lifetime_ms`.
    ///
    /// # Errors
    /// If signing fails, which never happens with a valid key.
    pub fn mint(&self, name: &str, scopes: &[Scope], lifetime_ms: u64) -> anyhow::Result<String> {
        self.mint_with_groups(name, scopes, &Groups::NONE, lifetime_ms)
    }

    /// Creates a token for a user in these groups.
    ///
    /// # Errors
    /// If signing fails, which never happens with a valid key.
    pub fn mint_with_groups(
        &self,
        name: &str,
        scopes: &[Scope],
        groups: &Groups,
        lifetime_ms: u64,
    ) -> anyhow::Result<String> {
        let mut claims = self.new_claims(name, scopes, lifetime_ms);
        claims.groups = groups.clone();
        self.sign(&claims)
    }

    /// Creates a token for an orchestrator that may act for these users.
    ///
    /// # Errors
    /// If signing fails, which never happens with a valid key.
    pub fn mint_for_orchestrator(
        &self,
        name: &str,
        scopes: &[Scope],
        users: Vec<String>,
        lifetime_ms: u64,
    ) -> anyhow::Result<String> {
        let mut claims = self.new_claims(name, scopes, lifetime_ms);
        claims.act_as = users;
        self.sign(&claims)
    }

    fn new_claims(&self, name: &str, scopes: &[Scope], lifetime_ms: u64) -> Claims {
        let now = self.clock.now();
        Claims {
            sub: name.to_owned(),
            scopes: scopes.to_vec(),
            groups: Groups::NONE,
            act_as: Vec::new(),
            exp: now.plus_ms(lifetime_ms).unix_ms() / 1000,
            iat: now.unix_ms() / 1000,
            jti: fresh_uuid().simple().to_string(),
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
        }
    }

    /// Signs exactly these claims.
    ///
    /// # Errors
    /// If signing fails, which never happens with a valid key.
    pub fn sign(&self, claims: &Claims) -> anyhow::Result<String> {
        jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), claims, &self.key.get())
            .context("cannot sign a token")
    }
}

fn read_private_key(file: &Path) -> anyhow::Result<EncodingKey> {
    let key = SigningKey::from_pkcs8_pem(&read_secret(file)?)
        .ok()
        .context("the issuer key is not an Ed25519 key in PKCS#8 PEM")?;
    let der = key
        .to_pkcs8_der()
        .ok()
        .context("the issuer key cannot be written as DER")?;
    Ok(EncodingKey::from_ed_der(der.as_bytes()))
}

const PEM_BEGIN: &str = "-----BEGIN";

/// Reads the public keys, newest first.
fn read_public_keys(file: &Path) -> anyhow::Result<Vec<DecodingKey>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let pems = text.split(PEM_BEGIN).skip(1);
    let keys = pems.map(|rest| {
        let pem = format!("{PEM_BEGIN}{}\n", rest.trim_end());
        let key = VerifyingKey::from_public_key_pem(&pem)
            .ok()
            .context("the public key of the issuer is not an Ed25519 key in PEM")?;
        Ok(DecodingKey::from_ed_der(key.as_bytes()))
    });
    let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!keys.is_empty(), "there is no key in {}", file.display());
    Ok(keys)
}

/// Returns the digest under which a token is cached. Tokens themselves are not stored, so that a
/// memory dump has no usable token.
fn digest_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// An accepted token, without its text.
pub(super) struct AcceptedToken {
    jti: String,
    exp: i64,
    keys: TrustedKeys,
}

/// Reason why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this request needs a bearer token")]
    Absent,
    #[error("this token is not one of ours")]
    Forged,
    #[error("this token has expired")]
    Expired,
    #[error("this token was made by a clock that is days ahead")]
    ClockAhead,
    #[error("this token was revoked")]
    Revoked,
    #[error("this token is valid for longer than its scopes allow")]
    LifetimeTooLong,
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(Code::Unauthenticated, refusal.to_string())
    }
}

struct VerifiedToken {
    principal: Arc<Principal>,
    exp: i64,
    iat: i64,
    jti: String,
}

impl VerifiedToken {
    fn new(claims: Claims) -> Self {
        Self {
            principal: Arc::new(Principal {
                name: claims.sub,
                scopes: claims.scopes,
                groups: claims.groups,
                act_as: claims.act_as,
                tenant: None,
                actor: None,
            }),
            exp: claims.exp,
            iat: claims.iat,
            jti: claims.jti,
        }
    }

    /// Returns whether the lifetime is too long for the scopes. A token without scopes may have any
    /// lifetime.
    fn exceeds_max_lifetime(&self) -> bool {
        !self.principal.scopes.is_empty()
            && self.exp.saturating_sub(self.iat) > self.max_lifetime_s()
    }

    /// Returns whether the clock of the issuer was far ahead. The time of signing is not checked,
    /// because a corrected clock must not invalidate earlier tokens. Runner tokens are exempt, so
    /// that running work does not fail.
    fn expires_too_late(&self, now_s: i64) -> bool {
        let scopes = &self.principal.scopes;
        let is_runner = |scope: &Scope| matches!(scope, Scope::Runner(_));
        !scopes.is_empty()
            && !scopes.iter().any(is_runner)
            && self.exp.saturating_sub(now_s) > self.max_lifetime_s() + MAX_CLOCK_SKEW_S
    }

    fn max_lifetime_s(&self) -> i64 {
        i64::try_from(max_lifetime_ms(&self.principal.scopes) / 1000).unwrap_or(i64::MAX)
    }
}

/// The public keys from one read of their file. A cached result is valid only for the keys that
/// gave it. Keys are compared by pointer, so every new read of the file invalidates the cache.
type TrustedKeys = Arc<Vec<DecodingKey>>;

/// Verifier of tokens. It needs only public keys.
pub struct Verifier {
    keys: Watched<Vec<DecodingKey>>,
    validation: Validation,
    clock: Arc<dyn Clock>,
    /// Verified tokens, with the keys that verified them.
    verified: TokenCache<(Arc<VerifiedToken>, TrustedKeys)>,
    /// Tokens with an invalid signature, with the keys that were tried.
    forged: TokenCache<TrustedKeys>,
    revoked: Revoked,
    tenants: Tenants,
}

impl Verifier {
    /// Creates a verifier. `public` is a file with Ed25519 public keys. `revoked` is a file with a
    /// `jti` per line. It may be missing.
    ///
    /// # Errors
    /// If there is no valid key, or the list is unreadable.
    pub fn new(
        public: PathBuf,
        revoked: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        signature::install();
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.algorithms = vec![Algorithm::EdDSA];
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        // `check_current` checks the expiry with our own clock.
        validation.validate_exp = false;
        Ok(Self {
            keys: Watched::open(public, read_public_keys)?,
            validation,
            clock,
            verified: TokenCache::new(),
            forged: TokenCache::new(),
            revoked: Revoked::open(revoked)?,
            tenants: Tenants::none(),
        })
    }

    /// Adds the tenants. `tenants` is a file with a tenant and a user per line. It may be missing.
    ///
    /// # Errors
    /// If the file is unreadable.
    pub fn with_tenants(mut self, tenants: PathBuf) -> anyhow::Result<Self> {
        self.tenants = Tenants::open(tenants)?;
        Ok(self)
    }

    /// Returns the current tenant of this user.
    pub fn tenant_of(&self, user: &str) -> Option<Arc<Tenant>> {
        self.tenants.tenant_of(user)
    }

    /// Verifies a token and returns its principal.
    ///
    /// # Errors
    /// With the reason if the token is not accepted now.
    pub fn verify(&self, token: &str) -> Result<Arc<Principal>, Refusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Refusal::Forged);
        }
        let digest = digest_of(token);
        let keys = self.keys.get();
        let checked = match self.find_cached(&digest, &keys) {
            Some(checked) => checked,
            None if self.is_forged(&digest, &keys) => return Err(Refusal::Forged),
            None => match self.check_signature(&keys, token) {
                Ok(checked) => {
                    let checked = Arc::new(checked);
                    self.verified.insert(digest, (Arc::clone(&checked), keys));
                    checked
                }
                Err(refusal) => {
                    self.forged.insert(digest, keys);
                    return Err(refusal);
                }
            },
        };
        self.check_current(&checked)?;
        Ok(Arc::clone(&checked.principal))
    }

    /// Returns the cached token if it was verified with these keys.
    fn find_cached(&self, digest: &[u8; 32], keys: &TrustedKeys) -> Option<Arc<VerifiedToken>> {
        let found = self.verified.get(digest)?;
        let (checked, used_keys) = &*found;
        Arc::ptr_eq(used_keys, keys).then(|| Arc::clone(checked))
    }

    /// Returns whether the signature is known to be invalid with these keys.
    fn is_forged(&self, digest: &[u8; 32], keys: &TrustedKeys) -> bool {
        let used_keys = self.forged.get(digest);
        used_keys.is_some_and(|used_keys| Arc::ptr_eq(&*used_keys, keys))
    }

    /// Returns the state of a token without checking its signature.
    pub(crate) fn peek(&self, token: &str) -> TokenPeek {
        if token.len() > MAX_TOKEN_BYTES {
            return TokenPeek::Rejected;
        }
        let (digest, keys) = (digest_of(token), self.keys.get());
        if let Some(checked) = self.find_cached(&digest, &keys) {
            let is_current = self.check_current(&checked).is_ok();
            return if is_current {
                TokenPeek::Verified
            } else {
                TokenPeek::Rejected
            };
        }
        let has_our_issuer = |claims: &Claims| claims.iss == ISSUER && claims.aud == AUDIENCE;
        let is_plausible = !self.is_forged(&digest, &keys)
            && claims_of(token)
                .filter(has_our_issuer)
                .is_some_and(|claims| self.check_current(&VerifiedToken::new(claims)).is_ok());
        if is_plausible {
            TokenPeek::Unverified
        } else {
            TokenPeek::Rejected
        }
    }

    /// Checks revocation, expiry and lifetime. Unlike the signature, these are checked every time.
    fn check_current(&self, checked: &VerifiedToken) -> Result<(), Refusal> {
        // A revoked token is reported as revoked, even after its expiry.
        if self.revoked.contains(&checked.jti) {
            return Err(Refusal::Revoked);
        }
        let now_s = self.clock.now().unix_ms() / 1000;
        if now_s >= checked.exp {
            return Err(Refusal::Expired);
        }
        if checked.expires_too_late(now_s) {
            return Err(Refusal::ClockAhead);
        }
        if checked.exceeds_max_lifetime() {
            return Err(Refusal::LifetimeTooLong);
        }
        Ok(())
    }

    /// Verifies a token and returns the data that [`Self::still_accepts`] needs while a response is
    /// streamed. The token itself is not stored.
    ///
    /// # Errors
    /// With the reason if the token is not accepted now.
    pub(super) fn accept(&self, token: &str) -> Result<AcceptedToken, Refusal> {
        let keys = self.keys.get();
        let checked = self.check_signature(&keys, token)?;
        let accepted = AcceptedToken {
            jti: checked.jti,
            exp: checked.exp,
            keys,
        };
        if self.still_accepts(&accepted) {
            return Ok(accepted);
        }
        // The token was accepted a moment ago, so revocation is the likely reason.
        Err(Refusal::Revoked)
    }

    /// Returns whether an accepted token would be accepted now.
    pub(super) fn still_accepts(&self, accepted: &AcceptedToken) -> bool {
        Arc::ptr_eq(&self.keys.get(), &accepted.keys)
            && !self.revoked.contains(&accepted.jti)
            && self.clock.now().unix_ms() / 1000 < accepted.exp
    }

    /// Returns the principal of a token with a valid signature. The token may have expired.
    ///
    /// # Errors
    /// If the signature is invalid.
    pub fn principal_of(&self, token: &str) -> Result<Arc<Principal>, Refusal> {
        Ok(self.check_signature(&self.keys.get(), token)?.principal)
    }

    /// Returns the id by which a token is revoked. Returns `None` for an invalid signature.
    pub fn token_id(&self, token: &str) -> Option<String> {
        Some(self.check_signature(&self.keys.get(), token).ok()?.jti)
    }

    /// Returns the principal of a token if the token is due for renewal: after a third of its
    /// lifetime, or if the lifetime is too long. Returns `None` for other and for revoked tokens.
    pub fn due_for_renewal(&self, token: &str) -> Option<Arc<Principal>> {
        let checked = self.check_signature(&self.keys.get(), token).ok()?;
        let renewal_s = checked.iat + (checked.exp - checked.iat) / 3;
        let due = self.clock.now().unix_ms() / 1000 >= renewal_s || checked.exceeds_max_lifetime();
        (due && !self.revoked.contains(&checked.jti)).then_some(checked.principal)
    }

    fn check_signature(&self, keys: &[DecodingKey], token: &str) -> Result<VerifiedToken, Refusal> {
        let decode = |key| jsonwebtoken::decode::<Claims>(token, key, &self.validation);
        for key in keys {
            match decode(key) {
                Ok(data) => return Ok(VerifiedToken::new(data.claims)),
                Err(error) => tracing::debug!(%error, "token refused"),
            }
        }
        Err(Refusal::Forged)
    }

    #[cfg(test)]
    pub(super) fn verified_count(&self) -> u64 {
        self.verified.insertions()
    }

    #[cfg(test)]
    pub(super) fn reload_keys(&self) {
        self.keys.check_now();
    }

    #[cfg(test)]
    pub(super) fn forged_count(&self) -> u64 {
        self.forged.insertions()
    }
}
