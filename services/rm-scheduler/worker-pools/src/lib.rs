//! Worker pools: how many workers an outside owner wishes, which there are, and what the owner has
//! to hear. Pure: no clock, no randomness, no I/O.
//!
//! The owner's list of workers is the truth; a [`Pool`] is told about it and contributes hints. It
//! asks for workers, notices dead ones early and gives back what it was told to give back. It never
//! chooses *which* registered worker to give up, unless its owner asks for just that
//! (`release` on the size call).
//!
//! It changes in three ways: the owner asks ([`asked`]), the platform tells ([`platform`]), time
//! passes ([`time`]). [`Pool::wants`] is at any moment what should be asked of the scheduler and
//! [`Pool::take_news`] what has to be told. Whoever keeps it decides nothing.
//!
//! Rules are those of the specification of worker pools, by section and number (W1–W8).

pub mod commands;
mod connect;
mod failed_start_rate;
mod idle;
pub mod owner_events;
pub mod platform;
mod pool;
pub mod time;
pub mod worker;

pub use commands::{Checked, Connected, MOST_FOREIGN, Refusal, Resized, Speaker, Wish};
pub use connect::Connect;
pub use idle::Idleness;
pub use owner_events::{Kind, News};
pub use platform::{Ending, Told};
pub use pool::{Counts, Final, Mode, Owner, Pool, Rules, Stopped};
pub use time::Now;
pub use worker::{State, Worker};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod test_platform;
#[cfg(test)]
mod worked_examples;
