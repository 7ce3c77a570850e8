//! One node of the working set: its inventory, its health and its agents.

use std::sync::Arc;

use hayward_node_status_api::{Heartbeat, Inventory, NodeEntry};
use hayward_node_status_domain::lease_forecast::LossDelay;
use hayward_node_status_domain::{
    AgentInstances, Brake, FlapCounter, Health, NodeFacts, claimed_size::clamp_to_limit,
};
use hayward_vocabulary::{NodeName, Size, Timestamp};

use super::{ClaimLimits, Drain};
use crate::context::Context;
use crate::heartbeats::{HeartbeatState, NodeDetails};
use crate::state_conversions;

/// Pool of a node if its agent names none.
pub const DEFAULT_POOL: &str = "default";

#[derive(Clone)]
pub struct Node {
    pub name: NodeName,
    pub pool: String,
    /// Pool by policy, from rm-scheduler. `None` until it is known.
    pub policy_pool: Option<String>,
    pub inventory: Inventory,
    pub boot_id: String,
    pub agent_instance: String,
    pub quiesced: bool,
    /// Reason for `quiesced`. Empty without one.
    pub quiesce_reason: String,
    /// Limits of the resources and the pool that the node may claim (S15).
    pub claim_limits: Option<ClaimLimits>,
    pub health: Health,
    pub health_reason: String,
    pub schedulable: bool,
    /// Operator and reason of varying the node off. Empty while it is on.
    pub off_reason: String,
    pub since: Timestamp,
    pub heartbeat: Arc<HeartbeatState>,
    pub agents: AgentInstances,
    /// Agent instances that an operator rejected (F28).
    pub refused: Vec<String>,
    pub flaps: FlapCounter,
    pub watch_began_ms: u64,
    /// Time of the next scheduled judgement.
    pub due_ms: Option<u64>,
    /// Number of changes written since the history was last trimmed.
    pub changes: u32,
}

impl Node {
    /// Creates a node from its first heartbeat. Its health is provisional, because it is judged at
    /// once.
    pub fn from_first_heartbeat(name: NodeName, report: &Heartbeat, now: Timestamp) -> Self {
        let heartbeat = Arc::new(HeartbeatState::default());
        heartbeat.set_version(&report.inventory.version);
        Self {
            name,
            pool: pool_of(&report.inventory),
            policy_pool: None,
            inventory: report.inventory.clone(),
            boot_id: report.boot_id.clone(),
            agent_instance: report.agent_instance.clone(),
            quiesced: report.quiesced,
            quiesce_reason: report.quiesce_reason.clone().unwrap_or_default(),
            claim_limits: None,
            health: Health::Suspect,
            health_reason: String::new(),
            schedulable: true,
            off_reason: String::new(),
            since: now,
            heartbeat,
            agents: AgentInstances::new(report.agent_instance.clone(), Vec::new()),
            refused: Vec::new(),
            flaps: FlapCounter::default(),
            watch_began_ms: 0,
            due_ms: None,
            changes: 0,
        }
    }

    /// Returns the pool whose brake counts the node.
    pub fn brake_pool(&self) -> &str {
        self.policy_pool.as_ref().unwrap_or(&self.pool)
    }

    /// Applies a heartbeat, and returns whether published data changed.
    pub fn apply(&mut self, report: Heartbeat, restarted: bool) -> bool {
        // A node keeps its pool until its agent restarts. A node enrolled for a pool is always in
        // that pool.
        let has_fixed_pool = self
            .claim_limits
            .as_ref()
            .is_some_and(|it| it.pool.is_some());
        let pool = if restarted || has_fixed_pool {
            pool_of(&report.inventory)
        } else {
            self.pool.clone()
        };
        let quiesce_reason = report.quiesce_reason.unwrap_or_default();
        let publish = self.inventory != report.inventory
            || self.pool != pool
            || self.boot_id != report.boot_id
            || self.agent_instance != report.agent_instance
            || self.quiesced != report.quiesced
            || self.quiesce_reason != quiesce_reason;
        self.heartbeat.set_version(&report.inventory.version);
        self.pool = pool;
        self.inventory = report.inventory;
        self.boot_id = report.boot_id;
        self.agent_instance = report.agent_instance;
        self.quiesced = report.quiesced;
        self.quiesce_reason = quiesce_reason;
        publish
    }

    /// Returns the history texts for the changes in a heartbeat.
    pub fn history_lines(&self, report: &Heartbeat, restarted: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if restarted && self.boot_id != report.boot_id {
            lines.push("the machine booted: its work has ended".to_owned());
        } else if restarted {
            lines.push("agent started".to_owned());
        }
        let pool = pool_of(&report.inventory);
        if restarted && self.pool != pool {
            lines.push(format!("moved from pool {} to {pool}", self.pool));
        }
        // The usable capacities may be below the claims (S15).
        let claimed = &report.inventory.capacity;
        let (before, after) = (self.capacity(), self.clamp_size(claimed));
        if before != after {
            let change = if after.fits(&before) {
                "shrank"
            } else {
                "changed"
            };
            lines.push(format!(
                "{change} from {} to {}",
                state_conversions::size_text(&before),
                state_conversions::size_text(&after)
            ));
        }
        if self.inventory.capacity != *claimed {
            lines.extend(self.clamped_claim_text(claimed));
        }
        lines
    }

    /// Returns the history text for a claim above the limit.
    pub fn clamped_claim_text(&self, claimed: &Size) -> Option<String> {
        let allowed = self.clamp_size(claimed);
        let (claimed, allowed) = (claimed != &allowed).then(|| {
            (
                state_conversions::size_text(claimed),
                state_conversions::size_text(&allowed),
            )
        })?;
        Some(format!("claims {claimed}, limited to {allowed}"))
    }

    pub fn facts(&self, brake: Brake, context: &Context, now_ms: u64) -> NodeFacts<'_> {
        let limits = context.limits;
        let last_heartbeat_ms = self.heartbeat.last_heartbeat_ms();
        // After an outage of this service, a node without a heartbeat becomes lost later (B2).
        let warm_up = match last_heartbeat_ms {
            None => self
                .watch_began_ms
                .saturating_add(context.guards.warm_up_ms),
            Some(_) => 0,
        };
        let not_lost_before_ms = brake.not_lost_before_ms(limits.lost_ms).max(warm_up);
        NodeFacts {
            before: self.health,
            watch_began_ms: self.watch_began_ms,
            last_heartbeat_ms,
            quiesced: self.quiesced.then_some(self.quiesce_reason.as_str()),
            duplicate_agents: self
                .agents
                .conflict_until_ms(limits.lost_ms)
                .is_some_and(|until| now_ms < until),
            // Varying a silent node off confirms that it is gone, so the brake does not apply (B1).
            brake_on: brake.is_on() && self.schedulable,
            not_lost_before_ms: if self.schedulable {
                not_lost_before_ms
            } else {
                0
            },
            flaps: self.flaps.reported_count(now_ms),
            limits,
        }
    }

    /// Returns the usable capacity: the claim, clamped to its limit.
    pub fn capacity(&self) -> Size {
        self.clamp_size(&self.inventory.capacity)
    }

    fn clamp_size(&self, claimed: &Size) -> Size {
        let mut size = claimed.clone();
        let Some(ClaimLimits { max_size, .. }) = &self.claim_limits else {
            return size;
        };
        size.memory_bytes = clamp_to_limit(size.memory_bytes, max_size.memory_bytes);
        size.cpu_milli = clamp_to_limit(size.cpu_milli, max_size.cpu_milli);
        size.gpu_milli = clamp_to_limit(size.gpu_milli, max_size.gpu_milli);
        for (name, amount) in &mut size.extras {
            *amount = clamp_to_limit(*amount, max_size.extras.get(name).copied().unwrap_or(0));
        }
        size
    }

    pub fn reason(&self, drain: Option<&Drain>) -> String {
        let drain = drain.map(Drain::reason_text).unwrap_or_default();
        let reasons = [&self.off_reason, &drain, &self.health_reason];
        let reasons: Vec<&str> = reasons.into_iter().map(String::as_str).collect();
        let reasons: Vec<&str> = reasons
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        reasons.join("; ")
    }

    pub fn entry(&self, drain: Option<&Drain>) -> NodeEntry {
        NodeEntry {
            node: self.name.clone(),
            pool: self.pool.clone(),
            capacity: self.capacity(),
            labels: self.inventory.labels.clone(),
            runtimes: self.inventory.runtimes.clone(),
            health: state_conversions::to_api_health(self.health),
            schedulable: self.schedulable,
            reason: self.reason(drain),
            since: self.since,
            drain: drain.map(Drain::order),
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
        }
    }

    /// Returns all agent instances that report as this node.
    pub fn instances(&self, quiet_ms: u64, now_ms: u64) -> Vec<String> {
        let mut instances = self.agents.rivals(quiet_ms, now_ms);
        instances.push(self.agents.current().to_owned());
        instances
    }

    /// Returns the details that are not published.
    pub fn details(&self, drain: Option<&Drain>, context: &Context, now_ms: u64) -> NodeDetails {
        let claimed = &self.inventory.capacity;
        let mut rivals = self.instances(context.limits.lost_ms, now_ms);
        if rivals.len() == 1 {
            rivals.clear();
        }
        NodeDetails {
            next: None,
            flaps: self.flaps.count(now_ms),
            rivals,
            claimed: (*claimed != self.capacity()).then(|| claimed.clone()),
            drain_state: drain.map(|drain| drain.state),
            loss_delay: LossDelay::default(),
            counted_in: self
                .policy_pool
                .clone()
                .filter(|policy_pool| *policy_pool != self.pool),
        }
    }
}

/// Returns the pool that the agent names, or else the default pool.
pub fn pool_of(inventory: &Inventory) -> String {
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

    fn heartbeat(pool: &str) -> Heartbeat {
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
            quiesce_reason: None,
        }
    }

    /// Another pool in a heartbeat has no effect before the restart.
    #[test]
    fn a_node_keeps_its_pool_until_its_agent_restarts() {
        let name = NodeName::new("n1").unwrap();
        let mut node = Node::from_first_heartbeat(name, &heartbeat("old"), Timestamp::default());
        assert!(node.apply(heartbeat("new"), false), "other fields changed");
        assert_eq!(node.entry(None).pool, "old");
        assert!(node.apply(heartbeat("new"), true));
        assert_eq!(node.entry(None).pool, "new");
    }

    #[test]
    fn each_dimension_of_a_claim_is_clamped() {
        let mut node = Node::from_first_heartbeat(
            NodeName::new("n1").unwrap(),
            &heartbeat("p"),
            Timestamp::default(),
        );
        node.inventory.capacity = Size {
            memory_bytes: 64 << 30,
            cpu_milli: 8_000,
            gpu_milli: 4_000,
            extras: [("fpga".to_owned(), 9), ("tape".to_owned(), 1)].into(),
        };
        assert_eq!(node.capacity(), node.inventory.capacity);
        let max_size = Size {
            memory_bytes: 16 << 30,
            cpu_milli: 16_000,
            gpu_milli: 0,
            extras: [("fpga".to_owned(), 2)].into(),
        };
        node.claim_limits = ClaimLimits::new(Some(max_size), None);
        let size = node.capacity();
        assert_eq!((size.memory_bytes, size.cpu_milli), (16 << 30, 8_000));
        assert_eq!(
            size.gpu_milli, 4_000,
            "a resource without a limit is not clamped"
        );
        assert_eq!((size.extras["fpga"], size.extras["tape"]), (2, 1));

        let mut larger = heartbeat("p");
        larger.inventory.capacity = node.inventory.capacity.clone();
        assert!(node.history_lines(&larger, false).is_empty());
        larger.inventory.capacity.memory_bytes = 1 << 50;
        let lines = node.history_lines(&larger, false);
        assert_eq!(
            lines.len(),
            1,
            "the usable capacity is unchanged: {lines:?}"
        );
        assert!(lines[0].contains("limited to"), "{lines:?}");
        larger.inventory.capacity.memory_bytes = 8 << 30;
        let lines = node.history_lines(&larger, false).join("; ");
        assert!(lines.starts_with("shrank from 16"), "{lines}");
    }
}
