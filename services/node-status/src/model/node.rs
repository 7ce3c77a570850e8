//! One node in the working set.

use std::sync::Arc;

use hayward_node_status_api::{Heartbeat, Inventory, NodeEntry};
use hayward_node_status_domain::lease::Mercy;
use hayward_node_status_domain::{Brake, Flaps, Health, Record, Twins, claimed_size::held_to};
use hayward_vocabulary::{NodeName, Size, Timestamp};

use super::{Bounds, Drain};
use crate::context::Context;
use crate::format;
use crate::heartbeats::{Pulse, Shown};

/// Where a node is when its agent names no pool.
pub const DEFAULT_POOL: &str = "default";

#[derive(Clone)]
pub struct Node {
    pub name: NodeName,
    pub pool: String,
    /// The pool the policy puts it in, as rm-scheduler says; absent while that is not known.
    pub placed: Option<String>,
    pub inventory: Inventory,
    pub boot_id: String,
    pub agent_instance: String,
    pub quiesced: bool,
    /// Why it asks for no new work; empty where it does not or does not say.
    pub quiesce_reason: String,
    /// What it may claim (S14, S15).
    pub bounds: Option<Bounds>,
    pub health: Health,
    pub health_reason: String,
    pub schedulable: bool,
    /// Who varied it off and why; empty while it is on.
    pub off_reason: String,
    pub since: Timestamp,
    pub pulse: Arc<Pulse>,
    pub twins: Twins,
    /// Agents that an operator said not to be this node (F28).
    pub refused: Vec<String>,
    pub flaps: Flaps,
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
            placed: None,
            inventory: beat.inventory.clone(),
            boot_id: beat.boot_id.clone(),
            agent_instance: beat.agent_instance.clone(),
            quiesced: beat.quiesced,
            quiesce_reason: beat.quiesce_reason.clone().unwrap_or_default(),
            bounds: None,
            health: Health::Suspect,
            health_reason: String::new(),
            schedulable: true,
            off_reason: String::new(),
            since: now,
            pulse,
            twins: Twins::of(beat.agent_instance.clone(), Vec::new()),
            refused: Vec::new(),
            flaps: Flaps::default(),
            watched_since_ms: 0,
            due_ms: None,
            changes: 0,
        }
    }

    /// The pool whose brakes count it.
    pub fn counted_in(&self) -> &str {
        self.placed.as_ref().unwrap_or(&self.pool)
    }

    /// Takes over what the node says of itself; true when that is news.
    pub fn says(&mut self, beat: Heartbeat, restarted: bool) -> bool {
        // a node keeps its pool until it is configured anew, which takes a restart. One that
        // was enrolled for a pool is in no other (S14).
        let bound = self.bounds.as_ref().is_some_and(|it| it.pool.is_some());
        let pool = if restarted || bound {
            pool_of(&beat.inventory)
        } else {
            self.pool.clone()
        };
        let quiesce_reason = beat.quiesce_reason.unwrap_or_default();
        let news = self.inventory != beat.inventory
            || self.pool != pool
            || self.boot_id != beat.boot_id
            || self.agent_instance != beat.agent_instance
            || self.quiesced != beat.quiesced
            || self.quiesce_reason != quiesce_reason;
        self.pulse.runs(&beat.inventory.version);
        self.pool = pool;
        self.inventory = beat.inventory;
        self.boot_id = beat.boot_id;
        self.agent_instance = beat.agent_instance;
        self.quiesced = beat.quiesced;
        self.quiesce_reason = quiesce_reason;
        news
    }

    /// What its history should tell of a heartbeat.
    pub fn differs(&self, beat: &Heartbeat, restarted: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if restarted && self.boot_id != beat.boot_id {
            lines.push("the machine booted: what ran there is gone".to_owned());
        } else if restarted {
            lines.push("agent started".to_owned());
        }
        let pool = pool_of(&beat.inventory);
        if restarted && self.pool != pool {
            lines.push(format!("moved from pool {} to {pool}", self.pool));
        }
        // As it counts, which is not always what it says (S15).
        let claimed = &beat.inventory.capacity;
        let (before, after) = (self.capacity(), self.held(claimed));
        if before != after {
            let how = if after.fits(&before) {
                "shrank"
            } else {
                "changed"
            };
            lines.push(format!(
                "{how} from {} to {}",
                format::size(&before),
                format::size(&after)
            ));
        }
        if self.inventory.capacity != *claimed {
            lines.extend(self.clipped(claimed));
        }
        lines
    }

    /// What its history should tell of a claim that is held to less.
    pub fn clipped(&self, claimed: &Size) -> Option<String> {
        let held = self.held(claimed);
        let (claimed, held) =
            (claimed != &held).then(|| (format::size(claimed), format::size(&held)))?;
        Some(format!(
            "says it has {claimed} and may say {held}: held to that"
        ))
    }

    pub fn record(&self, brake: Brake, context: &Context, now_ms: u64) -> Record<'_> {
        let limits = context.limits;
        let heard_ms = self.pulse.heard_ms();
        // B2: who was not heard since our own outage has longer than the usual limit.
        let warm_up = match heard_ms {
            None => self
                .watched_since_ms
                .saturating_add(context.guards.warm_up_ms),
            Some(_) => 0,
        };
        let spared = brake.spares_until_ms(limits.lost_ms).max(warm_up);
        Record {
            before: self.health,
            watched_since_ms: self.watched_since_ms,
            heard_ms,
            quiesced: self.quiesced.then_some(self.quiesce_reason.as_str()),
            twins: self
                .twins
                .until_ms(limits.lost_ms)
                .is_some_and(|until| now_ms < until),
            // An operator who varies a silent node off knows that it is gone (B1).
            braked: brake.is_on() && self.schedulable,
            spared_until_ms: if self.schedulable { spared } else { 0 },
            flaps: self.flaps.many(now_ms),
            limits,
        }
    }

    /// What it may hand out: what it claims, held to its limit.
    pub fn capacity(&self) -> Size {
        self.held(&self.inventory.capacity)
    }

    fn held(&self, claimed: &Size) -> Size {
        let mut held = claimed.clone();
        let Some(Bounds { most, .. }) = &self.bounds else {
            return held;
        };
        held.memory_bytes = held_to(held.memory_bytes, most.memory_bytes);
        held.cpu_milli = held_to(held.cpu_milli, most.cpu_milli);
        held.gpu_milli = held_to(held.gpu_milli, most.gpu_milli);
        for (name, amount) in &mut held.extras {
            *amount = held_to(*amount, most.extras.get(name).copied().unwrap_or(0));
        }
        held
    }

    pub fn reason(&self, drain: Option<&Drain>) -> String {
        let drain = drain.map(Drain::phrase).unwrap_or_default();
        let said = [&self.off_reason, &drain, &self.health_reason];
        let said: Vec<&str> = said.into_iter().map(String::as_str).collect();
        let said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
        said.join("; ")
    }

    pub fn entry(&self, drain: Option<&Drain>) -> NodeEntry {
        NodeEntry {
            node: self.name.clone(),
            pool: self.pool.clone(),
            capacity: self.capacity(),
            labels: self.inventory.labels.clone(),
            runtimes: self.inventory.runtimes.clone(),
            health: format::published(self.health),
            schedulable: self.schedulable,
            reason: self.reason(drain),
            since: self.since,
            drain: drain.map(Drain::order),
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
        }
    }

    /// All agents that report as this node.
    pub fn instances(&self, quiet_ms: u64, now_ms: u64) -> Vec<String> {
        let mut all = self.twins.rivals(quiet_ms, now_ms);
        all.push(self.twins.current().to_owned());
        all
    }

    /// What only those see who ask for the node.
    pub fn shown(&self, drain: Option<&Drain>, context: &Context, now_ms: u64) -> Shown {
        let claimed = &self.inventory.capacity;
        let mut rivals = self.instances(context.limits.lost_ms, now_ms);
        if rivals.len() == 1 {
            rivals.clear();
        }
        Shown {
            next: None,
            flaps: self.flaps.count(now_ms),
            rivals,
            claimed: (*claimed != self.capacity()).then(|| claimed.clone()),
            drain_state: drain.map(|drain| drain.state),
            mercy: Mercy::default(),
            counted_in: self.placed.clone().filter(|placed| *placed != self.pool),
        }
    }
}

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
            quiesce_reason: None,
        }
    }

    #[test]
    fn r_6_5_a_node_keeps_its_pool_until_it_is_configured_anew() {
        let name = NodeName::new("n1").unwrap();
        let mut node = Node::first_heard(name, &beat("old"), Timestamp::default());
        assert!(node.says(beat("new"), false), "what it says is news");
        assert_eq!(node.entry(None).pool, "old");
        assert!(node.says(beat("new"), true));
        assert_eq!(node.entry(None).pool, "new");
    }

    #[test]
    fn s15_a_claim_is_held_to_the_limit_dimension_by_dimension() {
        let mut node = Node::first_heard(
            NodeName::new("n1").unwrap(),
            &beat("p"),
            Timestamp::default(),
        );
        node.inventory.capacity = Size {
            memory_bytes: 64 << 30,
            cpu_milli: 8_000,
            gpu_milli: 4_000,
            extras: [("fpga".to_owned(), 9), ("tape".to_owned(), 1)].into(),
        };
        assert_eq!(node.capacity(), node.inventory.capacity);
        let most = Size {
            memory_bytes: 16 << 30,
            cpu_milli: 16_000,
            gpu_milli: 0,
            extras: [("fpga".to_owned(), 2)].into(),
        };
        node.bounds = Bounds::of(Some(most), None);
        let held = node.capacity();
        assert_eq!((held.memory_bytes, held.cpu_milli), (16 << 30, 8_000));
        assert_eq!(held.gpu_milli, 4_000, "not named, not limited");
        assert_eq!((held.extras["fpga"], held.extras["tape"]), (2, 1));

        let mut more = beat("p");
        more.inventory.capacity = node.inventory.capacity.clone();
        assert!(node.differs(&more, false).is_empty());
        more.inventory.capacity.memory_bytes = 1 << 50;
        let lines = node.differs(&more, false);
        assert_eq!(lines.len(), 1, "what counts is the same: {lines:?}");
        assert!(lines[0].contains("held to that"), "{lines:?}");
        more.inventory.capacity.memory_bytes = 8 << 30;
        let lines = node.differs(&more, false).join("; ");
        assert!(lines.starts_with("shrank from 16"), "{lines}");
    }
}
