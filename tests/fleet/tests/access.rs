//! Access to a fleet of real processes: admitted and refused callers, the effect of abusive clients
//! on other callers, and secrets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "access/credentials.rs"]
mod credentials;
#[path = "access/overload.rs"]
mod overload;
#[path = "access/secrets.rs"]
mod secrets;
