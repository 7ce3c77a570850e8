//! The node agent as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    hayward_node_agent::cli()
}
