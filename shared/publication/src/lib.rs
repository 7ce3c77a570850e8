//! The one hand-off between services: a *publication* is a versioned map that a neighbour follows
//! (decision D1).
//!
//! A service changes its state in one place only, its [`committer`]: commands, news and rounds are
//! applied to the working set in memory, written in one transaction together with the entries that
//! changed, and seen by others only after that transaction committed. The revision is raised last,
//! in the row that is also the writer's lease, so a writer that lost its lease commits nothing.
//!
//! Readers are served from memory ([`publisher`], [`endpoint`]); a neighbour follows with a long
//! poll ([`follower`]) and absorbs idempotently ([`followed`]). What an answer holds is computed by
//! pure code ([`published`], [`update`]) and property-tested: equal end state, whole transactions,
//! never back, full ≡ delta.

pub mod audit;
pub mod changes;
mod clock;
pub mod committer;
pub mod cursor;
pub mod endpoint;
pub mod error;
pub mod followed;
pub mod follower;
pub mod invariants;
pub mod keyed_notify;
mod lease;
pub mod min_revision;
pub mod published;
pub mod publisher;
mod rows;
pub mod service;
pub mod stale;
pub mod status;
mod sync;
pub mod update;

pub use clock::DatabaseClock;
pub use committer::{
    Batch, Committed, Committer, DryRunSupport, Generation, Handle, Ledger, Moment, Reply, Wake,
};
pub use cursor::Cursor;
pub use error::{CommitError, WENT_BACK, WentBack};
pub use followed::{Change, Followed};
pub use keyed_notify::KeyedNotify;
pub use publisher::Publisher;
pub use update::Update;

/// The tables every publishing service has in its own schema.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");
