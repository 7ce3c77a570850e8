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

mod admit;
mod apart;
mod apportion;
mod beside;
mod bits;
mod books;
pub mod budget;
mod cap;
pub mod check;
mod deficit;
mod defrag;
pub mod disruption;
pub mod evacuation;
mod explain;
mod fair_share;
pub mod forecast;
mod forest;
pub mod gangs;
mod how_much;
mod kept;
pub mod largest;
mod marks;
pub mod monitor;
mod names;
mod news;
mod orders;
mod overage;
mod pack;
mod packing;
pub mod plan;
mod reach;
mod register;
mod reserve;
mod rest;
mod room;
pub mod settings;
mod shares;
pub mod snapshot;
mod tell;
mod turns;
mod vacate;
mod verdict;
mod what_of;

pub use admit::served_in;
pub use check::{Fault, Part, Violation, check, prune};
pub use fair_share::{Decided, FairShare, Phase, Rounds};
pub use forecast::{Changes, Forecast, forecast};
pub use news::News;
pub use plan::{Plan, Reason, Verdict, Verdicts};
pub use room::Room;
pub use snapshot::Snapshot;

/// Same snapshot, same plan, on every machine and any number of threads.
pub trait Planner {
    fn schedule(&self, snapshot: &Snapshot) -> Plan;
}

#[cfg(test)]
mod avoids;
#[cfg(test)]
mod differences;
#[cfg(test)]
mod digests;
#[cfg(test)]
mod dimensions;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod fleets;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod world;
