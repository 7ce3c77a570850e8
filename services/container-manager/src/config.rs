//! Settings of container-manager.

use hayward_container_manager_placement::Rules;
use hayward_service::config::FrameSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub frame: FrameSettings,
    /// Where rm-scheduler answers; its `allocations` are followed. Several addresses:
    /// comma-separated. Default `http://127.0.0.1:7401`, its port in `hayward up`.
    pub rm_scheduler_url: String,
    /// Buried containers that people may still read. Default 10,000: a day of a small fleet.
    pub keep_buried: u64,
    /// Bytes of output kept of all containers together; the output of those buried longest ago goes
    /// first. Default 256 MiB.
    pub keep_output_bytes: u64,
    /// Milliseconds between two looks at the limits above. Default 30,000: a look reads the sizes
    /// of all output kept.
    pub trim_ms: u64,
    /// Milliseconds a request of a placement action waits for room where its order does not say.
    pub request_timeout_ms: u64,
    /// Milliseconds a process that is moved is given to end before the move fails.
    pub stop_timeout_ms: u64,
    /// Milliseconds for which placements that are over, and those of dead deployments, are kept.
    pub placement_retention_ms: u64,
    /// Placements that are over and kept, at most.
    pub keep_placements: usize,
}

impl Settings {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            rules: Rules {
                request_timeout_ms: self.request_timeout_ms,
                stop_timeout_ms: self.stop_timeout_ms,
            },
            retention_ms: self.placement_retention_ms,
            keep: self.keep_placements,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: FrameSettings {
                listen: std::net::SocketAddr::from(([127, 0, 0, 1], 7402)),
                ..FrameSettings::default()
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

/// What the fleet's operator has set.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub rules: Rules,
    /// Placements of dead deployments, and those that are over, are kept this long.
    pub retention_ms: u64,
    /// Placements that are over, at most.
    pub keep: usize,
}
