//! How long a token may be good, by what it allows (the table of principals, section 4).
//!
//! Nobody can shorten a token that is out but by revoking it, so a long one is refused even where
//! its signature is right: whoever made it, it was not made as we make them.

use jsonwebtoken::dangerous::insecure_decode_claims;
use serde::Deserialize;

use super::Scope;

const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

fn max_ms(scope: &Scope) -> u64 {
    match scope {
        Scope::Operator | Scope::Auditor => 8 * HOUR_MS,
        Scope::Submitter => 12 * HOUR_MS,
        Scope::Viewer | Scope::Scraper | Scope::Agent(_) | Scope::Orchestrator(_) => DAY_MS,
        // An owner is a program of others: it renews its token, and may be off for some days.
        Scope::Service(_) | Scope::Owner(_) => 7 * DAY_MS,
        // It reaches the tasks of one user alone, and has to last as long as the job.
        Scope::Runner(_) => 90 * DAY_MS,
    }
}

/// As long as the most careful of its scopes allows.
pub fn max_lifetime_ms(scopes: &[Scope]) -> u64 {
    scopes.iter().map(max_ms).min().unwrap_or(DAY_MS)
}

/// From when to when a token is good, as it says itself: for its owner, who trusts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TokenLifetime {
    iat: i64,
    exp: i64,
}

impl TokenLifetime {
    /// When it ends, in seconds since 1970.
    pub fn expires_at_s(self) -> i64 {
        self.exp
    }

    pub fn from_token(token: &str) -> Option<Self> {
        insecure_decode_claims(token).ok()
    }

    /// When its owner asks for another: at two thirds, in seconds since 1970.
    pub fn renew_at_s(self) -> i64 {
        self.iat + (self.exp - self.iat) / 3 * 2
    }
}
