//! Access to a fleet of real processes: callers that are admitted and refused, the cost of abusive
//! clients for others, and secrets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "access/credentials.rs"]
mod credentials;
#[path = "access/overload.rs"]
mod overload;
#[path = "access/secrets.rs"]
mod secrets;
