//! Fleets of real processes for tests: each service and each agent is a separate process on a
//! private Postgres, so that `kill -9` is real.
//!
//! A [`TestFleet`] ends everything that it started when it is dropped, even after a failed test.
//! Failures here panic.

mod activity_log;
mod hayward_program;
mod isolated_network;
mod machine_processes;
mod tcp_downtime;
mod telemetry_collector;
mod test_fleet;
mod vendor_collector;
mod work;

pub use activity_log::{ActivityLog, Interval};
pub use hayward_program::hayward_program;
pub use isolated_network::{IsolatedNetwork, PacketLoss};
pub use tcp_downtime::{Availability, Echo};
pub use telemetry_collector::{Collector, Measurement, Span, attributes_to_text};
pub use test_fleet::{Agent, TestFleet, Timing};
pub use work::{
    TaskRunCounter, assert_all_succeeded, is_running, job, job_with_tasks, reservation, service,
    submit, task_outcomes, wait_for_end, wait_for_view,
};
