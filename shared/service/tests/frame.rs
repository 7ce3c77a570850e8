//! The HTTP server as its clients see it: over a socket, with slow, faulty and hostile clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "frame/allowances.rs"]
mod allowances;
#[path = "frame/bad_input.rs"]
mod bad_input;
#[path = "frame/fixture.rs"]
mod fixture;
#[path = "frame/keys.rs"]
mod keys;
#[path = "frame/refusals.rs"]
mod refusals;
#[path = "frame/slow.rs"]
mod slow;
#[path = "frame/strangers.rs"]
mod strangers;
#[path = "frame/talking.rs"]
mod talking;
#[path = "frame/tls.rs"]
mod tls;
