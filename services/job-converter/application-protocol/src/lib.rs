//! The application protocol: applications, tasks and gangs, and how the two sides that keep them
//! speak with each other. Pure: no clock, no randomness, no I/O (D5).
//!
//! [`frontend`] answers "may I send work yet?" and [`core`] "does it count as running, and when is
//! it over?". They share nothing but [`messages`]. Each moves by `step(input, now)` and by nothing
//! else; every input is answered, with what moved and what is to be done, or with the reason why
//! nothing was. Doing the same twice changes nothing.
//!
//! [`partition`] holds the applications of a partition and gives the operations their answers;
//! [`admission`] and [`waiting_gangs`] decide which gang goes where, all of it or none of it. Rows
//! are the types themselves, and both sides come back from them as they were: timers are instants.
//!
//! It never orders queues, preempts or places single asks: that is the planner's. Sections are
//! those of the specification of the application protocol.

pub mod admission;
pub mod answers;
pub mod core;
pub mod free_capacity;
pub mod frontend;
pub mod groups;
pub mod ids;
pub mod log;
pub mod managers;
pub mod messages;
pub mod metadata;
pub mod partition;
pub mod policy;
mod quantity;
pub mod reason;
pub mod task;
pub mod timers;
pub mod waiting_gangs;

#[cfg(test)]
mod deadlocks;
#[cfg(test)]
mod gangs;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod test_fleet;
