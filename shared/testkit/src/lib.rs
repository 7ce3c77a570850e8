//! Worlds for tests.
//!
//! [`database()`] gives a test a migrated database nobody else uses;
//! [`TestServer`] gives it a whole server that it may stop, kill and start again. Both are gone
//! when the test process is, however it ends. [`neighbour`] stands for a service that is not there:
//! it publishes what the test puts into each [`Feed`]. Failures here panic: a test without its
//! world has nothing to say.

mod database;
mod events;
mod feed;
mod ground;
mod wait;

pub use database::{TestDatabase, TestServer, database};
pub use events::{Event, Events};
pub use feed::{Feed, neighbour};
pub use wait::{until, until_within};
