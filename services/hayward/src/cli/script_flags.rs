//! Parses the command line again, with the flags of a script that is submitted.

use std::ffi::OsString;

use anyhow::bail;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _};

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
    check_flags(flags)?;
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

/// Refuses lines that are more than flags of `submit`, because a further word would become part of
/// the user's command line.
fn check_flags(flags: &[String]) -> anyhow::Result<()> {
    const PROGRAM: &str = "program";
    let command = submit::Arguments::augment_args(clap::Command::new("#HAYWARD"));
    let words = ["#HAYWARD"]
        .into_iter()
        .chain(flags.iter().map(String::as_str));
    let matches = command
        .disable_help_flag(true)
        .args_override_self(true)
        .try_get_matches_from(words.chain(["--", PROGRAM]))?;
    let parsed = submit::Arguments::from_arg_matches(&matches)?;
    if let Some(word) = parsed.command.first().filter(|word| *word != PROGRAM) {
        bail!("{word:?} is no flag: the command belongs to the command line");
    }
    if parsed.script.is_some() || parsed.file.is_some() || parsed.gang.is_some() {
        bail!("--script, --file and --gang belong to the command line");
    }
    Ok(())
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
    fn words_of_a_script_that_are_no_flags_of_submit_are_refused_by_name() {
        let cases: [(&[&str], &str); 6] = [
            (&["--tiem", "1h"], "--tiem"),
            (&["--memory", "2G", "x"], "x"),
            (&["--name"], "--name"),
            (&["--script", "other.sh"], "--script"),
            (&["--", "x"], "x"),
            (&["--operator"], "--operator"),
        ];
        for (flags, named) in cases {
            let error = parse(flags, &["hayward", "submit", "--time", "2h", "a.sh"]).unwrap_err();
            assert!(error.to_string().contains(named), "{flags:?}: {error}");
        }
    }
}
