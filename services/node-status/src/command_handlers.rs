//! Handlers of the commands for heartbeats, varying a node off or on, and removing a node. Each
//! handler validates its command first. It then changes the state, the rows and the publication
//! together.

mod agent_identity;
mod drain;

use hayward_node_status_api::drain::DrainState;
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, NODES, NodeEntry};
use hayward_node_status_domain::Health;
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use crate::command::{ReceivedHeartbeat, VaryNode};
use crate::error::Refusal;
use crate::ledger::Ledger;
use crate::model::{ClaimLimits, Node, pool_of};
use crate::state_conversions;
use crate::store::{DrainRow, Rows};

/// Event that led to a judgement of a node, for the history.
#[derive(Default)]
pub(crate) struct Cause {
    /// True writes and publishes the node even if the judgement is unchanged.
    pub publish: bool,
    /// Text for the history.
    pub event: Option<String>,
    /// Caller of the command. `None` if no operator caused the event.
    pub by: Option<String>,
    /// True when the judgement changed.
    pub judgement_changed: bool,
}

impl Ledger {
    /// Creates a node on its first heartbeat. Later heartbeats update the node, and revive it if it
    /// is lost.
    pub(crate) fn heartbeat(
        &mut self,
        received: ReceivedHeartbeat,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<HeartbeatAnswer, Refusal> {
        let name = received.node.clone();
        let heartbeat = &received.heartbeat;
        self.check_pool(&name, heartbeat)?;
        let mut cause = Cause::default();
        if !self.nodes.contains_key(&name) {
            let count = self.nodes.len();
            let max_nodes = self.context.guards.max_nodes;
            if count >= max_nodes {
                return Err(Refusal::Full {
                    node: name,
                    count,
                    max_nodes,
                });
            }
            self.add_new_node(&name, heartbeat, moment);
            cause.publish = true;
            let node = self.nodes.get(&name);
            let clamped =
                node.and_then(|node| node.clamped_claim_text(&heartbeat.inventory.capacity));
            let lines = ["first heartbeat".to_owned()].into_iter().chain(clamped);
            cause.event = Some(lines.collect::<Vec<_>>().join("; "));
        }
        self.apply_heartbeat(received, moment, &mut cause)?;
        self.judge_node(&name, cause, moment, batch);
        self.judge_drain(&name, moment, batch);
        let node = self.nodes.get(&name);
        Ok(HeartbeatAnswer {
            health: state_conversions::to_api_health(
                node.map_or(Health::Suspect, |node| node.health),
            ),
            schedulable: node.is_none_or(|node| node.schedulable),
            heartbeat_ms: self.context.period_ms(),
            lease_ms: Some(self.context.lease_ms),
        })
    }

    /// Refuses a heartbeat with another pool than the pool of the enrolment (S14).
    fn check_pool(&self, name: &NodeName, heartbeat: &Heartbeat) -> Result<(), Refusal> {
        let claimed = pool_of(&heartbeat.inventory);
        let claim_limits = self
            .claim_limits
            .get(name)
            .filter(|limits| !limits.admits(&claimed));
        let Some(pool) = claim_limits.and_then(|limits| limits.pool.clone()) else {
            return Ok(());
        };
        let node = name.clone();
        Err(Refusal::OtherPool {
            node,
            pool,
            claimed,
        })
    }

    /// Returns the limits of the claims of a node: those of its enrolment. The settings limit
    /// resources without such a limit, because a token from `prepare` has no enrolment (S15).
    pub(crate) fn limits_of(&self, name: &NodeName) -> ClaimLimits {
        let enrolled = self.claim_limits.get(name);
        let mut max_size = enrolled.map_or_else(Default::default, |it| it.max_size.clone());
        let default = &self.context.guards.max_claim;
        for (limit, default) in [
            (&mut max_size.memory_bytes, default.memory_bytes),
            (&mut max_size.cpu_milli, default.cpu_milli),
            (&mut max_size.gpu_milli, default.gpu_milli),
        ] {
            if *limit == 0 {
                *limit = default;
            }
        }
        let pool = enrolled.and_then(|it| it.pool.clone());
        ClaimLimits { max_size, pool }
    }

    fn add_new_node(&mut self, name: &NodeName, heartbeat: &Heartbeat, moment: &Moment) {
        let mut node = Node::from_first_heartbeat(name.clone(), heartbeat, moment.now);
        node.claim_limits = Some(self.limits_of(name));
        let policy_pool = self.scheduler_nodes.get(name.as_str());
        node.policy_pool = policy_pool.map(|machine| machine.pool.clone());
        self.context
            .heartbeats
            .insert(name.clone(), node.heartbeat.clone());
        let now_ms = self.now_ms(moment);
        self.add(node, now_ms);
    }

    /// Applies a heartbeat to an existing node, and adds its changes to the history.
    fn apply_heartbeat(
        &mut self,
        received: ReceivedHeartbeat,
        moment: &Moment,
        cause: &mut Cause,
    ) -> Result<(), Refusal> {
        let ReceivedHeartbeat {
            node: name,
            heartbeat,
            digest,
        } = received;
        let now_ms = self.now_ms(moment);
        let quiet_ms = self.context.limits.lost_ms;
        let Some(node) = self.nodes.get_mut(&name) else {
            return Ok(());
        };
        if node.refused.contains(&heartbeat.agent_instance) {
            return Err(Refusal::OtherAgent(name));
        }
        node.heartbeat.record(now_ms);
        node.heartbeat.set_metrics(heartbeat.metrics.clone());
        let restarted = node.agents.record_report(&heartbeat.agent_instance, now_ms);
        let has_rivals = !node.agents.rivals(quiet_ms, now_ms).is_empty();
        if let Some(drain) = self.drains.get_mut(&name) {
            // An incomplete report, or a report of one of two rival agents, proves nothing (I17).
            let is_proof = heartbeat.metrics.complete && !has_rivals;
            drain.running = is_proof.then_some(heartbeat.metrics.containers);
        }
        if has_rivals {
            // While two agents report, the ledger gets every heartbeat and applies none (F28).
            node.heartbeat.set_digest(0);
            return Ok(());
        }
        let lines = node.history_lines(&heartbeat, restarted);
        if !lines.is_empty() {
            cause.event = Some(lines.join("; "));
        }
        let before = node.brake_pool().to_owned();
        cause.publish |= node.apply(heartbeat, restarted);
        node.heartbeat.set_digest(digest);
        self.update_pool_counts(&name, &before);
        Ok(())
    }

    /// Updates the counts of two pools after the pool of a node changed from `before`.
    pub(crate) fn update_pool_counts(&mut self, name: &NodeName, before: &str) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        if node.brake_pool() == before {
            return;
        }
        let current = node.brake_pool().to_owned();
        let silent_since = self.remove_from_pool(name, before);
        let pool = self.pools.entry(current.clone()).or_default();
        pool.size += 1;
        pool.silent
            .extend(silent_since.map(|at| (name.clone(), at)));
        self.dirty_pools.insert(current);
    }

    /// Removes a node from the counts of a pool. Returns the time at which the node became silent,
    /// if it is silent.
    fn remove_from_pool(&mut self, name: &NodeName, pool: &str) -> Option<u64> {
        let state = self.pools.get_mut(pool)?;
        state.size = state.size.saturating_sub(1);
        self.dirty_pools.insert(pool.to_owned());
        state.silent.remove(name)
    }

    /// Varies a node off or on for an operator. A node that is off takes no new work until it is
    /// varied on.
    pub(crate) fn vary(
        &mut self,
        request: VaryNode,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<NodeEntry, Refusal> {
        let VaryNode {
            node: name,
            change,
            by,
        } = request;
        let node = self
            .nodes
            .get_mut(&name)
            .ok_or_else(|| Refusal::NoNode(name.clone()))?;
        let off_reason = match (change.schedulable, change.reason) {
            (true, _) => String::new(),
            (false, Some(reason)) => format!("varied off by {by}: {reason}"),
            (false, None) => format!("varied off by {by}"),
        };
        let is_switched = node.schedulable != change.schedulable;
        let publish = is_switched || node.off_reason != off_reason;
        if is_switched {
            node.since = moment.now;
        }
        node.schedulable = change.schedulable;
        node.off_reason = off_reason;
        let event = (is_switched && change.schedulable).then(|| "varied on".to_owned());
        self.judge_node(
            &name,
            Cause {
                publish,
                event,
                by: Some(by),
                judgement_changed: false,
            },
            moment,
            batch,
        );
        self.entry_of(&name)
    }

    /// Removes a lost node. Other nodes are not removed, because they may still run work or return.
    pub(crate) fn remove(
        &mut self,
        name: &NodeName,
        by: &str,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let node = self
            .nodes
            .get(name)
            .ok_or_else(|| Refusal::NoNode(name.clone()))?;
        if node.health != Health::Lost {
            let advice = removal_advice(node.health, node.schedulable);
            let health = state_conversions::health_name(node.health);
            return Err(Refusal::NotLost {
                node: name.clone(),
                health,
                advice,
            });
        }
        tracing::info!(node = %name, by, "node removed");
        let pool = node.brake_pool().to_owned();
        if let Some(due_ms) = node.due_ms {
            self.due.remove(&(due_ms, name.clone()));
        }
        self.remove_from_pool(name, &pool);
        self.nodes.remove(name);
        self.context.heartbeats.remove(name);
        if let Some(drain) = self.drains.get_mut(name).filter(|drain| drain.is_active()) {
            drain.state = DrainState::Cancelled;
            drain.state_since = moment.now;
            batch
                .rows
                .drains
                .insert(name.clone(), DrainRow::from_drain(drain));
        }
        self.reschedule_check(name, moment.now);
        batch.rows.nodes.insert(name.clone(), None);
        batch.withdraw(NODES, "", name.as_str());
        Ok(())
    }
}

/// Returns the advice for removing a node that is not lost. A silent node may still run work, so it
/// must become lost first.
fn removal_advice(health: Health, schedulable: bool) -> &'static str {
    match (health, schedulable) {
        // A lost node is removed, so this text is never shown.
        (Health::Lost, _) => "it is",
        (Health::Suspect, true) => {
            "if it is gone for good, vary it off; it is then given up once it has been silent for \
             long enough"
        }
        (Health::Suspect, false) => {
            "it is varied off and will be given up once it has been silent for long enough"
        }
        (Health::Healthy | Health::Quiesced, _) => {
            "stop its agent; it is then given up once it has been silent for long enough"
        }
    }
}
