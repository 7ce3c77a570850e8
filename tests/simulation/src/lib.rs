//! Runs schedulers over recorded workloads in simulated time, measures and draws what comes of it.
//!
//! A [`Workload`] is read from a trace, a policy decides, and a [`Ledger`](measure::Ledger) writes
//! down who had what when. Everything that decides is in integers, reads no clock and draws no
//! random number except from a seed that it was given, so equal inputs give equal bytes.
//!
//! Files are touched in one place, [`trace::open`]; all else takes readers and gives text.
//!
//! The policies here are yardsticks (first come first served, EASY backfill, models of fair
//! schedulers) and, through one file, the planner that serves real fleets.

pub mod batch;
pub mod case;
mod cluster;
mod draw;
pub mod gang;
pub mod malleable;
pub mod measure;
pub mod packing;
pub mod plots;
pub mod published;
pub mod report;
mod share;
pub mod splitmix;
pub mod trace;
pub mod yardstick;

pub use case::Case;
pub use trace::{Job, Node, Workload};
pub use yardstick::Yardstick;

#[cfg(test)]
mod properties;
