//! `hayward node-agent …`: runs the node agent inside this program.
//!
//! `main` calls this module before any other setup. The supervisor of a container and its task
//! runner set up only what they need, so that their processes stay small.

use std::ffi::OsString;
use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::agents::END_WITH_PARENT;

/// First argument that selects the node agent.
pub const SUBCOMMAND: &str = "node-agent";
/// Subcommands with which the agent starts its helper processes.
const HELPER_SUBCOMMANDS: [&str; 3] = ["supervise", "run-tasks", "launch"];

/// Runs the agent with the arguments after [`SUBCOMMAND`]. A link with the name of the agent
/// selects the agent too.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let first = arguments.first().and_then(|argument| argument.to_str());
    let is_agent = !first.is_some_and(|argument| HELPER_SUBCOMMANDS.contains(&argument));
    if is_agent && std::env::var_os(END_WITH_PARENT).is_some() {
        // The kernel sends the signal when the thread that spawned this process ends. That is the
        // parent's main thread. A failure is tolerable, because `hayward up` also ends its agents
        // in other ways.
        if let Err(error) = set_pdeathsig(Signal::SIGTERM) {
            eprintln!("hayward node-agent: cannot be bound to its parent: {error}");
        }
    }
    hayward_node_agent::run(arguments.into_iter(), helper_command())
}

/// Returns the command line with which the agent starts its helper processes: this program and
/// [`SUBCOMMAND`].
fn helper_command() -> Vec<String> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    program.map_or_else(Vec::new, |program| vec![program, SUBCOMMAND.to_owned()])
}
