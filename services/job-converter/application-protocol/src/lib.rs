//! The application protocol: applications, tasks and gangs as two state machines that exchange
//! messages. The crate is pure: it has no clock, no randomness and no I/O (D5).
//!
//! [`frontend`] decides whether work may be sent. [`core`] decides whether an application counts as
//! running, and when it has ended. Both machines share only [`messages`]. Each machine changes only
//! by `step(input, now)`, whose result has the transitions and effects, or the reason of a refusal.
//! Repeating an input changes nothing.
//!
//! [`partition`] holds all applications and answers the operations. [`admission`] and
//! [`waiting_gangs`] decide which gang is placed. The types are also the rows: timers are instants,
//! so both machines restore exactly.
//!
//! Queue order, preemption and the placement of single asks belong to the planner.

pub mod admission;
pub mod core;
pub mod core_state;
pub mod failure;
pub mod free_capacity;
pub mod frontend;
pub mod ids;
pub mod managers;
pub mod messages;
pub mod metadata;
pub mod operation_results;
pub mod partition;
pub mod policy;
pub mod reason;
pub mod state_log;
pub mod task;
pub mod task_groups;
pub mod timers;
pub mod waiting_gangs;

#[cfg(test)]
mod deadlock_tests;
#[cfg(test)]
mod gang_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod test_application;
#[cfg(test)]
mod transition_table_tests;
