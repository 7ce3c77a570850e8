//! Classifies the token of a request without checking a signature. It is cheap enough for a flood.

use axum::extract::Request;
use jsonwebtoken::dangerous::insecure_decode_claims;

use super::AuthConfig;
use super::caller::{bearer, is_open_route};
use super::token::Claims;

/// Paths of health checks.
const PROBES: [&str; 2] = ["/livez", "/readyz"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenPeek {
    /// The token was verified before and is valid now.
    Verified,
    /// A health check, which must be answered also under load.
    Probe,
    /// A token that may be valid but was never verified here, or a route without a token.
    Unverified,
    /// No token, or an invalid one.
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

/// The claims of a token, unverified.
pub(super) fn claims_of(token: &str) -> Option<Claims> {
    insecure_decode_claims(token).ok()
}
