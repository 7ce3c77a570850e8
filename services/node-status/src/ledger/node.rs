//! One node in the working set.

use std::sync::Arc;

use hayward_node_status_api::{Heartbeat, Inventory, NodeEntry};
use hayward_node_status_domain::{Health, Limits, Record, Twins};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::pulses::Pulse;
use crate::words;

/// Where a node is when its agent names no pool.
pub const DEFAULT_POOL: &str = "default";

pub struct Node {
    pub name: NodeName,
    pub pool: String,
    pub inventory: Inventory,
    pub boot_id: String,
    pub agent_instance: String,
    pub quiesced: bool,
    pub health: Health,
    pub health_reason: String,
    pub schedulable: bool,
    /// Who varied it off and why; empty while it is on.
    pub off_reason: String,
    pub since: Timestamp,
    pub pulse: Arc<Pulse>,
    pub twins: Twins,
    pub watched_since_ms: u64,
    /// When it is judged again without news.
    pub due_ms: Option<u64>,
    /// Changes written since the history of this node was last trimmed.
    pub changes: u32,
}

impl Node {
    /// A node that nobody knew. It is judged at once, so its health is only a beginning.
    pub fn first_heard(name: NodeName, beat: &Heartbeat, now: Timestamp) -> Self {
        let pulse = Arc::new(Pulse::default());
        pulse.runs(&beat.inventory.version);
        Self {
            name,
            pool: pool_of(&beat.inventory),
            inventory: beat.inventory.clone(),
            boot_id: beat.boot_id.clone(),
            agent_instance: beat.agent_instance.clone(),
            quiesced: beat.quiesced,
            health: Health::Suspect,
            health_reason: String::new(),
            schedulable: true,
            off_reason: String::new(),
            since: now,
            pulse,
            twins: Twins::of(beat.agent_instance.clone()),
            watched_since_ms: 0,
            due_ms: None,
            changes: 0,
        }
    }

    /// Takes over what the node says of itself; true when that is news.
    pub fn says(&mut self, beat: Heartbeat, restarted: bool) -> bool {
        // a node keeps its pool until it is configured anew, which takes a restart.
        let pool = if restarted {
            pool_of(&beat.inventory)
        } else {
            self.pool.clone()
        };
        let news = self.inventory != beat.inventory
            || self.pool != pool
            || self.boot_id != beat.boot_id
            || self.agent_instance != beat.agent_instance
            || self.quiesced != beat.quiesced;
        self.pulse.runs(&beat.inventory.version);
        self.pool = pool;
        self.inventory = beat.inventory;
        self.boot_id = beat.boot_id;
        self.agent_instance = beat.agent_instance;
        self.quiesced = beat.quiesced;
        news
    }

    pub fn record(&self, braked: bool, limits: Limits, now_ms: u64) -> Record {
        Record {
            before: self.health,
            watched_since_ms: self.watched_since_ms,
            heard_ms: self.pulse.heard_ms(),
            quiesced: self.quiesced,
            twins: self.twins_until(limits).is_some_and(|until| now_ms < until),
            // An operator who varies a silent node off knows that it is gone (B1).
            braked: braked && self.schedulable,
            limits,
        }
    }

    pub fn twins_until(&self, limits: Limits) -> Option<u64> {
        self.twins.until_ms(limits.lost_ms)
    }

    pub fn reason(&self) -> String {
        if self.schedulable {
            self.health_reason.clone()
        } else {
            format!("{}; {}", self.off_reason, self.health_reason)
        }
    }

    pub fn entry(&self) -> NodeEntry {
        NodeEntry {
            node: self.name.clone(),
            pool: self.pool.clone(),
            capacity: self.inventory.capacity.clone(),
            labels: self.inventory.labels.clone(),
            runtimes: self.inventory.runtimes.clone(),
            health: words::published(self.health),
            schedulable: self.schedulable,
            reason: self.reason(),
            since: self.since,
            drain: None,
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
        }
    }
}

fn pool_of(inventory: &Inventory) -> String {
    inventory
        .pool
        .clone()
        .unwrap_or_else(|| DEFAULT_POOL.to_owned())
}

#[cfg(test)]
mod tests {
    use hayward_node_status_api::Metrics;
    use hayward_vocabulary::Size;

    use super::*;

    fn beat(pool: &str) -> Heartbeat {
        Heartbeat {
            boot_id: "boot-1".into(),
            agent_instance: "agent-1".into(),
            inventory: Inventory {
                capacity: Size::memory(1 << 30),
                pool: Some(pool.into()),
                labels: std::collections::BTreeMap::new(),
                runtimes: Vec::new(),
                version: String::new(),
            },
            metrics: Metrics::default(),
            quiesced: false,
        }
    }

    #[test]
    fn r_6_5_a_node_keeps_its_pool_until_it_is_configured_anew() {
        let name = NodeName::new("n1").unwrap();
        let mut node = Node::first_heard(name, &beat("old"), Timestamp::default());
        assert!(node.says(beat("new"), false), "what it says is news");
        assert_eq!(node.entry().pool, "old");
        assert!(node.says(beat("new"), true));
        assert_eq!(node.entry().pool, "new");
    }
}
