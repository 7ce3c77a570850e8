//! Locked doors of a fleet of real processes: who comes in and who does not, what a crowd of
//! strangers costs the others, and what is never said aloud.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "doors/credentials.rs"]
mod credentials;
#[path = "doors/crowds.rs"]
mod crowds;
#[path = "doors/secrets.rs"]
mod secrets;
