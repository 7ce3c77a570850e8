//! Fleets of real processes for tests: each service and each agent is a separate process on a
//! private Postgres, so that `kill -9` is real.
//!
//! A [`TestFleet`] ends everything that it started when it is dropped, even after a failed test.
//! Failures here panic.

mod collector;
mod echo;
mod island;
mod marks;
mod processes;
mod program;
mod relay;
mod test_fleet;
mod work;

pub use collector::{Collector, Measurement, Span, text_of};
pub use echo::{Availability, Echo};
pub use island::{Island, Loss};
pub use marks::Marks;
pub use program::hayward as program;
pub use test_fleet::{Agent, Pace, TestFleet};
pub use work::{
    Witness, all_right, ends, is_running, job, job_of, outcomes, reaches, reservation, service,
    submit,
};
