//! The pure heart of rm-scheduler: `schedule(snapshot) -> plan`, and `check(snapshot, plan)`.
//!
//! A [`Snapshot`] holds everything a decision may depend on, a [`Plan`] everything that was
//! decided, so a round can be kept, replayed and turned into a test. Nothing here reads a clock,
//! draws a number, talks or stores; amounts are integers, maps are ordered, ties end with an id.
//!
//! A reader can rely on this:
//! * the same snapshot gives the same plan, on every machine;
//! * with no news, plans become empty and stay so: within three rounds where one order is in play
//!   (a job that ramps up is news), a few more where mixed orders split each other's room; what
//!   rounding kept from somebody is paid back later, where that is set (W-4);
//! * what leaves still occupies its node until it is absent from the snapshot, and does
//!   not satisfy its request meanwhile;
//! * room is taken back only where it serves somebody, and idle room is lent out.
//!
//! `check` is written apart from every planner: it shares the snapshot with them, and no code.

pub mod check;
mod collections;
mod defragmentation;
mod departures;
mod entitlement;
mod explanation;
pub mod forecast;
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
pub use preemption::budget;

/// Same snapshot, same plan, on every machine and any number of threads.
pub trait Planner {
    fn schedule(&self, snapshot: &Snapshot) -> Plan;
}
