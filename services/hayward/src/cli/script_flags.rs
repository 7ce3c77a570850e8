//! Parses the command line again, with the flags of a script that is submitted.

use std::ffi::OsString;

use anyhow::bail;
use clap::{CommandFactory as _, FromArgMatches as _};

use super::{Cli, Command, FleetCommand};
use crate::commands::work::submit;

/// Name of the subcommand after which the flags of a script are inserted.
const SUBMIT: &str = "submit";

/// Parses the command line of this process again, with the flags of a script.
pub fn parse_submit_again(flags: &[String]) -> anyhow::Result<submit::Arguments> {
    let words: Vec<OsString> = std::env::args_os().collect();
    parse_submit(flags, &words)
}

/// Parses a command line with more flags, which come first, so that the command line wins.
fn parse_submit(flags: &[String], words: &[OsString]) -> anyhow::Result<submit::Arguments> {
    let Some(position) = words.iter().position(|word| word == SUBMIT) else {
        bail!("flags in scripts need `hayward {SUBMIT}`");
    };
    let (before, after) = words.split_at(position + 1);
    let flags = flags.iter().map(OsString::from);
    let before = before.iter().cloned();
    let all = before.chain(flags).chain(after.iter().cloned());
    let command = Cli::command().mut_subcommand(SUBMIT, |submit| submit.args_override_self(true));
    let matches = command.try_get_matches_from(all)?;
    if let Command::Fleet(command) = Cli::from_arg_matches(&matches)?.command
        && let FleetCommand::Submit(submit) = *command
    {
        return Ok(submit.arguments);
    }
    bail!("only flags of `hayward {SUBMIT}` may be in a script")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str], words: &[&str]) -> anyhow::Result<submit::Arguments> {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        parse_submit(&flags, &words)
    }

    #[test]
    fn the_command_line_wins_over_flags_of_the_script() {
        let flags = ["--time", "1h", "--name", "two words", "--env", "A=1"];
        let words = [
            "hayward", "submit", "--time", "2h", "--env", "B=2", "a.sh", "x",
        ];
        let arguments = parse(&flags, &words).unwrap();
        assert_eq!(arguments.run.time, Some(7_200_000));
        assert_eq!(arguments.common.name.as_deref(), Some("two words"));
        assert_eq!(arguments.common.program.environment.len(), 2);
        assert_eq!(arguments.command, ["a.sh", "x"]);
    }

    #[test]
    fn an_unknown_flag_of_a_script_is_refused_by_name() {
        let error = parse(&["--tiem", "1h"], &["hayward", "submit", "a.sh"]).unwrap_err();
        assert!(error.to_string().contains("--tiem"), "{error}");
    }
}
