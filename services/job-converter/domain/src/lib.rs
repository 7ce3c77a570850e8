//! The pure heart of job-converter. It decides three things: which task may be run by whom and
//! which of its ends counts ([`tasks`]), what a piece of work asks the scheduler for ([`demand`],
//! [`brake`], and for the processes of a service [`processors`]), and what its user is told about
//! it ([`status`]).
//!
//! It never reads a clock, a row or a request: instants come in as milliseconds, facts as
//! arguments, and the same calls in the same order always end in the same state. So a restart that
//! replays the rows stands where the process stood before.

pub mod brake;
pub mod demand;
pub mod orchestrated;
pub mod processors;
pub mod ranges;
pub mod status;
pub mod tasks;

pub use brake::{Brake, Pace};
pub use demand::{Want, convert};
pub use ranges::Ranges;
pub use status::{Facts, State, status};
pub use tasks::{Ending, Leased, Recorded, TaskBook};
