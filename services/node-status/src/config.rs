//! Settings of node-status, each with default, unit and reason.

use anyhow::ensure;
use hayward_node_status_domain::Limits;
use hayward_node_status_domain::heartbeat_period::Rhythm;
use hayward_service::FrameSettings;
use hayward_vocabulary::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub frame: FrameSettings,
    /// Milliseconds between two heartbeats of an agent; more where the fleet is large. Default
    /// 1,000: loss is seen within seconds.
    pub heartbeat_ms: u64,
    /// Heartbeats of the whole fleet in a second: where there are more nodes, each is heard less
    /// often, but always three times before it is suspect. Default 1,000, a tenth of a core.
    pub heartbeats_per_second: u64,
    /// Milliseconds of silence after which a node takes no new work. Default 15,000 (G5).
    pub suspect_ms: u64,
    /// Milliseconds of silence after which a node is given up. Default 60,000 (G5): work started
    /// elsewhere cannot be taken back, so a reboot of a switch must not be enough.
    pub lost_ms: u64,
    /// Milliseconds by which an agent ends exclusive work before its node could be given up (I4).
    /// Default: a quarter of `lost_ms`, 15,000: ending takes up to a grace, and clocks drift.
    pub lease_margin_ms: Option<u64>,
    /// Milliseconds after our own outage before a node that was not heard since is given up.
    /// Default: five times `lost_ms`, 300,000 (B2).
    pub warm_up_ms: Option<u64>,
    /// Nodes of a pool that have to take work; a drain below that has to be forced. Default 1 (B4).
    pub pool_floor: u64,
    /// Part of a pool in percent that may be out of work before a drain has to be forced, and two
    /// nodes always may. Default 25 (B1).
    pub drain_percent: u64,
    /// Nodes that are known, with those that are lost and not removed; another is refused (I25).
    /// Default 20,000: twice what the fleet is planned for.
    pub max_nodes: usize,
    /// Bytes of memory that a node may claim where its enrolment says nothing, as with a token from
    /// `prepare`; what is more is not believed, and its history says so. 0: no limit. Default
    /// 70,368,744,177,664 (64 TiB), more than the largest machines have.
    pub node_most_memory_bytes: u64,
    /// Thousandths of a cpu, likewise. 0: no limit. Default 4,096,000.
    pub node_most_cpu_milli: u64,
    /// Thousandths of a gpu, likewise. 0: no limit. Default 256,000.
    pub node_most_gpu_milli: u64,
    /// Where rm-scheduler answers; its `clearings` are followed. Several addresses:
    /// comma-separated. Default `http://127.0.0.1:7401`, its port in `hayward up`.
    pub rm_scheduler_url: String,
}

/// What keeps people and outages from emptying a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guards {
    pub warm_up_ms: u64,
    pub pool_floor: u64,
    pub drain_percent: u64,
    pub max_nodes: usize,
    /// What any machine may claim (S15).
    pub most: Size,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: FrameSettings::default(),
            heartbeat_ms: 1_000,
            heartbeats_per_second: 1_000,
            suspect_ms: 15_000,
            lost_ms: 60_000,
            lease_margin_ms: None,
            warm_up_ms: None,
            pool_floor: 1,
            drain_percent: 25,
            max_nodes: 20_000,
            node_most_memory_bytes: 64 << 40,
            node_most_cpu_milli: 4_096_000,
            node_most_gpu_milli: 256_000,
            rm_scheduler_url: "http://127.0.0.1:7401".to_owned(),
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

    /// # Errors
    /// When a setting makes no sense.
    pub fn guards(&self) -> anyhow::Result<Guards> {
        ensure!(
            self.drain_percent <= 100,
            "drain_percent ({}) must be 100 or less",
            self.drain_percent
        );
        Ok(Guards {
            warm_up_ms: self.warm_up_ms.unwrap_or(self.lost_ms.saturating_mul(5)),
            pool_floor: self.pool_floor,
            drain_percent: self.drain_percent,
            max_nodes: self.max_nodes,
            most: Size {
                memory_bytes: self.node_most_memory_bytes,
                cpu_milli: self.node_most_cpu_milli,
                gpu_milli: self.node_most_gpu_milli,
                ..Size::default()
            },
        })
    }

    /// # Errors
    /// When nobody would be heard.
    pub fn rhythm(&self) -> anyhow::Result<Rhythm> {
        ensure!(
            self.heartbeats_per_second > 0,
            "heartbeats_per_second must be more than 0"
        );
        Ok(Rhythm {
            least_ms: self.heartbeat_ms,
            per_second: self.heartbeats_per_second,
            suspect_ms: self.suspect_ms,
        })
    }

    /// What an answered heartbeat is good for.
    ///
    /// # Errors
    /// When nothing would be left of it.
    pub fn lease_ms(&self) -> anyhow::Result<u64> {
        let margin_ms = self.lease_margin_ms.unwrap_or(self.lost_ms / 4);
        let lease_ms = self.lost_ms.saturating_sub(margin_ms);
        ensure!(
            margin_ms > 0 && lease_ms > self.heartbeat_ms,
            "lease_margin_ms ({margin_ms}) must be more than 0 and leave more than one heartbeat \
             ({} ms) of lost_ms ({})",
            self.heartbeat_ms,
            self.lost_ms
        );
        Ok(lease_ms)
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

    #[test]
    fn i4_a_lease_is_over_before_its_node_can_be_given_up() {
        let settings = Settings::default();
        assert_eq!(settings.lease_ms().unwrap(), 45_000);
        let brief = Settings {
            lost_ms: 4_000,
            ..Settings::default()
        };
        assert_eq!(brief.lease_ms().unwrap(), 3_000);
        for margin in [0, 60_000, 59_500] {
            let wrong = Settings {
                lease_margin_ms: Some(margin),
                ..Settings::default()
            };
            let fault = wrong.lease_ms().unwrap_err().to_string();
            assert!(fault.contains("lease_margin_ms"), "{fault}");
        }
    }
}
