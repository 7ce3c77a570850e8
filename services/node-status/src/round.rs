//! Time to decide: nodes whose time has come are judged, nobody else is looked at.

use std::time::Duration;

use hayward_node_status_api::NODES;
use hayward_node_status_domain::{self as domain, Health, judge};
use hayward_publication::{Batch, Moment, Wake};
use hayward_vocabulary::NodeName;

use crate::commands::Cause;
use crate::ledger::Ledger;
use crate::store::{ChangeRow, NodeRow, Rows};
use crate::words;

/// The history of a node is trimmed once in this many changes.
const TRIM_EVERY: u32 = 50;

impl Ledger {
    /// First notes who fell silent, then judges the brakes of their pools, so that an incident is
    /// seen whole before anybody is given up, and judges the nodes last.
    pub(crate) fn judge_all_due(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        let now_ms = self.now_ms(moment);
        let mut names = self.take_due(now_ms);
        for name in &names {
            self.note_silence(name, now_ms);
        }
        names.extend(self.judge_brakes(now_ms));
        for name in names {
            self.settle(&name, Cause::default(), moment, batch);
        }
        self.due.first().map_or(Wake::OnNews, |(due_ms, _)| {
            Wake::After(Duration::from_millis(due_ms.saturating_sub(now_ms)))
        })
    }

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

    fn note_silence(&mut self, name: &NodeName, now_ms: u64) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        if node.health == Health::Lost {
            return;
        }
        // Judged as with the brake on, because all that matters here is whether it is silent.
        let record = domain::Record {
            braked: true,
            ..node.record(true, self.context.limits, now_ms)
        };
        let silent = judge(&record, now_ms).health == Health::Suspect;
        let pool = self.pools.entry(node.pool.clone()).or_default();
        if silent && !pool.silent.contains_key(name) {
            pool.silent.insert(name.clone(), now_ms);
            self.stirred.insert(node.pool.clone());
        }
    }

    /// Judges the brakes of pools whose silence changed; returns who has to be judged again.
    fn judge_brakes(&mut self, now_ms: u64) -> Vec<NodeName> {
        let mut again = Vec::new();
        for name in std::mem::take(&mut self.stirred) {
            let Some(pool) = self.pools.get_mut(&name) else {
                continue;
            };
            if pool.size == 0 {
                self.pools.remove(&name);
                continue;
            }
            let silent_since_ms: Vec<u64> = pool.silent.values().copied().collect();
            let seen = domain::Pool {
                size: pool.size,
                silent_since_ms: &silent_since_ms,
            };
            let before = pool.brake.is_on();
            pool.brake = pool.brake.judged(seen, now_ms);
            let on = pool.brake.is_on();
            if before != on {
                let silent = silent_since_ms.len();
                tracing::warn!(
                    pool = name,
                    silent,
                    size = pool.size,
                    on,
                    "the brake of a pool"
                );
                again.extend(pool.silent.keys().cloned());
            }
        }
        again
    }

    /// Judges one node and tells whoever has to know, if there is anything to tell.
    pub(crate) fn settle(
        &mut self,
        name: &NodeName,
        cause: Cause,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let now_ms = self.now_ms(moment);
        let limits = self.context.limits;
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let pool = self.pools.entry(node.pool.clone()).or_default();
        let record = node.record(pool.brake.is_on(), limits, now_ms);
        let judged = judge(&record, now_ms);
        let well = matches!(judged.health, Health::Healthy | Health::Quiesced);
        if well && pool.silent.remove(name).is_some() {
            self.stirred.insert(node.pool.clone());
        }
        if judged.health != node.health {
            node.since = moment.now;
        }
        let turned = judged.health != node.health || judged.reason != node.health_reason;
        node.health = judged.health;
        node.health_reason = judged.reason;
        node.pulse.settle(
            well && record.heard_ms.is_some() && !record.twins,
            node.schedulable,
        );
        let twins_end = node.twins_until(limits).filter(|until| now_ms < *until);
        let due_ms = judged.again_ms.into_iter().chain(twins_end).min();
        if let Some(old) = std::mem::replace(&mut node.due_ms, due_ms) {
            self.due.remove(&(old, name.clone()));
        }
        if let Some(due_ms) = due_ms {
            self.due.insert((due_ms, name.clone()));
        }
        if turned || cause.news {
            self.tell(name, Cause { turned, ..cause }, moment, batch);
        }
    }

    fn tell(&mut self, name: &NodeName, cause: Cause, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let entry = node.entry();
        if cause.turned || cause.event.is_some() || cause.by.is_some() {
            let reason = match cause.event {
                Some(event) if cause.turned => format!("{event}; {}", entry.reason),
                Some(event) => event.to_owned(),
                None => entry.reason.clone(),
            };
            batch.rows.changes.push(ChangeRow {
                node: name.clone(),
                at: moment.now,
                health: words::stored(node.health),
                schedulable: node.schedulable,
                reason,
                by: cause.by,
            });
            node.changes += 1;
            if node.changes >= TRIM_EVERY {
                node.changes = 0;
                batch.rows.crowded.push(name.clone());
            }
        }
        batch
            .rows
            .nodes
            .insert(name.clone(), Some(NodeRow::of(node)));
        batch.publish(NODES, "", name.as_str(), &entry);
    }
}
