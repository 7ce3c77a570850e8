//! Progress of evacuations: one entry of `clearings` for each block and each drain in force. For a
//! mark, no processes are counted.
//!
//! An evacuation remembers its processes, because a later attempt of the same work shows whether
//! each was moved. A process counts as moving from the order to leave until a successor runs or
//! none is wanted. Progress is published at most once a round and stored in rows. A new term
//! therefore neither counts processes again nor moves more at a time than the limits allow.

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_api::BlockKind;
use hayward_node_status_api::Health;
use hayward_publication::Batch;
use hayward_rm_scheduler_api::evidence::{Blocker, BlockerReason, CLEARINGS, ClearingEntry};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId, WorkKind};
use sqlx::PgConnection;

use crate::model::{AllocationRecord, EvacuatedProcess, Evacuation, Settled};
use crate::store::{self, Rows};
use crate::working_set::Ledger;
use crate::working_set::on_trial::wanted;

/// Most blockers published for one evacuation.
const MAX_BLOCKERS: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Evacuations {
    /// Evacuations by the key of the block, or by `drain/NAME`.
    pub(crate) all: BTreeMap<String, Evacuation>,
    /// Evacuations as written to rows.
    written: BTreeMap<String, Evacuation>,
    published: BTreeMap<String, ClearingEntry>,
    /// Processes that could have left in this round and were not ordered to, each with the reason.
    pub(crate) held_back: BTreeMap<AllocationId, (BlockerReason, String)>,
    /// Works with a process that is not settled.
    unsettled: BTreeSet<WorkId>,
    /// Times at which the disruption limits of an evacuation no longer apply.
    pub(crate) deadlines: BTreeSet<Timestamp>,
    /// Processes that get no new tasks.
    pub(crate) marked: BTreeSet<AllocationId>,
}

impl Evacuations {
    pub async fn load(tx: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let all = store::clearings::load(&mut *tx).await?;
        Ok(Self {
            written: all.clone(),
            all,
            published: store::entries::load_by_key(tx, CLEARINGS).await?,
            ..Self::default()
        })
    }

    pub fn update_marked(&mut self, entry: &AllocationEntry) {
        if entry.marked.is_some() && entry.holds() {
            self.marked.insert(entry.id.clone());
        } else {
            self.marked.remove(&entry.id);
        }
    }

    /// Returns true if a process of this work may be a successor.
    pub fn concern(&self, work: &WorkId) -> bool {
        self.unsettled.contains(work)
    }

    /// Counts the moving processes of each work or service. A process in two evacuations counts
    /// once.
    pub fn moving(&self) -> BTreeMap<WorkId, u64> {
        let members = self.all.values().flat_map(|it| &it.members);
        let moving: BTreeMap<&AllocationId, &EvacuatedProcess> =
            members.filter(|(_, member)| member.is_moving()).collect();
        let mut counts = BTreeMap::new();
        for member in moving.values() {
            *counts.entry(member.work.whole()).or_default() += 1;
        }
        counts
    }

    /// Records that this process leaves with its successor reserved.
    pub fn mark_successor_reserved(&mut self, allocation: &AllocationId) {
        for clearing in self.all.values_mut() {
            if let Some(member) = clearing.members.get_mut(allocation) {
                member.place_first = true;
            }
        }
    }

    /// Returns the process whose end a successor of this work has to wait for. Later successors
    /// wait for it too, because the first one may be lost before its start.
    pub fn awaited(&self, work: &WorkId) -> Option<&AllocationId> {
        let mut members = self.all.values().flat_map(|it| &it.members);
        let awaited = members.find(|(_, it)| it.work == *work && it.place_first && !it.ended);
        awaited.map(|(id, _)| id)
    }

    fn claimed(&self) -> BTreeSet<AllocationId> {
        let members = self.all.values().flat_map(|it| it.members.values());
        members
            .filter_map(|member| match &member.settled {
                Some(Settled::Replaced(by)) => Some(by.clone()),
                _ => None,
            })
            .collect()
    }
}

impl Ledger {
    /// Updates the state of every process of every evacuation.
    pub(crate) fn settle_evacuations(&mut self) {
        let mut claimed = self.evacuations.claimed();
        let mut all = std::mem::take(&mut self.evacuations.all);
        for clearing in all.values_mut() {
            for (id, member) in &mut clearing.members {
                self.settle(id, member, &mut claimed);
            }
        }
        let members = all.values().flat_map(|clearing| clearing.members.values());
        let unsettled = members.filter(|member| member.settled.is_none());
        self.evacuations.unsettled = unsettled.map(|member| member.work.clone()).collect();
        self.evacuations.all = all;
    }

    fn settle(
        &self,
        id: &AllocationId,
        member: &mut EvacuatedProcess,
        claimed: &mut BTreeSet<AllocationId>,
    ) {
        let held = self.allocations.get(id).filter(|it| it.entry.holds());
        match held {
            Some(held) => member.ordered_to_leave |= held.entry.vacate.is_some(),
            None => member.ended = true,
        }
        if !member.is_open() {
            return;
        }
        let successors = self.successors(member, claimed);
        let runs = |held: &&&AllocationRecord| held.entry.state == AllocationState::Running;
        if let Some(by) = successors.iter().find(runs) {
            claimed.insert(by.entry.id.clone());
            member.settled = Some(Settled::Replaced(by.entry.id.clone()));
        } else if successors.is_empty() && !self.is_wanted(&member.work) {
            member.settled = Some(Settled::Unwanted);
        }
    }

    /// Returns later attempts that stay, oldest first. Attempts that already count as the successor
    /// of another process are not included.
    fn successors(
        &self,
        member: &EvacuatedProcess,
        claimed: &BTreeSet<AllocationId>,
    ) -> Vec<&AllocationRecord> {
        let held = self.allocations.of_work(&member.work);
        let mut later: Vec<&AllocationRecord> = held
            .filter(|held| {
                let entry = &held.entry;
                let stays = entry.holds() && entry.vacate.is_none();
                stays && entry.incarnation > member.after && !claimed.contains(&entry.id)
            })
            .collect();
        later.sort_by_key(|held| held.entry.incarnation);
        later
    }

    /// Returns true if the work could use one more process. Its entitlement does not matter,
    /// because it had this process before.
    fn is_wanted(&self, work: &WorkId) -> bool {
        let demand = self.snapshot.demand.get(work);
        demand.is_some_and(|demand| wanted(demand) > self.staying_processes(work))
    }

    /// Publishes changes of progress, and writes the rows.
    pub(crate) fn publish_evacuations(&mut self, batch: &mut Batch<Rows>) {
        if self.evacuations.all.is_empty() && self.evacuations.written.is_empty() {
            return;
        }
        self.settle_evacuations();
        let claimed = self.evacuations.claimed();
        let mut workers = self.workers();
        let mut entries = BTreeMap::new();
        for (key, clearing) in &self.evacuations.all {
            let entry = ClearingEntry {
                workers: workers.remove(key).unwrap_or_default(),
                ..self.progress(clearing, &claimed)
            };
            entries.insert(key.clone(), entry);
        }
        let known = &mut self.evacuations;
        for key in known
            .published
            .keys()
            .filter(|key| !entries.contains_key(*key))
        {
            batch.withdraw(CLEARINGS, "", key);
        }
        for (key, entry) in &entries {
            if known.published.get(key) != Some(entry) {
                batch.publish(CLEARINGS, "", key, entry);
            }
        }
        known.published = entries;
        for key in known
            .written
            .keys()
            .filter(|key| !known.all.contains_key(*key))
        {
            batch.rows.clearings.insert(key.clone(), None);
        }
        for (key, clearing) in &known.all {
            if known.written.get(key) != Some(clearing) {
                let row = Some(clearing.clone());
                batch.rows.clearings.insert(key.clone(), row);
            }
        }
        known.written.clone_from(&known.all);
    }

    /// Returns the processes on blocked nodes, by key of the block.
    fn workers(&self) -> BTreeMap<String, Vec<AllocationId>> {
        let of_node = |key: &&String| key.starts_with("node/");
        let keys = self.evacuations.all.keys().filter(of_node);
        let mut workers: BTreeMap<String, Vec<AllocationId>> =
            keys.map(|key| (key.clone(), Vec::new())).collect();
        if workers.is_empty() {
            return workers;
        }
        for held in self.allocations.values().filter(|it| it.entry.holds()) {
            let key = BlockKind::Node.key(held.entry.node.as_str());
            if let Some(there) = workers.get_mut(&key) {
                there.push(held.entry.id.clone());
            }
        }
        workers
    }

    fn progress(&self, clearing: &Evacuation, claimed: &BTreeSet<AllocationId>) -> ClearingEntry {
        let count = |counts: &dyn Fn(&EvacuatedProcess) -> bool| {
            clearing.members.values().filter(|it| counts(it)).count() as u64
        };
        let failed =
            |it: &EvacuatedProcess| it.is_open() && self.successors(it, claimed).is_empty();
        let there = clearing.members.iter().filter(|(_, it)| !it.ended);
        let blockers = there.filter_map(|(id, _)| self.blocker(self.allocations.get(id)?));
        ClearingEntry {
            number: clearing.number,
            revision: clearing.revision,
            since: clearing.since,
            total: count(&|_| true),
            moved: count(&|it| it.settled.is_some()),
            failed: count(&failed),
            remaining: count(&|it| !it.ended),
            blockers: blockers.take(MAX_BLOCKERS).collect(),
            workers: Vec::new(),
        }
    }

    fn blocker(&self, held: &AllocationRecord) -> Option<Blocker> {
        let entry = &held.entry;
        let node = self.followed.nodes().get(entry.node.as_str());
        let silent = node.is_none_or(|node| matches!(node.health, Health::Suspect | Health::Lost));
        let (why, detail) = if let Some((why, detail)) = self.evacuations.held_back.get(&entry.id) {
            (*why, detail.clone())
        } else if entry.kind == WorkKind::Reservation {
            let detail = format!(
                "a reservation is never preempted; ask {} to release it",
                entry.user
            );
            (BlockerReason::Reservation, detail)
        } else if silent {
            let detail = format!("node {} does not answer", entry.node);
            (BlockerReason::Unreachable, detail)
        } else if let Some(order) = &entry.vacate {
            let container = self.followed.containers().get(entry.id.as_str());
            let report = container.and_then(|it| it.reason.as_deref());
            let report = report.map(|report| format!("; its node reports: {report}"));
            let detail = format!(
                "ordered to end at {}: {}{}",
                order.since,
                order.detail,
                report.unwrap_or_default()
            );
            (BlockerReason::Stopping, detail)
        } else {
            return None;
        };
        Some(Blocker {
            allocation: entry.id.clone(),
            work: entry.work.clone(),
            user: entry.user.clone(),
            why,
            detail,
        })
    }
}
