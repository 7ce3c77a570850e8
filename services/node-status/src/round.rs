//! Time to decide: nodes whose time has come are judged, nobody else is looked at.

use std::time::Duration;

use hayward_node_status_api::NODES;
use hayward_node_status_domain::lease::Mercy;
use hayward_node_status_domain::{self as domain, Health, Judgement, judge};
use hayward_publication::{Batch, Moment, Wake};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::commands::Cause;
use crate::context::Context;
use crate::format;
use crate::ledger::Ledger;
use crate::metrics;
use crate::model::Node;
use crate::store::{ChangeRow, NodeRow, Rows};

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
        let judged = self.due.first();
        let judged = judged.map(|(due_ms, _)| due_ms.saturating_sub(now_ms));
        let deadline = self.deadlines.first();
        let deadline = deadline.map(|(at, _)| at.ms_since(moment.now));
        let pause = judged.into_iter().chain(deadline).min();
        pause.map_or(Wake::OnNews, |ms| Wake::After(Duration::from_millis(ms)))
    }

    pub(crate) fn look_at_deadlines(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let passed = |(at, _): &&(Timestamp, NodeName)| *at <= moment.now;
        let names: Vec<NodeName> = self
            .deadlines
            .iter()
            .take_while(passed)
            .map(|(_, name)| name.clone())
            .collect();
        for name in names {
            self.judge_drain(&name, moment, batch);
        }
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
            ..node.record(domain::Brake::default(), &self.context, now_ms)
        };
        let silent = judge(&record, now_ms).health == Health::Suspect;
        let counted_in = node.counted_in().to_owned();
        let pool = self.pools.entry(counted_in.clone()).or_default();
        if silent && !pool.silent.contains_key(name) {
            pool.silent.insert(name.clone(), now_ms);
            self.stirred.insert(counted_in);
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
                // What is said of the lease of the others changes with it (W7).
                let here = self.nodes.values().filter(|node| node.counted_in() == name);
                again.extend(here.map(|node| node.name.clone()));
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
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let counted_in = node.counted_in().to_owned();
        let pool = self.pools.entry(counted_in.clone()).or_default();
        let before = node.health;
        if went_silent(
            before,
            &node.record(pool.brake, &self.context, now_ms),
            now_ms,
        ) {
            node.flaps.went(now_ms);
            metrics::went_silent(&counted_in);
        }
        let record = node.record(pool.brake, &self.context, now_ms);
        let judged = judge(&record, now_ms);
        let well = is_well(judged.health);
        let calm = well && record.heard_ms.is_some() && !record.twins;
        if well && pool.silent.remove(name).is_some() {
            self.stirred.insert(counted_in);
        }
        let mercy = Mercy {
            braked: record.braked,
            spared_until_ms: record.spared_until_ms,
            lost: judged.health == Health::Lost,
        };
        let turned = judged.health != before || judged.reason != node.health_reason;
        if judged.health != before {
            node.since = moment.now;
        }
        let drain = self.drains.get(name).filter(|drain| drain.lasts());
        // What a node that is being emptied says of its containers is looked at each time.
        node.pulse.settle(calm && drain.is_none(), node.schedulable);
        let due_ms = due(node, &judged, &self.context, now_ms);
        let mut shown = node.shown(drain, &self.context, now_ms);
        (shown.next, shown.mercy) = (Some(judged.next), mercy);
        node.pulse.show(shown);
        node.health = judged.health;
        node.health_reason = judged.reason;
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
        let now_ms = self.now_ms(moment);
        let quiet_ms = self.context.limits.lost_ms;
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let drain = self.drains.get(name).filter(|drain| drain.lasts());
        let entry = node.entry(drain);
        if cause.turned || cause.event.is_some() || cause.by.is_some() {
            let reason = match cause.event {
                Some(event) if cause.turned => format!("{event}; {}", entry.reason),
                Some(event) => event,
                None => entry.reason.clone(),
            };
            batch.rows.changes.push(ChangeRow {
                node: name.clone(),
                at: moment.now,
                health: format::stored(node.health),
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
        let row = NodeRow::of(node, quiet_ms, now_ms);
        batch.rows.nodes.insert(name.clone(), Some(row));
        batch.publish(NODES, "", name.as_str(), &entry);
    }
}

fn is_well(health: Health) -> bool {
    matches!(health, Health::Healthy | Health::Quiesced)
}

/// F33: counted once a time, and not where the whole pool went: that is no fault of the node's.
fn went_silent(before: Health, record: &domain::Record<'_>, now_ms: u64) -> bool {
    let heard = record.heard_ms.is_some();
    is_well(before) && heard && !record.braked && !is_well(judge(record, now_ms).health)
}

/// When a node has to be looked at without news: it is silent for too long, one of two agents has
/// been, or its comings and goings are forgotten.
fn due(node: &Node, judged: &Judgement, context: &Context, now_ms: u64) -> Option<u64> {
    let twins = node.twins.until_ms(context.limits.lost_ms);
    let flaps = node.flaps.until_ms();
    let later = twins.into_iter().chain(flaps).filter(|at| now_ms < *at);
    judged.again_ms.into_iter().chain(later).min()
}
