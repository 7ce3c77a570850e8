//! The HTTP server as its clients see it: over a socket, with slow, faulty and hostile clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "server/bad_input.rs"]
mod bad_input;
#[path = "server/caller_limits.rs"]
mod caller_limits;
#[path = "server/client_and_server.rs"]
mod client_and_server;
#[path = "server/connection_limit.rs"]
mod connection_limit;
#[path = "server/deprecation.rs"]
mod deprecation;
#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/impersonation.rs"]
mod impersonation;
#[path = "server/refusals.rs"]
mod refusals;
#[path = "server/revocation_and_key_rotation.rs"]
mod revocation_and_key_rotation;
#[path = "server/shutdown.rs"]
mod shutdown;
#[path = "server/slow_clients.rs"]
mod slow_clients;
#[path = "server/tls.rs"]
mod tls;
#[path = "server/unauthenticated_clients.rs"]
mod unauthenticated_clients;
