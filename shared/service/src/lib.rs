//! The runtime of every Hayward service: clock, problem documents, extractors, tokens, settings,
//! telemetry, a client, and a server with limits.
//!
//! This crate uses no database. Publications and SQL are in other crates. Defaults are safe: a
//! request without a token gets 401, a body over the limit 413, and a listener beyond loopback
//! needs TLS (S4).
//!
//! A service reads its [`config`], starts [`telemetry`], opens its [`auth::Keys`], describes its
//! routes with [`documented`], and passes them to a [`Server`].

pub mod auth;
pub mod client;
pub mod config;
pub mod health;
pub mod http;
pub mod invariants;
mod locks;
pub mod metrics;
pub mod problem;
pub mod runtime;
pub mod telemetry;
pub mod trace;

pub use crate::http::extract::{Json, Path, Query};
pub use crate::http::limits::Limits;
pub use crate::http::openapi::{Description, documented};
pub use crate::http::pagination::PageQuery;
pub use crate::http::pagination::cursor::Listing;
pub use crate::http::server::{Server, serve};
pub use crate::problem::{Code, FieldFault, Problem};
pub use auth::{Caller, Claims, Issuer, Keys, Principal, Scope, TokenSpec, Verifier};
pub use client::{Client, ClientError, TokenSource};
pub use config::ServerSettings;
pub use health::{FollowerStatus, Health, ServiceState, StatusSource};
pub use runtime::clock::{Clock, ManualClock, SystemClock};
pub use runtime::runtime;
pub use runtime::shutdown::Shutdown;
pub use telemetry::Telemetry;

/// The allocator of every Hayward program. The system allocator took a seventh of the CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
