//! Flags for failures of tasks: which are tried again, and how many a job may have.

use hayward_job_converter_api::retry::{RetryCause, RetrySubmission};
use hayward_job_converter_api::submission::JobSubmission;

use crate::value_parsers;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct RetryFlags {
    /// Maximum number of attempts of a task before it has failed. Default 3.
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<u32>,
    /// Time before the second attempt, doubled before each further one up to 1m. Default: none.
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    pub retry_delay: Option<u64>,
    /// Failures that are tried again: exited, signalled, cannot_start, out_of_memory, time_limit.
    /// Default: the first three.
    #[arg(long, value_name = "CAUSE,…", value_delimiter = ',')]
    pub retry_on: Vec<RetryCause>,
    /// Exit codes that are tried again, as 75,111. Default: all.
    #[arg(long, value_name = "CODE,…", value_delimiter = ',')]
    pub retry_exit_codes: Vec<u32>,
    /// Exit codes that are never tried again.
    #[arg(long, value_name = "CODE,…", value_delimiter = ',')]
    pub retry_never_exit_codes: Vec<u32>,
    /// Least part of the tasks that must succeed for the job to be completed, as 90%. Default 100%.
    #[arg(long, value_name = "P%", value_parser = parse_percent)]
    pub success: Option<u32>,
}

impl RetryFlags {
    /// Fills in the fields of these flags.
    pub fn fill(&self, job: &mut JobSubmission) {
        job.max_attempts = self.max_attempts;
        job.success_percent = self.success;
        let retry = RetrySubmission {
            max_attempts: None,
            delay_ms: self.retry_delay,
            max_delay_ms: None,
            on: (!self.retry_on.is_empty()).then(|| self.retry_on.clone()),
            exit_codes: self.retry_exit_codes.clone(),
            never_exit_codes: self.retry_never_exit_codes.clone(),
        };
        job.retry = (retry != RetrySubmission::default()).then_some(retry);
    }
}

fn parse_percent(text: &str) -> Result<u32, String> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse().ok());
    let percent = number.filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is no percentage from 1% to 100%"))
}

fn parse_delay(text: &str) -> Result<u64, String> {
    value_parsers::parse_duration_ms(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        retry: RetryFlags,
    }

    fn parse(flags: &str) -> Result<JobSubmission, clap::Error> {
        let words = ["hayward"].into_iter().chain(flags.split_whitespace());
        let flags = CommandLine::try_parse_from(words)?.retry;
        let mut job = JobSubmission::default();
        flags.fill(&mut job);
        Ok(job)
    }

    #[test]
    fn each_flag_fills_its_field() {
        let flags = "--max-attempts 4 --retry-on exited,time_limit --retry-exit-codes 75,111 \
                     --retry-never-exit-codes 2 --retry-delay 1500ms --success 90%";
        let expected = JobSubmission {
            max_attempts: Some(4),
            success_percent: Some(90),
            retry: Some(RetrySubmission {
                max_attempts: None,
                delay_ms: Some(1_500),
                max_delay_ms: None,
                on: Some(vec![RetryCause::Exited, RetryCause::TimeLimit]),
                exit_codes: vec![75, 111],
                never_exit_codes: vec![2],
            }),
            ..JobSubmission::default()
        };
        assert_eq!(parse(flags).unwrap(), expected);
        assert_eq!(parse("").unwrap(), JobSubmission::default());
        assert!(parse("--retry-on stopped").is_err());
        assert!(parse("--retry-exit-codes x").is_err());
        for text in ["90", "0%", "101%", "x%"] {
            assert!(parse(&format!("--success {text}")).is_err(), "{text}");
        }
    }
}
