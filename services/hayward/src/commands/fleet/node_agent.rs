//! `hayward node-agent …`: the agent's own program inside this one.
//!
//! It must be asked before anything else is started: the supervisor of a container and its task
//! runner each make what they need themselves, and keep small.

use std::ffi::OsString;
use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::agents::END_WITH_PARENT;

/// The word this program hands over to the agent's.
pub const WORD: &str = "node-agent";
/// What the agent starts this program again for.
const INNER: [&str; 2] = ["supervise", "run-tasks"];

/// Runs the agent's program with the arguments after [`WORD`], or after the name of a link to this
/// program that is named after the agent.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let first = arguments.first().and_then(|word| word.to_str());
    let is_agent = !first.is_some_and(|word| INNER.contains(&word));
    if is_agent && std::env::var_os(END_WITH_PARENT).is_some() {
        // The parent spawned us from its main thread, which lasts as long as itself. Without this
        // the agent would outlive it, which `hayward up` cleans up after in other ways.
        if let Err(error) = set_pdeathsig(Signal::SIGTERM) {
            eprintln!("hayward node-agent: cannot be bound to its parent: {error}");
        }
    }
    hayward_node_agent::run(arguments.into_iter(), start_again())
}

/// The agent starts its own program again for each container, and here that takes two words.
fn start_again() -> Vec<String> {
    let own = std::env::current_exe()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    own.map_or_else(Vec::new, |own| vec![own, WORD.to_owned()])
}
