//! A net for large changes: a seeded program that submits work of all kinds to a real fleet of
//! separate processes, breaks everything that can break, and after each phase checks what was
//! promised.
//!
//! [`plan`] says what happens, from the seed alone; [`faults`] does it to a [`fleet`]; [`work`] is
//! what users submit and how it proves what it did; [`checks`] has one function for each promise;
//! [`run`] puts them together. Only `kill`, the network, disks and clocks are used: nothing here
//! knows how a service works inside.

pub mod checks;
pub mod faults;
pub mod fleet;
pub mod plan;
pub mod run;
pub mod work;
