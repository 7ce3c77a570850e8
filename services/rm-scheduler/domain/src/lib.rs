//! The planner of rm-scheduler: `schedule(snapshot) -> plan`, and `check(snapshot, plan)`.
//!
//! A [`Snapshot`] is the whole input of a decision, and a [`Plan`] is its whole result. A round can
//! therefore be stored, replayed and turned into a test. The crate reads no clock, draws no random
//! number and does no I/O. Amounts are integers, maps are ordered, and an id breaks the last tie.
//!
//! Guarantees: the same snapshot gives the same plan on every computer. If nothing changes, plans
//! become empty within three rounds, or a few more if process sizes are mixed. A leaving allocation
//! occupies its node until it is absent from the snapshot. Allocations are preempted only
//! for work that gets their space, and idle space is lent.
//!
//! `README.md` explains the modules below, and `planner.rs` explains the round. `check` shares the
//! snapshot with the planner, but no code.

pub mod check;
mod collections;
mod defragmentation;
mod departures;
mod entitlement;
mod explanation;
pub mod fleet_invariants;
pub mod forecast;
mod ids;
mod incremental;
mod index;
mod input;
mod lending;
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
pub use index::{eligibility::serving_class, largest_nodes, node_space::NodeSpace};
pub use input::{delta::SnapshotDelta, settings, snapshot, snapshot::Snapshot};
pub use output::{
    gangs, plan,
    plan::{Plan, Reason, Verdict, Verdicts},
};
pub use planner::{Decision, FairShare, Phase, Rounds};
pub use state::budget;

/// A planner returns the same plan for the same snapshot, on every computer and with any number of
/// threads.
pub trait Planner {
    fn schedule(&self, snapshot: &Snapshot) -> Plan;
}
