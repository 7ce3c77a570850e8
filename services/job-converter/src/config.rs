//! Settings of job-converter.

use std::net::SocketAddr;

use hayward_service::config::ServerSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Manager of jobs, services and reservations of users.
pub const JOBS: &str = "jobs";
/// Manager of applications of the application protocol.
pub const APPLICATIONS: &str = "applications";
/// Manager of the maps of orchestrators.
pub const ORCHESTRATOR: &str = "orchestrator";
/// All managers, in the order they start and stop in.
pub const MANAGERS: [&str; 3] = [JOBS, APPLICATIONS, ORCHESTRATOR];

/// Maximum number of tasks in one lease response.
pub const MAX_LEASED: u32 = 1_024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub server: ServerSettings,
    /// URL of rm-scheduler; its `allocations` and `verdicts` are followed. Several addresses:
    /// comma-separated. Default `http://127.0.0.1:7401`.
    pub rm_scheduler_url: String,
    /// Milliseconds a runner may hold leased tasks without renewing. Default 60,000: longer than a
    /// restart of this service, short enough that a lost node does not delay a job.
    pub task_lease_ms: u64,
    /// Milliseconds between two publications of a job that only made progress. Default 250.
    pub progress_ms: u64,
    /// Milliseconds between the request to end a process and its forced end. Default 10,000.
    pub stop_grace_ms: u64,
    /// Milliseconds for which a process of a service with host affinity is requested on one host.
    /// Then its next choice is requested, or any host. Default 5,000.
    pub request_timeout_ms: u64,
    /// Milliseconds a failover waits for the standby it stopped. Default 600,000.
    pub stop_timeout_ms: u64,
    /// Ended work that stays readable, at most. Default 50,000.
    pub keep_final: usize,
    /// Days for which ended work stays readable, at most. Default 7.
    pub keep_final_days: u64,
    /// Idempotency keys stored, at most. The oldest are deleted first, and each after 24 hours.
    /// Default 500,000, about 60 MiB (A4).
    pub keep_keys: usize,
    /// Open work, at most; more is refused. Default 1,000,000 (I25).
    pub max_open_work: usize,
    /// Milliseconds until an application that is new, or has new tasks, is processed. Default
    /// 1,000.
    pub application_tick_ms: u64,
    /// Applications, at most, including ended ones that were not removed; more are refused. Default
    /// 100,000.
    pub max_applications: usize,
    /// Applications of one user, at most, including ended ones that were not removed; more are
    /// refused. Default 20,000 (I25).
    pub max_user_applications: usize,
    /// Tasks and placeholders of one application, at most. Default 10,000.
    pub max_application_tasks: usize,
    /// Live tasks and placeholders of all applications of one user, at most; more are refused.
    /// Default 200,000 (I25).
    pub max_user_application_tasks: usize,
    /// Enabled managers: `jobs` and `applications` accept work of users, `orchestrator` accepts
    /// work maps. Default: all. The routes of a disabled manager answer with an error; work it
    /// accepted before continues.
    pub managers: Vec<String>,
    /// Milliseconds between two maps of one orchestrator, at least; a map that arrives sooner is
    /// not applied. Default 0: every map is applied.
    pub orchestrator_least_ms: u64,
    /// Milliseconds without a map after which an orchestrator is shown as silent. Default 60,000.
    /// Its work continues.
    pub orchestrator_silent_ms: u64,
    /// Database connections. Default 6: one commits, the others read history.
    pub database_connections: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: SocketAddr::from(([127, 0, 0, 1], 7400)),
                ..ServerSettings::default()
            },
            rm_scheduler_url: "http://127.0.0.1:7401".to_owned(),
            task_lease_ms: 60_000,
            progress_ms: 250,
            stop_grace_ms: 10_000,
            request_timeout_ms: 5_000,
            stop_timeout_ms: 600_000,
            keep_final: 50_000,
            keep_final_days: 7,
            keep_keys: 500_000,
            max_open_work: 1_000_000,
            application_tick_ms: 1_000,
            max_applications: 100_000,
            max_user_applications: 20_000,
            max_application_tasks: 10_000,
            max_user_application_tasks: 200_000,
            managers: MANAGERS.map(str::to_owned).into(),
            orchestrator_least_ms: 0,
            orchestrator_silent_ms: 60_000,
            database_connections: 6,
        }
    }
}
