//! Runs schedulers over recorded workloads in simulated time, measures the result and draws charts.
//!
//! A [`Workload`] is read from a trace, and a policy decides which jobs run where. A
//! [`Ledger`](measure::Ledger) records the shares of each user over time. All decisions use
//! integers and read no clock. Random numbers come only from a given seed. Equal inputs therefore
//! give equal bytes.
//!
//! Only [`trace::open`] accesses files. All other modules take readers and return text.
//!
//! The policies are reference models for comparison (first come first served, EASY backfill, fair
//! schedulers) and the planner of real fleets.

pub mod baseline;
pub mod batch;
pub mod case;
mod cluster;
mod fair_shares;
pub mod gang;
pub mod malleable;
pub mod measure;
pub mod packing;
pub mod plots;
pub mod published_figures;
pub mod report;
pub mod splitmix;
mod svg_chart;
pub mod trace;

pub use baseline::Baseline;
pub use case::Case;
pub use trace::{Job, Node, Workload};

#[cfg(test)]
mod policy_property_tests;
