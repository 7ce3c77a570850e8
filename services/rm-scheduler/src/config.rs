//! Settings of rm-scheduler.

use hayward_service::settings::FrameSettings;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub frame: FrameSettings,
    /// Where job-converter answers; its `demand` is followed. Several addresses: comma-separated.
    pub job_converter_url: String,
    /// Where node-status answers; its `nodes` are followed.
    pub node_status_url: String,
    /// Where blocklist answers; its `blocks` are followed.
    pub blocklist_url: String,
    /// Where container-manager answers; its `containers` are followed.
    pub container_manager_url: String,
    /// Milliseconds between two rounds at least: news that comes in between is decided together.
    pub round_min_ms: u64,
    /// Milliseconds after which time is charged although there is no news. The prediction takes it
    /// for the time from round to round.
    pub round_max_ms: u64,
    /// Milliseconds of silence after which a neighbour is stale and a round revokes nothing.
    pub stale_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: FrameSettings {
                listen: ([127, 0, 0, 1], 7401).into(),
                ..FrameSettings::default()
            },
            job_converter_url: "http://127.0.0.1:7400".into(),
            node_status_url: "http://127.0.0.1:7403".into(),
            blocklist_url: "http://127.0.0.1:7404".into(),
            container_manager_url: "http://127.0.0.1:7402".into(),
            round_min_ms: 10,
            round_max_ms: 1_000,
            stale_ms: 2 * 1_000 * hayward_publication::follower::WAIT_SECONDS + 5_000,
        }
    }
}
