//! `hayward completion SHELL`: prints a completion script for a shell.

use crate::output::print;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The shell to complete in, as in `source <(hayward completion bash)`.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the completions of this command line.
pub fn run(arguments: &Arguments, mut command_line: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command_line, "hayward", &mut script);
    print(&String::from_utf8_lossy(&script))
}
