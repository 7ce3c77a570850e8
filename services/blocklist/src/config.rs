//! Settings of blocklist, each with its unit, its default and the reason for it.

use anyhow::{bail, ensure};
use hayward_blocklist_api::StrategyOrder;
use hayward_blocklist_domain::Brakes;
use hayward_service::ServerSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strategy::{self, StrategyDefaults};

/// How running work is evacuated if the request has no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DefaultEvacuation {
    Immediate,
    Graceful,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub server: ServerSettings,
    /// True enables the blocklist. Default true. If false, the list is empty, and no item can be
    /// added, read or published (BL-10). Stored items remain, and apply again when this is true.
    pub enabled: bool,
    /// Addresses of rm-scheduler, comma-separated; its publications `failures`, `machines` and
    /// `clearings` are followed. Default `http://127.0.0.1:7401`, its port in `hayward up`.
    pub rm_scheduler_url: String,
    /// Name of the strategy, with default parameters, until one is set by `PUT
    /// /v1/blocklist/strategy`. Default `none`, which blocks no node.
    pub strategy: String,
    /// Percent of the ready nodes of a pool that automatic blocks and trials may withhold. Default
    /// 20, which allows no block in a pool with fewer than five nodes.
    pub max_blocked_percent: u64,
    /// Minimum number of ready nodes of a pool that automatic blocks leave without a block. Default
    /// 1.
    pub pool_floor: u64,
    /// Milliseconds for which an automatic block is remembered. The next block within this time is
    /// twice as long. Default 86,400,000, a day.
    pub backoff_memory_ms: u64,
    /// Maximum duration of a repeated block, in milliseconds. Default 21,600,000, six hours. It
    /// must be less than `backoff_memory_ms`, so that the longest block is still remembered at its
    /// end.
    pub backoff_cap_ms: u64,
    /// Milliseconds after which a trial without work ends. 0 disables trials. Default 600,000.
    pub trial_ms: u64,
    /// Milliseconds for which the strategy `slow-task` blocks the node of a slow task. Default
    /// 60,000.
    pub slow_node_duration_ms: u64,
    /// How running work is evacuated if the request has no policy: `IMMEDIATE` or `GRACEFUL`.
    /// Default `IMMEDIATE`.
    pub evacuation_policy: DefaultEvacuation,
    /// Grace period in milliseconds of a graceful evacuation if the request has none. Default
    /// 120,000.
    pub evacuation_grace_ms: u64,
    /// Duration in milliseconds of an item without a requested end. Default 600,000, so that a
    /// forgotten block ends by itself.
    pub default_duration_ms: u64,
    /// Milliseconds for which an item remains if its requested end has already passed. Default
    /// 1,000, so that followers of the publication see it once.
    pub check_interval_ms: u64,
    /// Maximum number of keys in memory, including remembered removals. Further items are refused
    /// (I25). Default 100,000, which is ten per node of a large fleet.
    pub max_items: usize,
    /// Milliseconds for which a removal is remembered. Default 86,400,000, a day, which is longer
    /// than an owner stores a copy of an item.
    pub tombstone_ttl_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings::default(),
            enabled: true,
            rm_scheduler_url: "http://127.0.0.1:7401".to_owned(),
            strategy: "none".to_owned(),
            max_blocked_percent: 20,
            pool_floor: 1,
            backoff_memory_ms: 86_400_000,
            backoff_cap_ms: 21_600_000,
            trial_ms: 600_000,
            slow_node_duration_ms: 60_000,
            evacuation_policy: DefaultEvacuation::Immediate,
            evacuation_grace_ms: 120_000,
            default_duration_ms: 600_000,
            check_interval_ms: 1_000,
            max_items: 100_000,
            tombstone_ttl_ms: 86_400_000,
        }
    }
}

impl Settings {
    /// Returns an error if a duration or percentage is out of range, or the strategy is invalid.
    pub fn validate(&self) -> anyhow::Result<()> {
        ensure!(
            self.default_duration_ms > 0,
            "default_duration_ms must be more than 0"
        );
        ensure!(
            self.tombstone_ttl_ms > 0,
            "tombstone_ttl_ms must be more than 0"
        );
        ensure!(
            self.max_blocked_percent <= 100,
            "max_blocked_percent must be 0 to 100"
        );
        ensure!(
            self.backoff_cap_ms < self.backoff_memory_ms,
            "backoff_cap_ms must be less than backoff_memory_ms, or the longest block is forgotten \
             before its end"
        );
        let request = StrategyOrder {
            name: self.strategy.clone(),
            parameters: std::collections::BTreeMap::new(),
        };
        if let Err(faults) = strategy::parse(&request, self.strategy_defaults()) {
            let detail = faults.first().map_or("", |fault| fault.detail.as_str());
            bail!("invalid strategy with default parameters: {detail}");
        }
        Ok(())
    }

    /// Returns the defaults of strategy parameters that depend on settings.
    pub fn strategy_defaults(&self) -> StrategyDefaults {
        StrategyDefaults {
            slow_node_duration_ms: self.slow_node_duration_ms,
            evacuation_grace_ms: self.evacuation_grace_ms,
        }
    }

    pub fn brakes(&self) -> Brakes {
        Brakes {
            max_percent: self.max_blocked_percent,
            min_unblocked: self.pool_floor,
        }
    }
}
