//! Flags for the runs of tasks: time limit, signals and output.

use std::path::{Path, PathBuf};

use hayward_job_converter_api::signals::TaskSignal;
use hayward_job_converter_api::submission::{
    FileMode, JobSubmission, OutputSubmission, StdinSubmission,
};

use super::read_text;
use crate::value_parsers;

/// Group of the flags that name files, one of which [`RunFlags::append`] needs.
const FILES: &str = "files_of_output";

#[derive(Debug, Clone, Default, clap::Args)]
#[command(group = clap::ArgGroup::new(FILES).args(["output", "error"]).multiple(true))]
pub struct RunFlags {
    /// Time after which a run of a task is stopped, as 90m, 1:30:00 or 2-12:00:00. Default: no
    /// limit.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit)]
    pub time: Option<u64>,
    /// Time before the limit at which a signal is sent once, as 5m or 5m:USR2. Default signal:
    /// USR1.
    #[arg(long, value_name = "TIME[:SIGNAL]", requires = "time", value_parser = parse_warning)]
    pub warn: Option<Warning>,
    /// Signal that asks a task to end: TERM, INT, HUP, QUIT, USR1, USR2, ALRM or CONT. Default
    /// TERM.
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<TaskSignal>,
    /// Time from the stop signal to SIGKILL, at most 10m. Default: that of the fleet.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub grace: Option<u64>,
    /// File on the node for the output of each task, as '/data/out/{task:03}.txt'. A relative path
    /// is below --cwd, else below the current directory. Default: the last output of each task is
    /// stored.
    #[arg(long, value_name = "PATTERN")]
    pub output: Option<String>,
    /// File for the errors of each task. Default: they go where the output goes.
    #[arg(long, value_name = "PATTERN")]
    pub error: Option<String>,
    /// Add to files of output that exist. Default: each run empties its files.
    #[arg(long, requires = FILES)]
    pub append: bool,
    /// Make directories of output that are missing.
    #[arg(long)]
    pub make_directories: bool,
    /// Store no output.
    #[arg(long, conflicts_with = "output")]
    pub discard_output: bool,
    /// File of this computer that each task reads as standard input; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "stdin_file")]
    pub stdin: Option<PathBuf>,
    /// File on the node that each task reads as standard input, as '/data/in/{task}.txt'.
    #[arg(long, value_name = "PATTERN")]
    pub stdin_file: Option<String>,
}

/// Time before the limit, and signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warning {
    before_ms: u64,
    signal: Option<TaskSignal>,
}

impl RunFlags {
    /// Fills in the fields of these flags.
    pub fn fill(&self, job: &mut JobSubmission) -> anyhow::Result<()> {
        job.time_limit_ms = self.time;
        job.warn_before_ms = self.warn.map(|warning| warning.before_ms);
        job.warn_signal = self.warn.and_then(|warning| warning.signal);
        job.stop_signal = self.stop_signal;
        job.stop_grace_ms = self.grace;
        // The directory of a process is removed with it, so output does not go there by default.
        let base = match job.working_directory {
            Some(_) => None,
            None => std::env::current_dir().ok(),
        };
        let resolve = |pattern: &String| resolve(pattern, base.as_deref());
        let discard = self.discard_output.then(|| "discard".to_owned());
        let output = OutputSubmission {
            stdout: self.output.as_ref().map(resolve).or(discard),
            stderr: self.error.as_ref().map(resolve),
            mode: if self.append {
                FileMode::Append
            } else {
                FileMode::Truncate
            },
            make_directories: self.make_directories,
        };
        job.output = (output != OutputSubmission::default()).then_some(output);
        let file = self.stdin_file.as_ref();
        let file = file.map(|path| StdinSubmission::File(resolve(path)));
        let text = self.stdin.as_deref().map(read_text).transpose()?;
        job.stdin = file.or(text.map(StdinSubmission::Text));
        Ok(())
    }
}

/// Returns the pattern below a directory of this computer. Words that are no paths stay.
fn resolve(pattern: &str, base: Option<&Path>) -> String {
    match base {
        Some(base) if !matches!(pattern, "keep" | "discard" | "merge") => {
            base.join(pattern).display().to_string()
        }
        _ => pattern.to_owned(),
    }
}

fn parse_duration(text: &str) -> Result<u64, String> {
    value_parsers::parse_duration_ms(text).map_err(|error| error.to_string())
}

fn parse_warning(text: &str) -> Result<Warning, String> {
    let (time, signal) = match text.split_once(':') {
        Some((time, signal)) => (time, Some(signal.parse()?)),
        None => (text, None),
    };
    Ok(Warning {
        before_ms: parse_duration(time)?,
        signal,
    })
}

/// Parses a duration with units, or `H:MM:SS` or `D-HH:MM:SS`. Slurm reads `M:SS` and plain minutes
/// too. They are refused, because others read them differently.
fn parse_time_limit(text: &str) -> Result<u64, String> {
    if !text.contains(':') {
        return parse_duration(text);
    }
    let invalid = || format!("{text:?} is no time: write 90m, 1:30:00 or 2-12:00:00");
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (Some(parse_digits(days).ok_or_else(invalid)?), time),
        None => (None, text),
    };
    let parts: Vec<&str> = time.split(':').collect();
    let [hours, minutes, seconds] = parts.as_slice() else {
        if parts.len() == 2 && days.is_none() {
            return Err(format!(
                "{text:?} may mean hours or minutes: use 90m or 1:30:00"
            ));
        }
        return Err(invalid());
    };
    let hours = parse_digits(hours)
        .filter(|hours| days.is_none() || *hours < 24)
        .ok_or_else(invalid)?;
    let minutes = parse_sixtieth(minutes).ok_or_else(invalid)?;
    let seconds = parse_sixtieth(seconds).ok_or_else(invalid)?;
    let all_hours = days.unwrap_or(0).checked_mul(24);
    let all_seconds = all_hours
        .and_then(|all| all.checked_add(hours)?.checked_mul(3_600))
        .and_then(|all| all.checked_add(minutes * 60 + seconds));
    all_seconds
        .and_then(|all| all.checked_mul(1_000))
        .ok_or_else(invalid)
}

/// Parses minutes or seconds of a clock, which have two digits.
fn parse_sixtieth(text: &str) -> Option<u64> {
    parse_digits(text).filter(|number| text.len() == 2 && *number < 60)
}

/// Parses a number without a sign, which the standard library would accept.
fn parse_digits(text: &str) -> Option<u64> {
    let has_digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    has_digits_only.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        run: RunFlags,
    }

    fn parse(flags: &[&str]) -> Result<RunFlags, clap::Error> {
        let words = ["hayward"].iter().chain(flags);
        CommandLine::try_parse_from(words).map(|line| line.run)
    }

    #[test]
    fn a_relative_file_of_output_is_below_the_current_directory() {
        let base = Some(Path::new("/home/ada"));
        assert_eq!(resolve("out/{task}.txt", base), "/home/ada/out/{task}.txt");
        assert_eq!(resolve("/data/{task}", base), "/data/{task}");
        assert_eq!(resolve("discard", base), "discard");
        assert_eq!(resolve("out/{task}.txt", None), "out/{task}.txt");
    }

    #[test]
    fn a_time_limit_has_units_or_the_form_of_slurm() {
        for (text, ms) in [
            ("90m", 5_400_000),
            ("1h30m", 5_400_000),
            ("1:30:00", 5_400_000),
            ("2-12:00:01", 216_001_000),
            ("100:00:00", 360_000_000),
        ] {
            assert_eq!(parse_time_limit(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "90",
            "9-9",
            "1:60:00",
            "1:3:00",
            "1::00",
            "+1:00:00",
            "1:+1:00",
            "x-1:00:00",
            "1-24:00:00",
            "1:00:00:00",
            "99999999999999999999:00:00",
            "9999999999999999-00:00:00",
        ] {
            assert!(parse_time_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_limit_of_two_numbers_is_refused_as_ambiguous() {
        assert_eq!(
            parse_time_limit("1:30"),
            Err("\"1:30\" may mean hours or minutes: use 90m or 1:30:00".to_owned())
        );
    }

    #[test]
    fn a_warning_has_a_time_and_perhaps_a_signal() {
        let warning = parse_warning("5m:USR2").unwrap();
        assert_eq!(
            (warning.before_ms, warning.signal),
            (300_000, Some(TaskSignal::Usr2))
        );
        assert_eq!(parse_warning("30s").unwrap().signal, None);
        for text in ["5m:KILL", "5m:", "5", ":USR1"] {
            assert!(parse_warning(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_that_are_absent_leave_the_submission_unchanged() {
        let mut job = JobSubmission::default();
        parse(&[]).unwrap().fill(&mut job).unwrap();
        assert_eq!(job, JobSubmission::default());
    }

    #[test]
    fn each_flag_fills_its_field() {
        let flags = "--time 1:30:00 --warn 5m:HUP --stop-signal INT --grace 20s \
            --output out/{task:03}.txt --error /data/err --append --make-directories";
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let directory = Some("/home/ada".to_owned());
        let mut job = JobSubmission {
            working_directory: directory.clone(),
            ..JobSubmission::default()
        };
        parse(&flags).unwrap().fill(&mut job).unwrap();
        let expected = JobSubmission {
            working_directory: directory,
            time_limit_ms: Some(5_400_000),
            warn_before_ms: Some(300_000),
            warn_signal: Some(TaskSignal::Hup),
            stop_signal: Some(TaskSignal::Int),
            stop_grace_ms: Some(20_000),
            output: Some(OutputSubmission {
                stdout: Some("out/{task:03}.txt".to_owned()),
                stderr: Some("/data/err".to_owned()),
                mode: FileMode::Append,
                make_directories: true,
            }),
            ..JobSubmission::default()
        };
        assert_eq!(job, expected);
    }

    #[test]
    fn discarded_output_is_a_destination() {
        let mut job = JobSubmission::default();
        parse(&["--discard-output"])
            .unwrap()
            .fill(&mut job)
            .unwrap();
        assert_eq!(job.output.unwrap().stdout.as_deref(), Some("discard"));
    }

    #[test]
    fn files_of_output_are_needed_to_append_and_cannot_be_discarded() {
        assert!(parse(&["--append"]).is_err());
        assert!(parse(&["--append", "--discard-output"]).is_err());
        assert!(parse(&["--output", "a", "--discard-output"]).is_err());
        assert!(parse(&["--append", "--error", "a"]).unwrap().append);
        assert!(parse(&["--append", "--output", "a"]).unwrap().append);
    }
}
