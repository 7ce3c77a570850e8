//! `hayward completion SHELL`

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::output::print;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The shell to complete in, as in `source <(hayward completion bash)`.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "hayward", &mut script);
    print(&String::from_utf8_lossy(&script))
}
