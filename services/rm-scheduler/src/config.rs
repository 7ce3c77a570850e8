//! Settings of rm-scheduler.

use hayward_service::config::ServerSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub server: ServerSettings,
    /// Addresses of job-converter, separated by commas. Its `demand` is followed.
    pub job_converter_url: String,
    /// Addresses of node-status, separated by commas. Its `nodes` are followed.
    pub node_status_url: String,
    /// Addresses of blocklist, separated by commas. Its `blocks` are followed.
    pub blocklist_url: String,
    /// Addresses of container-manager, separated by commas. Its `containers` are followed.
    pub container_manager_url: String,
    /// Minimum number of milliseconds between two rounds. Changes in between are decided together.
    pub round_min_ms: u64,
    /// Milliseconds after which the use of nodes is charged to users even without a change. The
    /// prediction of the growth of jobs takes this number as the time between two rounds.
    pub round_max_ms: u64,
    /// Milliseconds of silence after which a neighbour is stale and a round revokes nothing.
    pub stale_ms: u64,
    /// Maximum number of rounds whose inputs are recorded for a replay; 0 records none.
    pub inputs_rounds: u64,
    /// Maximum number of bytes of recorded inputs in the database. A quarter of this number must
    /// suffice for a snapshot with its plan, deflated to about a tenth of the size of the JSON.
    pub inputs_bytes: u64,
    /// Maximum number of nodes, pieces of work and allocations of a recorded snapshot. Writing a
    /// whole snapshot delays a commit by about a second for each 300,000 of them.
    pub inputs_entries: u64,
    /// Milliseconds for which a fact about a node or an attempt is published. Followers read each
    /// fact once; the time is for followers that are unavailable.
    pub facts_kept_ms: u64,
    /// Maximum number of published facts; the oldest are dropped.
    pub facts_most: u64,
    /// Maximum number of published facts about one node, so that one failing node does not hide
    /// others.
    pub facts_a_node: u64,
    /// Milliseconds of running after which an attempt proves that its node works.
    pub worked_ms: u64,
    /// Milliseconds from the grant of a worker within which the owner of the pool must report it.
    pub pool_register_deadline_ms: u64,
    /// Milliseconds after a new owner connected within which it must report the existing workers.
    pub pool_reregister_grace_ms: u64,
    /// Number of failed starts of a pool in a minute after which its requests pause.
    pub pool_start_failures_per_min: u64,
    /// Milliseconds for which the requests of a pool pause after too many failed starts.
    pub pool_cooldown_ms: u64,
    /// Milliseconds without a call after which the owner of a pool is no longer bound.
    pub pool_owner_lease_ms: u64,
    /// Milliseconds after which a failure of a pool no longer counts; 0: it counts for ever.
    pub pool_failure_window_ms: u64,
    /// Milliseconds after a restart until a pool is ready although workers have not registered; 0:
    /// it does not wait for them.
    pub pool_recovery_timeout_ms: u64,
}

impl Settings {
    pub(crate) fn fact_limits(&self) -> FactLimits {
        let to_usize = |setting| usize::try_from(setting).unwrap_or(usize::MAX);
        FactLimits {
            max_total: to_usize(self.facts_most),
            max_per_node: to_usize(self.facts_a_node),
        }
    }

    pub(crate) fn input_limits(&self) -> InputLimits {
        InputLimits {
            rounds: self.inputs_rounds,
            bytes: self.inputs_bytes,
            entries: self.inputs_entries,
        }
    }
}

/// Limits of the number of published facts.
#[derive(Debug, Clone, Copy)]
pub struct FactLimits {
    pub max_total: usize,
    pub max_per_node: usize,
}

/// Limits of recorded inputs.
#[derive(Debug, Clone, Copy)]
pub struct InputLimits {
    /// Maximum number of recorded rounds; 0 records none.
    pub rounds: u64,
    /// Maximum number of bytes of recorded inputs, deflated.
    pub bytes: u64,
    /// Maximum number of nodes, pieces of work and allocations of one snapshot.
    pub entries: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: ([127, 0, 0, 1], 7401).into(),
                ..ServerSettings::default()
            },
            job_converter_url: "http://127.0.0.1:7400".into(),
            node_status_url: "http://127.0.0.1:7403".into(),
            blocklist_url: "http://127.0.0.1:7404".into(),
            container_manager_url: "http://127.0.0.1:7402".into(),
            round_min_ms: 10,
            round_max_ms: 1_000,
            stale_ms: 2 * 1_000 * hayward_publication::update::WAIT_SECONDS + 5_000,
            inputs_rounds: 1_000,
            inputs_bytes: 256 << 20,
            inputs_entries: 100_000,
            facts_kept_ms: 3_600_000,
            facts_most: 10_000,
            facts_a_node: 32,
            worked_ms: 60_000,
            pool_register_deadline_ms: 300_000,
            pool_reregister_grace_ms: 60_000,
            pool_start_failures_per_min: 10,
            pool_cooldown_ms: 3_000,
            pool_owner_lease_ms: 60_000,
            pool_failure_window_ms: 0,
            pool_recovery_timeout_ms: 0,
        }
    }
}
