//! Maximum lifetime of a token, by scope. A token with a longer lifetime is refused, even with a
//! valid signature.

use jsonwebtoken::dangerous::insecure_decode_claims;
use serde::Deserialize;

use super::Scope;

const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Returns the maximum lifetime of a token with only this scope.
fn max_ms(scope: &Scope) -> u64 {
    match scope {
        Scope::Operator | Scope::Auditor => 8 * HOUR_MS,
        Scope::Submitter => 12 * HOUR_MS,
        Scope::Viewer | Scope::Scraper | Scope::Agent(_) | Scope::Orchestrator(_) => DAY_MS,
        // A program of another team renews its token, and may be down for some days.
        Scope::Service(_) | Scope::Owner(_) => 7 * DAY_MS,
        // The token reaches only the tasks of one user, and must last as long as the job.
        Scope::Runner(_) => 90 * DAY_MS,
    }
}

/// Returns the maximum lifetime of a token. It is the shortest of the maxima of its scopes.
pub fn max_lifetime_ms(scopes: &[Scope]) -> u64 {
    scopes.iter().map(max_ms).min().unwrap_or(DAY_MS)
}

/// Lifetime of a token, read without verification. The holder of the token renews it by this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TokenLifetime {
    /// Time of issue, in seconds since 1970.
    iat: i64,
    /// Time of expiry, in seconds since 1970.
    exp: i64,
}

impl TokenLifetime {
    /// Returns the time of expiry, in seconds since 1970.
    pub fn expires_at_s(self) -> i64 {
        self.exp
    }

    pub fn from_token(token: &str) -> Option<Self> {
        insecure_decode_claims(token).ok()
    }

    /// Returns the time of renewal, after two thirds of the lifetime, in seconds since 1970.
    pub fn renew_at_s(self) -> i64 {
        self.iat + (self.exp - self.iat) / 3 * 2
    }
}
