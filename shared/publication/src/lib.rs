//! Publications, the only interface between services: a *publication* is a versioned map that a
//! neighbour follows.
//!
//! A service changes its state only in its [`committer`]. Commands and rounds change the working
//! set in memory. Rows and changed entries are written in one transaction, and are visible after
//! the commit. The last statement raises the revision in the row of the writer's lease, so a writer
//! without the lease commits nothing.
//!
//! Readers are served from memory ([`publisher`], [`endpoint`]). A neighbour follows with long
//! polls ([`follower`]) and applies updates idempotently ([`followed`]). Pure code computes the
//! responses ([`published`], [`update`]). Property tests prove that all readers reach the same end
//! state and see only whole transactions. Readers never go backwards, and full and delta updates
//! are equivalent.
//!
//! [`service`] starts a service.

pub mod audit;
pub mod changes;
pub mod committer;
pub mod cursor;
mod database_clock;
pub mod endpoint;
pub mod error;
pub mod followed;
pub mod follower;
pub mod invariants;
pub mod keyed_notify;
mod lease;
mod locks;
pub mod min_revision;
pub mod published;
pub mod publisher;
mod queries;
pub mod service;
pub mod stale_responses;
pub mod status;
pub mod update;

pub use committer::{
    Batch, Committed, Committer, DryRunSupport, Generation, Handle, Ledger, Moment, Reply, Wake,
};
pub use cursor::Cursor;
pub use database_clock::DatabaseClock;
pub use error::{CommitError, WENT_BACK, WentBack};
pub use followed::{Change, Followed};
pub use keyed_notify::KeyedNotify;
pub use publisher::Publisher;
pub use update::Update;

/// The tables that every publishing service has in its own schema.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");
