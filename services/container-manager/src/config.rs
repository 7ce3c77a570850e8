//! Settings of container-manager.

use hayward_container_manager_placement::TimeLimits;
use hayward_service::config::ServerSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub server: ServerSettings,
    /// Addresses of rm-scheduler, whose publications are followed; comma-separated. Default
    /// `http://127.0.0.1:7401`, its port in `hayward up`.
    pub rm_scheduler_url: String,
    /// Number of ended containers that stay readable. Default 10,000, which is about a day of a
    /// small fleet.
    pub keep_buried: u64,
    /// Bytes of output stored for all containers together. The output of the containers removed
    /// longest ago is deleted first. Default 256 MiB.
    pub keep_output_bytes: u64,
    /// Milliseconds between two checks of the limits above. Default 30,000, because a check
    /// reads the size of all stored output.
    pub trim_ms: u64,
    /// Milliseconds that a placement request may wait for space, unless it has its own limit.
    pub request_timeout_ms: u64,
    /// Milliseconds that a moved process has to end before the move fails.
    pub stop_timeout_ms: u64,
    /// Milliseconds for which final placements, and those of ended deployments, stay readable.
    pub placement_retention_ms: u64,
    /// Maximum number of final placements that stay readable.
    pub keep_placements: usize,
}

impl Settings {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            placement: TimeLimits {
                request_timeout_ms: self.request_timeout_ms,
                stop_timeout_ms: self.stop_timeout_ms,
            },
            retention_ms: self.placement_retention_ms,
            max_final_placements: self.keep_placements,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings {
                listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7402)),
                ..ServerSettings::default()
            },
            rm_scheduler_url: "http://127.0.0.1:7401".to_owned(),
            keep_buried: 10_000,
            keep_output_bytes: 256 << 20,
            trim_ms: 30_000,
            request_timeout_ms: 5_000,
            stop_timeout_ms: 600_000,
            placement_retention_ms: 7 * 24 * 3_600_000,
            keep_placements: 10_000,
        }
    }
}

/// Limits from the settings.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub placement: TimeLimits,
    /// Milliseconds for which final placements, and those of ended deployments, are stored.
    pub retention_ms: u64,
    /// Maximum number of final placements that are stored.
    pub max_final_placements: usize,
}
