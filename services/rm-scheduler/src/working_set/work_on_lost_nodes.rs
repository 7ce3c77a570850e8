//! Work on lost nodes. The work itself states (`when_unreachable`) whether a process waits for its
//! lost node.
//!
//! A process that does not wait is given up with its node. A process that waits is shown as
//! unreachable, holds its quanta and gets no successor. It continues when its node is back.
//!
//! The wait is measured by a monotonic clock, from the time at which this term learned of the loss.
//! After a restart the wait begins again, so work waits at least as long as requested (W7).

use std::collections::{BTreeMap, BTreeSet};

use hayward_node_status_api::{Health, NodeEntry};
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::{AllocationState, VacateReason};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WhenUnreachable, WorkId, WorkKind};

use crate::model::{AllocationRecord, LeaveOrder};
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

#[derive(Debug, Clone, Copy)]
struct LostSince {
    monotonic_ms: u64,
    at: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct UnreachableWork {
    /// Lost nodes, each with the time of the loss.
    lost: BTreeMap<NodeName, LostSince>,
    /// Allocations that wait for their node.
    waiting: BTreeMap<NodeName, BTreeSet<AllocationId>>,
    /// Sentences for the verdicts of waiting work.
    notes: BTreeMap<WorkId, String>,
    /// Monotonic time at which the next waiting allocation is given up. `None` if every wait is
    /// without limit.
    due_ms: Option<u64>,
}

impl UnreachableWork {
    /// Records whether a node is lost.
    pub fn observe(&mut self, node: &NodeEntry, moment: &Moment) {
        if node.health == Health::Lost {
            let since = LostSince {
                monotonic_ms: moment.monotonic_ms,
                at: moment.now,
            };
            self.lost.entry(node.node.clone()).or_insert(since);
        } else {
            self.lost.remove(&node.node);
        }
    }

    pub fn forget(&mut self, node: &NodeName) {
        self.lost.remove(node);
    }

    /// Returns true if an allocation waits for this node.
    pub fn is_awaited(&self, node: &NodeName) -> bool {
        self.waiting.contains_key(node)
    }

    pub fn is_waiting(&self, node: &NodeName, id: &AllocationId) -> bool {
        self.waiting
            .get(node)
            .is_some_and(|waiting| waiting.contains(id))
    }

    pub fn note_for(&self, work: &WorkId) -> Option<&str> {
        self.notes.get(work).map(String::as_str)
    }

    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

/// The decision about one process on a lost node.
enum ProcessDecision {
    /// The process waits until the monotonic time `until_ms`, or without limit.
    Wait { note: String, until_ms: Option<u64> },
    /// The process is given up with its node.
    GiveUp,
}

impl Ledger {
    /// Decides for each process on a lost node whether it waits or is given up. Returns the orders
    /// to leave. If no process waits for a node, the planner vacates the node, and no order is
    /// given here. Processes whose node is back are resumed.
    pub(crate) fn review_lost_nodes(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<LeaveOrder> {
        let before = std::mem::take(&mut self.unreachable.waiting);
        if before.is_empty() && self.unreachable.lost.is_empty() {
            return Vec::new();
        }
        let (mut orders, mut notes, mut due_ms) = (Vec::new(), BTreeMap::new(), None);
        for (node, since) in self.unreachable.lost.clone() {
            let mut given_up = Vec::new();
            for record in self.processes_on_node(&node) {
                let id = record.entry.id.clone();
                match self.decide_for_process(&record, since, moment) {
                    ProcessDecision::Wait { note, until_ms } => {
                        notes.insert(record.entry.work.clone(), note);
                        due_ms = earliest(due_ms, until_ms);
                        let waiting = self.unreachable.waiting.entry(node.clone()).or_default();
                        waiting.insert(id);
                        self.set_state(record, AllocationState::Unreachable, batch);
                    }
                    ProcessDecision::GiveUp => given_up.push(id),
                }
            }
            if self.unreachable.is_awaited(&node) {
                let leave_order = |allocation| LeaveOrder {
                    allocation,
                    reason: VacateReason::NodeLost,
                    detail: format!("node {node} was lost"),
                    purge: true,
                };
                orders.extend(given_up.into_iter().map(leave_order));
            }
        }
        self.unreachable.due_ms = due_ms;
        self.resume(&before, batch);
        let awaited = self.unreachable.waiting.keys().chain(before.keys());
        for node in awaited.cloned().collect::<BTreeSet<_>>() {
            self.refresh_node(node.as_str());
        }
        self.republish_verdicts(notes);
        orders
    }

    /// Returns the processes on a node. Reservations have no process.
    fn processes_on_node(&self, node: &NodeName) -> Vec<AllocationRecord> {
        let records = self.allocations.on_node(node);
        records
            .filter(|record| record.entry.kind != WorkKind::Reservation)
            .cloned()
            .collect()
    }

    fn decide_for_process(
        &self,
        record: &AllocationRecord,
        since: LostSince,
        moment: &Moment,
    ) -> ProcessDecision {
        let entry = &record.entry;
        let Some(demand) = self.followed.demand().get(entry.work.as_str()) else {
            return ProcessDecision::GiveUp;
        };
        let (until_ms, outcome) = match demand.when_unreachable {
            WhenUnreachable::Wait => (None, "is waited for".to_owned()),
            WhenUnreachable::ReplaceAfter { ms } => {
                let at = since.at.plus_ms(ms);
                let outcome = format!("is replaced at {at} unless the node is back before");
                (Some(since.monotonic_ms.saturating_add(ms)), outcome)
            }
            WhenUnreachable::Replace | WhenUnreachable::Exclusive => {
                return ProcessDecision::GiveUp;
            }
        };
        if until_ms.is_some_and(|until| until <= moment.monotonic_ms) {
            return ProcessDecision::GiveUp;
        }
        let note = format!(
            "its process on {}, which does not answer, {outcome}",
            entry.node
        );
        ProcessDecision::Wait { note, until_ms }
    }

    /// Resumes processes whose node is back, in the state of their container.
    fn resume(
        &mut self,
        before: &BTreeMap<NodeName, BTreeSet<AllocationId>>,
        batch: &mut Batch<Rows>,
    ) {
        for (node, ids) in before {
            if self.unreachable.lost.contains_key(node) {
                continue;
            }
            for id in ids {
                let Some(record) = self.allocations.get(id).filter(|it| it.entry.holds()) else {
                    continue;
                };
                let container = self.followed.containers().get(id.as_str());
                let reported = container.and_then(|container| translate::state(container.state));
                // An allocation of an orchestrator has no container.
                let fallback = record.entry.running_since.map(|_| AllocationState::Running);
                self.set_state(
                    record.clone(),
                    reported.or(fallback).unwrap_or(AllocationState::Assigned),
                    batch,
                );
            }
        }
    }

    /// Sets the state of an allocation, if it differs.
    fn set_state(
        &mut self,
        mut record: AllocationRecord,
        state: AllocationState,
        batch: &mut Batch<Rows>,
    ) {
        if record.entry.state != state {
            record.entry.state = state;
            self.set_allocation(record, batch);
        }
    }

    /// Publishes again the verdicts whose note changed.
    fn republish_verdicts(&mut self, notes: BTreeMap<WorkId, String>) {
        let before = std::mem::replace(&mut self.unreachable.notes, notes);
        let works = before.keys().chain(self.unreachable.notes.keys());
        let works: BTreeSet<WorkId> = works.cloned().collect();
        for work in works {
            let changed = before.get(&work).map(String::as_str) != self.unreachable.note_for(&work);
            let verdict = self.planning.verdict(&work);
            if let Some(verdict) = verdict.filter(|_| changed) {
                self.verdicts.publish_later(work, verdict);
            }
        }
    }
}

/// Returns the earlier of two times, if there is one.
fn earliest(first: Option<u64>, second: Option<u64>) -> Option<u64> {
    first.into_iter().chain(second).min()
}
