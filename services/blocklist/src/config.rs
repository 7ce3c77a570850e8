//! Settings of blocklist, each with default, unit and reason.

use anyhow::{bail, ensure};
use hayward_blocklist_api::StrategyOrder;
use hayward_blocklist_domain::Brakes;
use hayward_service::FrameSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strategy::{self, Defaults};

/// How what runs on a machine is taken off where the item does not say so (section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Evacuation {
    Immediate,
    Graceful,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    #[serde(flatten)]
    pub frame: FrameSettings,
    /// Whether machines are blocked at all. Default true. False is the empty list: nothing is
    /// taken, shown or published (B10). What is stored stays, and is there again when this is true
    /// again.
    pub enabled: bool,
    /// Where rm-scheduler answers; its `failures`, `machines` and `clearings` are followed. Several
    /// addresses: comma-separated. Default `http://127.0.0.1:7401`, its port in `hayward up`.
    pub rm_scheduler_url: String,
    /// Name of the strategy until somebody chooses one by `PUT /v1/blocklist/strategy`, with its
    /// default parameters. Default `none`: a machine is blocked because somebody wanted that.
    pub strategy: String,
    /// Percent of the ready nodes of a pool that automatic blocks and trials may withhold. Default
    /// 20. Of a pool with fewer than five nodes that is none.
    pub max_blocked_percent: u64,
    /// Ready nodes of a pool that automatic blocks leave free of any block. Default 1.
    pub pool_floor: u64,
    /// Milliseconds an automatic block is remembered: one that repeats it lasts twice as long.
    /// Default 86,400,000, a day.
    pub backoff_memory_ms: u64,
    /// Milliseconds doubling ends at. Default 21,600,000, six hours: somebody should have looked by
    /// then, and within the memory above, so that the cap stays reached.
    pub backoff_cap_ms: u64,
    /// Milliseconds a machine stays on trial that nobody uses. Default 600,000; 0 switches trials
    /// off.
    pub trial_ms: u64,
    /// Milliseconds the node of a slow task is blocked by the strategy `slow-task`. Default 60,000.
    pub slow_node_duration_ms: u64,
    /// How what runs on a machine is taken off where nobody says so: `IMMEDIATE` or `GRACEFUL`.
    /// Default `IMMEDIATE`.
    pub evacuation_policy: Evacuation,
    /// Milliseconds of grace of a graceful evacuation that names none. Default 120,000.
    pub evacuation_grace_ms: u64,
    /// Milliseconds an item lasts that names no end. Default 600,000: a block that is forgotten
    /// should end by itself, so a permanent one must be asked for.
    pub default_duration_ms: u64,
    /// Milliseconds an item stays whose end had passed when it was added. Default 1,000: it has its
    /// full effect once, so those who follow must have time to see it.
    pub check_interval_ms: u64,
    /// Items kept, with removals that are remembered; an order for more is refused (I25). Default
    /// 100,000: ten for each machine of a large fleet.
    pub max_items: usize,
    /// Milliseconds a removal is remembered. Default 86,400,000, a day: longer than anybody keeps a
    /// copy that might be announced again.
    pub tombstone_ttl_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame: FrameSettings::default(),
            enabled: true,
            rm_scheduler_url: "http://127.0.0.1:7401".to_owned(),
            strategy: "none".to_owned(),
            max_blocked_percent: 20,
            pool_floor: 1,
            backoff_memory_ms: 86_400_000,
            backoff_cap_ms: 21_600_000,
            trial_ms: 600_000,
            slow_node_duration_ms: 60_000,
            evacuation_policy: Evacuation::Immediate,
            evacuation_grace_ms: 120_000,
            default_duration_ms: 600_000,
            check_interval_ms: 1_000,
            max_items: 100_000,
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
        ensure!(
            self.max_blocked_percent <= 100,
            "max_blocked_percent must be 0 to 100"
        );
        ensure!(
            self.backoff_cap_ms < self.backoff_memory_ms,
            "backoff_cap_ms must be less than backoff_memory_ms, or the longest block is forgotten \
             before it ends"
        );
        let order = StrategyOrder {
            name: self.strategy.clone(),
            parameters: std::collections::BTreeMap::new(),
        };
        if let Err(faults) = strategy::read(&order, self.defaults()) {
            let detail = faults.first().map_or("", |fault| fault.detail.as_str());
            bail!("strategy: {detail}; with its default parameters");
        }
        Ok(())
    }

    pub fn defaults(&self) -> Defaults {
        Defaults {
            slow_node_duration_ms: self.slow_node_duration_ms,
            evacuation_grace_ms: self.evacuation_grace_ms,
        }
    }

    pub fn brakes(&self) -> Brakes {
        Brakes {
            percent: self.max_blocked_percent,
            floor: self.pool_floor,
        }
    }
}
