//! The HTTP server as its clients see it: over a socket, with slow, faulty and hostile clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server/bad_input.rs"]
mod bad_input;
#[path = "server/caller_limits.rs"]
mod caller_limits;
#[path = "server/client_and_server.rs"]
mod client_and_server;
#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/key_rotation.rs"]
mod key_rotation;
#[path = "server/refusals.rs"]
mod refusals;
#[path = "server/slow_clients.rs"]
mod slow_clients;
#[path = "server/tls.rs"]
mod tls;
#[path = "server/unauthenticated_clients.rs"]
mod unauthenticated_clients;
