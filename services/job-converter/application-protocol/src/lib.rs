//! The application protocol: applications, tasks and gangs as two state machines that exchange
//! messages. The crate is pure: it has no clock, no randomness and no I/O (D5).
//!
//! [`frontend`] is the machine on the side of the owner of an application. It decides when tasks
//! may be sent to the other machine. [`core`] is the machine on the side of the scheduler. It
//! decides whether an application counts as running, and when it has ended. An *ask* is the request
//! of the frontend for the space of one task.
//!
//! Both machines share only [`messages`]. Each machine changes only by `step(input, now)`. The
//! result has the transitions and effects, or the reason of a refusal. Repeating an input changes
//! nothing.
//!
//! [`partition`] holds all applications and executes the operations of their owners.
//! [`gang_admission`] and [`waiting_gangs`] decide which gang is placed. The types are stored as
//! rows without conversion. Timers are stored as absolute times, so a restart restores
//! both machines exactly.
//!
//! Queue order, preemption and the placement of single tasks belong to the planner.

pub mod application_managers;
pub mod core;
pub mod core_state;
pub mod failure;
pub mod free_capacity;
pub mod frontend;
pub mod gang_admission;
pub mod gang_policy;
pub mod ids;
pub mod messages;
pub mod metadata;
pub mod no_change_reason;
pub mod operation_results;
pub mod partition;
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
mod release_tests;
#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod test_application;
#[cfg(test)]
mod transition_table_tests;
