//! Pure logic of job-converter:
//!
//! - [`task_table`]: leases and outcomes of the tasks of a job
//! - [`task_runners`]: how many tasks each runner of a job gets
//! - [`job_usage`]: the usage of all runs of a job
//! - [`retry`]: which failures of a task are tried again
//! - [`runner_commands`]: commands to the runners of a job
//! - [`success`]: how many successes complete a job
//! - [`demand`], [`backoff`] and, for services, [`service_processors`]: the demand of work
//! - [`orchestrator_maps`]: the comparison of the maps of orchestrators
//! - [`open_work_state`]: the state of open work that its user sees
//! - [`user_numbers`]: the numbers that accounts of programs are computed from
//!
//! The crate reads no clock, row or request. Instants are milliseconds, facts are arguments, and
//! equal calls in equal order give equal states. A restart that replays the rows therefore restores
//! the state.

pub mod backoff;
pub mod demand;
pub mod job_usage;
pub mod open_work_state;
pub mod orchestrator_maps;
pub mod range_set;
pub mod retry;
pub mod runner_commands;
pub mod service_processors;
pub mod success;
pub mod task_runners;
pub mod task_table;
pub mod user_numbers;

pub use backoff::{Backoff, BackoffPolicy};
pub use demand::{DemandFields, compute_demand};
pub use job_usage::{JobUsage, RunAmounts};
pub use open_work_state::{OpenWorkState, WorkFacts};
pub use range_set::RangeSet;
pub use retry::{Failure, FailureCause, RetryPolicy};
pub use runner_commands::{NumberedCommand, RunnerCommands};
pub use success::EndedTasks;
pub use task_runners::{LeaseDemand, RunningTask, TaskRunners};
pub use task_table::{
    CancelEffect, DelayedTask, HeldTask, Leased, OutcomeSums, ReportEffect, RunResult, TaskTable,
    UnrunSpan,
};
