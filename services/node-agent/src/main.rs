//! The node agent as its own program, for its tests. The shipped program is `hayward`, which acts
//! as the agent when its name is `hayward-node-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    hayward_node_agent::cli()
}
