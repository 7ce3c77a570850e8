//! What can be said of who asks without a look at a signature: what it costs is nearly nothing, so
//! a flood may have as much of it as it likes.

use axum::extract::Request;
use jsonwebtoken::dangerous::insecure_decode_claims;

use super::AuthConfig;
use super::caller::{bearer, is_open_route};
use super::token::Claims;

/// Where a process says whether it lives.
const PROBES: [&str; 2] = ["/livez", "/readyz"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenPeek {
    /// Its token was good here before, and is now.
    Verified,
    /// It asks whether this process lives, which must be answered above all when it is busy.
    Probe,
    /// Only a closer look tells: a token that was never seen here and could be one of ours, or a
    /// route whose request carries a proof of its own.
    Unverified,
    /// Without a token, or with one that is no good.
    Rejected,
}

impl AuthConfig {
    pub(crate) fn peek(&self, request: &Request) -> TokenPeek {
        let verifier = self.verifier.as_deref();
        let token = bearer(request).ok();
        let seen = verifier.zip(token).map(|(it, token)| it.peek(token));
        match seen.unwrap_or(TokenPeek::Rejected) {
            TokenPeek::Rejected if PROBES.contains(&request.uri().path()) => TokenPeek::Probe,
            TokenPeek::Rejected if is_open_route(&self.open, request) => TokenPeek::Unverified,
            seen => seen,
        }
    }
}

/// Whether it says that it is one of ours; anybody may say that.
pub(super) fn claims_of(token: &str) -> Option<Claims> {
    insecure_decode_claims(token).ok()
}
