//! What can be said of who asks without a look at a signature: what it costs is nearly nothing, so
//! a flood may have as much of it as it likes.

use axum::extract::Request;
use jsonwebtoken::dangerous::insecure_decode_claims;

use super::Door;
use super::caller::{among, bearer};
use super::token::Claims;

/// Where a process says whether it lives.
const ALIVE: [&str; 2] = ["/livez", "/readyz"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glance {
    /// Its token was good here before, and is now.
    Good,
    /// It asks whether this process lives, which must be answered above all when it is busy.
    Alive,
    /// Only a closer look tells: a token that was never seen here and could be one of ours, or a
    /// route whose request carries a proof of its own.
    Unsure,
    /// Without a token, or with one that is no good.
    Stranger,
}

impl Door {
    pub(crate) fn glance(&self, request: &Request) -> Glance {
        let verifier = self.verifier.as_deref();
        let token = bearer(request).ok();
        let seen = verifier.zip(token).map(|(it, token)| it.glance(token));
        match seen.unwrap_or(Glance::Stranger) {
            Glance::Stranger if ALIVE.contains(&request.uri().path()) => Glance::Alive,
            Glance::Stranger if among(&self.open, request) => Glance::Unsure,
            seen => seen,
        }
    }
}

/// Whether it says that it is one of ours; anybody may say that.
pub(super) fn claims_of(token: &str) -> Option<Claims> {
    insecure_decode_claims(token).ok()
}
