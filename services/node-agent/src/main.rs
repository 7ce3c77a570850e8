//! The node agent alone, as its own tests start it. What is shipped is `hayward`, which is the
//! agent when it is called `hayward-node-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    hayward_node_agent::cli()
}
