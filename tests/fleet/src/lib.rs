//! Fleets of real processes for tests: each service and each agent a process of its own on a
//! private Postgres, so that `kill -9` means what it says.
//!
//! A [`World`] ends everything it started when it is dropped, whatever happened to the test.
//! Failures here panic: a test without its world has nothing to say.

mod collector;
mod echo;
mod island;
mod marks;
mod processes;
mod program;
mod relay;
mod work;
mod world;

pub use collector::{Collector, Measured, Span, text_of};
pub use echo::{Echo, Seen};
pub use island::{Island, Loss};
pub use marks::Marks;
pub use program::hayward as program;
pub use work::{
    Witness, all_right, ends, is_running, job, job_of, outcomes, reaches, reservation, service,
    submit,
};
pub use world::{Agent, Pace, World};
