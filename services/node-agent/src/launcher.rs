//! Runs programs of users: their streams, scripts and starts.

pub mod last_words;
pub mod output_files;
pub mod run_plan;
pub mod script_file;
pub mod start_failure;
pub mod tee;
