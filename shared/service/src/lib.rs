//! What every Hayward service has, whatever it decides: time and randomness, problems, extractors,
//! tokens, settings, telemetry, a client, and the frame that serves a router within limits.
//!
//! It owns no rows and speaks to nobody by itself; publications and SQL live elsewhere. The
//! defaults are the safe ones: a route without a token answers 401, a body over the limit 413, a
//! listener off loopback is refused (S1, S3, S4, S27).
//!
//! A service reads its [`config`], starts [`telemetry`], opens its [`auth::Keys`], describes its
//! routes with [`documented`], and hands them to a [`Server`].

pub mod auth;
pub mod client;
pub mod config;
pub mod health;
pub mod http;
pub mod invariants;
pub mod metrics;
pub mod runtime;
mod sync;
pub mod telemetry;
pub mod trace;

pub use crate::http::extract::{Json, Path, Query};
pub use crate::http::limits::Limits;
pub use crate::http::openapi::{Description, documented};
pub use crate::http::pagination::PageQuery;
pub use crate::http::pagination::cursor::Listing;
pub use crate::http::problem::{Code, FieldFault, Problem};
pub use crate::http::server::{Server, serve};
pub use auth::{Caller, Claims, Issuer, Keys, Principal, Scope, TokenSpec, Verifier};
pub use client::{Client, ClientError, TokenSource};
pub use config::ServerSettings;
pub use health::{FollowerStatus, Health, ServiceState, StatusSource};
pub use runtime::clock::{Clock, ManualClock, SystemClock};
pub use runtime::runtime;
pub use runtime::shutdown::Shutdown;
pub use telemetry::Telemetry;

/// The allocator of every Hayward program: a service allocates for each request and each entry,
/// and the system's allocator was a seventh of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
