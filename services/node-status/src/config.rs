//! Settings of node-status.

use anyhow::ensure;
use hayward_node_status_domain::Limits;
use hayward_node_status_domain::heartbeat_period::HeartbeatPeriod;
use hayward_service::ServerSettings;
use hayward_vocabulary::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub server: ServerSettings,
    /// Milliseconds between two heartbeats of an agent. Longer in a large fleet. Default 1,000, so
    /// that a loss is detected within seconds.
    pub heartbeat_ms: u64,
    /// Target rate of the whole fleet in heartbeats per second. In a large fleet each node reports
    /// less often, but at least three times before it is suspect. Default 1,000, a tenth of a core.
    pub heartbeats_per_second: u64,
    /// Milliseconds of silence after which a node takes no new work. Default 15,000.
    pub suspect_ms: u64,
    /// Milliseconds of silence after which a node is lost and its work starts elsewhere. Default
    /// 60,000, so that the reboot of a switch loses no node.
    pub lost_ms: u64,
    /// Milliseconds by which an agent ends exclusive work before its node could be lost (I4).
    /// Default: a quarter of `lost_ms`, 15,000, because ending takes up to a grace and clocks
    /// drift.
    pub lease_margin_ms: Option<u64>,
    /// Milliseconds after an outage of this service before a node without a heartbeat is lost.
    /// Default: five times `lost_ms`, 300,000 (B2).
    pub warm_up_ms: Option<u64>,
    /// Minimum number of nodes of a pool that take work. A drain below it must be forced. Default 1
    /// (B4).
    pub pool_floor: u64,
    /// Maximum percentage of nodes of a pool that take no work. A drain above it must be forced.
    /// Two nodes are always allowed. Default 25.
    pub drain_percent: u64,
    /// Maximum number of nodes, including lost nodes that were not removed. Another node is
    /// refused. Default 20,000, twice the planned fleet (I25).
    pub max_nodes: usize,
    /// Maximum bytes of memory that a node without an enrolment limit may claim, such as with a
    /// token from `prepare`. A larger claim is reduced and recorded in the history. 0 means no
    /// limit. Default 70,368,744,177,664 (64 TiB), more than the largest machines have.
    pub node_most_memory_bytes: u64,
    /// The same for thousandths of a cpu. 0 means no limit. Default 4,096,000.
    pub node_most_cpu_milli: u64,
    /// The same for thousandths of a gpu. 0 means no limit. Default 256,000.
    pub node_most_gpu_milli: u64,
    /// Addresses of rm-scheduler, comma-separated. The service follows its publications `clearings`
    /// and `machines`. Default `http://127.0.0.1:7401`, its port in `hayward up`.
    pub rm_scheduler_url: String,
}

/// Limits that protect pools from operators and outages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guards {
    pub warm_up_ms: u64,
    pub pool_floor: u64,
    pub drain_percent: u64,
    pub max_nodes: usize,
    /// Maximum resources that a node without an enrolment limit may claim (S15).
    pub max_claim: Size,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings::default(),
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
    /// Returns the limits of silence.
    ///
    /// # Errors
    /// When the times contradict each other.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        ensure!(self.heartbeat_ms > 0, "heartbeat_ms must be more than 0");
        ensure!(
            self.suspect_ms > 2 * self.heartbeat_ms,
            "suspect_ms ({}) must be more than two heartbeats ({} ms each), because one may be \
            late",
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

    /// Returns the limits that protect pools.
    ///
    /// # Errors
    /// When a setting is out of range.
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
            max_claim: Size {
                memory_bytes: self.node_most_memory_bytes,
                cpu_milli: self.node_most_cpu_milli,
                gpu_milli: self.node_most_gpu_milli,
                ..Size::default()
            },
        })
    }

    /// Returns the limits of the heartbeat rate.
    ///
    /// # Errors
    /// When the rate is zero.
    pub fn heartbeat_period(&self) -> anyhow::Result<HeartbeatPeriod> {
        ensure!(
            self.heartbeats_per_second > 0,
            "heartbeats_per_second must be more than 0"
        );
        Ok(HeartbeatPeriod {
            min_ms: self.heartbeat_ms,
            per_second: self.heartbeats_per_second,
            suspect_ms: self.suspect_ms,
        })
    }

    /// Returns the lease of an answered heartbeat, in milliseconds.
    ///
    /// # Errors
    /// When the lease would be too short.
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
    fn contradicting_times_are_refused() {
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
    fn a_lease_ends_before_its_node_can_be_lost() {
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
