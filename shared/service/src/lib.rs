//! What every Hayward service has, whatever it decides: time and randomness, problems, extractors,
//! tokens, settings, telemetry, a client, and the frame that serves a router within limits.
//!
//! It owns no rows and speaks to nobody by itself; publications and SQL live elsewhere. The
//! defaults are the safe ones: a route without a token answers 401, a body over the limit 413, a
//! listener off loopback is refused (S1, S3, S4, S27).
//!
//! A service reads its [`settings`], starts [`telemetry`], opens its [`auth::Keys`], describes its
//! routes with [`openapi::documented`], and hands them to a [`frame::Frame`].

pub mod admission;
pub mod auth;
pub mod client;
pub mod clock;
pub mod cursor;
pub mod deprecation;
pub mod extract;
pub mod frame;
pub mod health;
pub mod idempotency;
pub mod invariants;
pub mod lengthy;
pub mod limits;
pub mod metrics;
pub mod once;
pub mod openapi;
pub mod origin;
pub mod paged;
pub mod problem;
pub mod refusal;
pub mod request;
pub mod runtime;
pub mod settings;
pub mod shutdown;
mod stamp;
mod sync;
pub mod telemetry;
pub mod trace;

pub use auth::{Caller, Claims, Issuer, Keys, Principal, Scope, TokenOrder, Verifier};
pub use client::{Client, ClientError, TokenSource};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cursor::Listing;
pub use extract::{Json, Path, Query};
pub use frame::{Frame, serve};
pub use health::{FollowerStanding, Health, Standing, StatusSource};
pub use lengthy::lengthy;
pub use limits::Limits;
pub use openapi::{Description, documented};
pub use paged::Paged;
pub use problem::{Code, FieldFault, Problem};
pub use runtime::runtime;
pub use settings::FrameSettings;
pub use shutdown::Shutdown;
pub use telemetry::Telemetry;

/// The allocator of every Hayward program: a service allocates for each request and each entry,
/// and the system's allocator was a seventh of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
