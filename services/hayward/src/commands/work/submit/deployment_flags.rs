//! Flags for the standby processes of a service, and for its retry limits.

use hayward_job_converter_api::service_processors::RetriesSubmission;

use crate::value_parsers;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct DeploymentFlags {
    /// Number of standbys of each instance. No two of these processes share a node. Default: none.
    #[arg(long, value_name = "N")]
    pub standbys: Option<u32>,
    /// Start a process again on its last node, unless that takes too long. Default: only with
    /// standbys.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub host_affinity: Option<bool>,
    /// Label of nodes that must differ between an instance and its standbys.
    #[arg(long, value_name = "LABEL", requires = "standbys")]
    pub fault_domain: Option<String>,
    /// Maximum number of retries of one process; -1 for no limit. A process that ends with status 0
    /// is then not started again. Default: processes are always started again.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub retries: Option<i32>,
    /// Time without a failure after which the count of failures begins again at 0. Default 5m.
    #[arg(long, value_name = "TIME", requires = "retries", value_parser = parse_duration)]
    pub retry_window: Option<u64>,
    /// Delay of the last retry, if only one node is allowed. Default 6m.
    #[arg(long, value_name = "TIME", requires = "retries", value_parser = parse_duration)]
    pub last_retry_delay: Option<u64>,
    /// Continue as unhealthy when a process has no retry left.
    #[arg(long, requires = "retries")]
    pub go_on_without: bool,
}

fn parse_duration(text: &str) -> Result<u64, String> {
    value_parsers::parse_duration_ms(text).map_err(|error| error.to_string())
}

impl DeploymentFlags {
    /// Returns the retry limits. Returns `None` if processes are always started again.
    pub fn retries(&self) -> Option<RetriesSubmission> {
        let defaults = RetriesSubmission::default();
        Some(RetriesSubmission {
            count: self.retries?,
            window_ms: self.retry_window.unwrap_or(defaults.window_ms),
            last_delay_ms: self.last_retry_delay.unwrap_or(defaults.last_delay_ms),
            fail_service: !self.go_on_without,
        })
    }
}
