//! Settings of blocklist, each with default, unit and reason.

use anyhow::ensure;
use hayward_service::FrameSettings;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub frame: FrameSettings,
    /// Milliseconds an item lasts that names no end. Default 600,000: a block that is forgotten
    /// should end by itself, so a permanent one must be asked for.
    pub default_duration_ms: u64,
    /// Milliseconds an item stays whose end had passed when it was added. Default 1,000: it has its
    /// full effect once, so those who follow must have time to see it.
    pub check_interval_ms: u64,
    /// Milliseconds a removal is remembered. Default 86,400,000, a day: longer than anybody keeps a
    /// copy that might be announced again.
    pub tombstone_ttl_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: FrameSettings::default(),
            default_duration_ms: 600_000,
            check_interval_ms: 1_000,
            tombstone_ttl_ms: 86_400_000,
        }
    }
}

impl Settings {
    /// # Errors
    /// When a duration makes no sense.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.default_duration_ms > 0,
            "default_duration_ms must be more than 0"
        );
        ensure!(
            self.tombstone_ttl_ms > 0,
            "tombstone_ttl_ms must be more than 0"
        );
        Ok(())
    }
}
