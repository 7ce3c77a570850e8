//! Settings of node-status, each with default, unit and reason.

use anyhow::ensure;
use hayward_node_status_domain::Limits;
use hayward_service::FrameSettings;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub frame: FrameSettings,
    /// Milliseconds between two heartbeats of an agent. Default 1,000: loss is seen within seconds,
    /// and ten thousand agents are half a core.
    pub heartbeat_ms: u64,
    /// Milliseconds of silence after which a node takes no new work. Default 15,000 (G5).
    pub suspect_ms: u64,
    /// Milliseconds of silence after which a node is given up. Default 60,000 (G5): work started
    /// elsewhere cannot be taken back, so a reboot of a switch must not be enough.
    pub lost_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: FrameSettings::default(),
            heartbeat_ms: 1_000,
            suspect_ms: 15_000,
            lost_ms: 60_000,
        }
    }
}

impl Settings {
    /// # Errors
    /// When the times do not go together.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        ensure!(self.heartbeat_ms > 0, "heartbeat_ms must be more than 0");
        ensure!(
            self.suspect_ms > 2 * self.heartbeat_ms,
            "suspect_ms ({}) must be more than two heartbeats ({} ms each): one may come late",
            self.suspect_ms,
            self.heartbeat_ms
        );
        ensure!(
            self.lost_ms > self.suspect_ms,
            "lost_ms ({}) must be more than suspect_ms ({})",
            self.lost_ms,
            self.suspect_ms
        );
        Ok(Limits {
            suspect_ms: self.suspect_ms,
            lost_ms: self.lost_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_must_go_together() {
        assert!(Settings::default().limits().is_ok());
        let hasty = Settings {
            suspect_ms: 1_500,
            ..Settings::default()
        };
        assert!(
            hasty
                .limits()
                .unwrap_err()
                .to_string()
                .contains("suspect_ms")
        );
        let reversed = Settings {
            lost_ms: 10_000,
            ..Settings::default()
        };
        assert!(
            reversed
                .limits()
                .unwrap_err()
                .to_string()
                .contains("lost_ms")
        );
    }
}
