//! Judges the health of the nodes whose check is due, and of the pools with their brakes. Each
//! changed judgement is written and published.

use std::time::Duration;

use hayward_node_status_api::NODES;
use hayward_node_status_domain::lease_forecast::LossDelay;
use hayward_node_status_domain::{self as domain, Health, Judgement, judge};
use hayward_publication::{Batch, Moment, Wake};
use hayward_vocabulary::NodeName;

use crate::command_handlers::Cause;
use crate::context::Context;
use crate::ledger::Ledger;
use crate::metrics;
use crate::model::Node;
use crate::state_conversions;
use crate::store::{ChangeRow, NodeRow, Rows};

/// Number of changes after which the history of a node is trimmed.
const TRIM_INTERVAL_CHANGES: u32 = 50;

impl Ledger {
    /// Records losses of contact, then judges the brakes of the pools, and then the nodes. The
    /// brake therefore counts all losses of an incident before any node becomes lost.
    pub(crate) fn judge_all_due(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        let now_ms = self.now_ms(moment);
        let mut names = self.take_due(now_ms);
        for name in &names {
            self.record_silence(name, now_ms);
        }
        names.extend(self.judge_brakes(now_ms));
        for name in names {
            self.judge_node(&name, Cause::default(), moment, batch);
        }
        let next_check = self.due.first();
        let next_check_ms = next_check.map(|(due_ms, _)| due_ms.saturating_sub(now_ms));
        let deadline = self.drain_checks.first();
        let deadline_ms = deadline.map(|(at, _)| at.ms_since(moment.now));
        let wait_ms = next_check_ms.into_iter().chain(deadline_ms).min();
        wait_ms.map_or(Wake::OnCommand, |ms| Wake::After(Duration::from_millis(ms)))
    }

    /// Takes the nodes whose check is due.
    fn take_due(&mut self, now_ms: u64) -> Vec<NodeName> {
        let mut names = Vec::new();
        while self
            .due
            .first()
            .is_some_and(|(due_ms, _)| *due_ms <= now_ms)
        {
            let Some((_, name)) = self.due.pop_first() else {
                break;
            };
            if let Some(node) = self.nodes.get_mut(&name) {
                node.due_ms = None;
            }
            names.push(name);
        }
        names
    }

    /// Records in the pool that a node lost contact, if it did.
    fn record_silence(&mut self, name: &NodeName, now_ms: u64) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        if node.health == Health::Lost {
            return;
        }
        // The brake is assumed to be on, so that a silent node is always judged suspect.
        let facts = domain::NodeFacts {
            brake_on: true,
            ..node.facts(domain::Brake::default(), &self.context, now_ms)
        };
        let silent = judge(&facts, now_ms).health == Health::Suspect;
        let brake_pool = node.brake_pool().to_owned();
        let pool = self.pools.entry(brake_pool.clone()).or_default();
        if silent && !pool.silent.contains_key(name) {
            pool.silent.insert(name.clone(), now_ms);
            self.dirty_pools.insert(brake_pool);
        }
    }

    /// Judges the brakes of changed pools, and returns the nodes that must be judged again.
    fn judge_brakes(&mut self, now_ms: u64) -> Vec<NodeName> {
        let mut to_judge = Vec::new();
        for name in std::mem::take(&mut self.dirty_pools) {
            let Some(pool) = self.pools.get_mut(&name) else {
                continue;
            };
            if pool.size == 0 {
                self.pools.remove(&name);
                continue;
            }
            let silent_since_ms: Vec<u64> = pool.silent.values().copied().collect();
            let input = domain::Pool {
                size: pool.size,
                silent_since_ms: &silent_since_ms,
            };
            let was_on = pool.brake.is_on();
            pool.brake = pool.brake.update(input, now_ms);
            let on = pool.brake.is_on();
            if was_on != on {
                let silent = silent_since_ms.len();
                tracing::warn!(
                    pool = name,
                    silent,
                    size = pool.size,
                    on,
                    "the brake of a pool changed"
                );
                // The brake also changes the lease forecasts of the other nodes of the pool (W7).
                let nodes = self.nodes.values();
                let nodes = nodes.filter(|node| node.brake_pool() == name);
                to_judge.extend(nodes.map(|node| node.name.clone()));
            }
        }
        to_judge
    }

    /// Judges one node, and writes and publishes the result if it changed.
    pub(crate) fn judge_node(
        &mut self,
        name: &NodeName,
        cause: Cause,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let now_ms = self.now_ms(moment);
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let brake_pool = node.brake_pool().to_owned();
        let pool = self.pools.entry(brake_pool.clone()).or_default();
        let before = node.health;
        if lost_contact(
            before,
            &node.facts(pool.brake, &self.context, now_ms),
            now_ms,
        ) {
            node.flaps.record_loss(now_ms);
            metrics::count_loss(&brake_pool);
        }
        let facts = node.facts(pool.brake, &self.context, now_ms);
        let judgement = judge(&facts, now_ms);
        let responsive = is_responsive(judgement.health);
        let judgement_holds =
            responsive && facts.last_heartbeat_ms.is_some() && !facts.duplicate_agents;
        if responsive && pool.silent.remove(name).is_some() {
            self.dirty_pools.insert(brake_pool);
        }
        let loss_delay = LossDelay {
            brake_on: facts.brake_on,
            not_lost_before_ms: facts.not_lost_before_ms,
            lost: judgement.health == Health::Lost,
        };
        let judgement_changed =
            judgement.health != before || judgement.reason != node.health_reason;
        if judgement.health != before {
            node.since = moment.now;
        }
        let drain = self.drains.get(name).filter(|drain| drain.is_active());
        // During a drain, every heartbeat goes to the ledger, because it reports the containers.
        node.heartbeat
            .set_judgement(judgement_holds && drain.is_none(), node.schedulable);
        let due_ms = next_due_ms(node, &judgement, &self.context, now_ms);
        let mut details = node.details(drain, &self.context, now_ms);
        (details.next, details.loss_delay) = (Some(judgement.next), loss_delay);
        node.heartbeat.set_details(details);
        node.health = judgement.health;
        node.health_reason = judgement.reason;
        let due_before_ms = std::mem::replace(&mut node.due_ms, due_ms);
        self.reschedule(name, due_before_ms, due_ms);
        if judgement_changed || cause.publish {
            let cause = Cause {
                judgement_changed,
                ..cause
            };
            self.publish_node(name, cause, moment, batch);
        }
    }

    /// Replaces the time at which a node is judged again. `None` means never.
    fn reschedule(&mut self, name: &NodeName, before_ms: Option<u64>, due_ms: Option<u64>) {
        if let Some(before_ms) = before_ms {
            self.due.remove(&(before_ms, name.clone()));
        }
        if let Some(due_ms) = due_ms {
            self.due.insert((due_ms, name.clone()));
        }
    }

    /// Writes the row and the history of a node, and publishes its entry.
    fn publish_node(
        &mut self,
        name: &NodeName,
        cause: Cause,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let now_ms = self.now_ms(moment);
        let quiet_ms = self.context.limits.lost_ms;
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let drain = self.drains.get(name).filter(|drain| drain.is_active());
        let entry = node.entry(drain);
        if cause.judgement_changed || cause.event.is_some() || cause.by.is_some() {
            let reason = match cause.event {
                Some(event) if cause.judgement_changed => format!("{event}; {}", entry.reason),
                Some(event) => event,
                None => entry.reason.clone(),
            };
            batch.rows.changes.push(ChangeRow {
                node: name.clone(),
                at: moment.now,
                health: state_conversions::health_name(node.health),
                schedulable: node.schedulable,
                reason,
                by: cause.by,
            });
            node.changes += 1;
            if node.changes >= TRIM_INTERVAL_CHANGES {
                node.changes = 0;
                batch.rows.histories_to_trim.push(name.clone());
            }
        }
        let row = NodeRow::from_node(node, quiet_ms, now_ms);
        batch.rows.nodes.insert(name.clone(), Some(row));
        batch.publish(NODES, "", name.as_str(), &entry);
    }
}

/// Returns whether the heartbeats of a node arrive.
fn is_responsive(health: Health) -> bool {
    matches!(health, Health::Healthy | Health::Quiesced)
}

/// Returns whether a node has just lost contact. Losses during an incident of the pool do not count
/// as flapping (F33).
fn lost_contact(before: Health, facts: &domain::NodeFacts<'_>, now_ms: u64) -> bool {
    is_responsive(before)
        && facts.last_heartbeat_ms.is_some()
        && !facts.brake_on
        && !is_responsive(judge(facts, now_ms).health)
}

/// Returns the time of the next check: the next limit of silence, the end of a conflict of agents,
/// or the end of the flap count.
fn next_due_ms(node: &Node, judgement: &Judgement, context: &Context, now_ms: u64) -> Option<u64> {
    let conflict = node.agents.conflict_until_ms(context.limits.lost_ms);
    let flaps = node.flaps.expires_at_ms();
    let later = conflict.into_iter().chain(flaps).filter(|at| now_ms < *at);
    judgement.next_check_ms.into_iter().chain(later).min()
}
