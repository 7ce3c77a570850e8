//! Environments for tests.
//!
//! [`database()`] gives a test its own migrated database. [`TestServer`] gives it a whole server
//! that it may stop, kill and start again. Both are removed when the test process ends, however it
//! ends. [`neighbour`] simulates a service: it publishes what the test puts into each [`Feed`].
//! Failures here panic, because a test without its environment has no result.

mod database;
mod events;
mod feed;
mod ground;
mod wait;

pub use database::{TestDatabase, TestServer, database};
pub use events::{Event, Events};
pub use feed::{Feed, neighbour};
pub use wait::{until, until_within};
