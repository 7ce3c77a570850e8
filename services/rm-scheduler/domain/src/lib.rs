//! The planner of rm-scheduler: `schedule(snapshot) -> plan`, and `check(snapshot, plan)`.
//!
//! A [`Snapshot`] holds everything a decision may depend on, and a [`Plan`] everything that was
//! decided. A round can therefore be stored, replayed and turned into a test. The crate reads no
//! clock, draws no random number and does no I/O. Amounts are integers, maps are ordered, and ties
//! end with an id.
//!
//! Guarantees: the same snapshot gives the same plan on every machine. Without changes, plans
//! become empty within three rounds, or a few more if process sizes are mixed. An allocation that
//! leaves occupies its node until the snapshot no longer has it. Allocations are preempted
//! only for work that gets their space, and idle space is lent.
//!
//! The modules below are explained in `README.md`, and the round in `planner.rs`. `check` shares
//! the snapshot with the planner, and no code.

pub mod check;
mod collections;
mod defragmentation;
mod departures;
mod entitlement;
mod explanation;
pub mod forecast;
mod ids;
mod incremental;
mod index;
mod input;
mod lending;
pub mod monitor;
mod output;
mod placement;
mod planner;
mod preemption;
mod report;
mod state;
#[cfg(test)]
mod tests;

pub use check::{Fault, Part, Violation, check, prune};
pub use departures::{disruption, evacuation};
pub use forecast::{Changes, Forecast, forecast};
pub use index::{eligibility::served_in, largest_nodes as largest, node_space::NodeSpace};
pub use input::{delta::SnapshotDelta, settings, snapshot, snapshot::Snapshot};
pub use output::{
    gangs, plan,
    plan::{Plan, Reason, Verdict, Verdicts},
};
pub use planner::{Decided, FairShare, Phase, Rounds};
pub use state::budget;

/// Returns the same plan for the same snapshot, on every machine and with any number of threads.
pub trait Planner {
    fn schedule(&self, snapshot: &Snapshot) -> Plan;
}
