//! Environments for tests.
//!
//! [`database()`] gives a test its own migrated database. [`TestServer`] gives it a whole server
//! that it may stop, kill and start again. Both are removed when the test process ends, however it
//! ends. [`start_neighbour`] simulates a service: it publishes the entries that the test puts into
//! each [`Feed`]. Failures here panic, because a test without its environment has no result.

mod database;
mod event_stream_reader;
mod server_folder;
mod simulated_publications;
mod wait;

pub use database::{TestDatabase, TestServer, database};
pub use event_stream_reader::{Event, Events};
pub use simulated_publications::{Feed, start_neighbour};
pub use wait::{until, until_within};
