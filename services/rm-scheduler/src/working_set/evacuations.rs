//! Progress of evacuations, published as `clearings`: one entry for each block and each drain in
//! force. A block that only marks its node has an entry without processes.
//!
//! An evacuation remembers its processes. A process was moved if a later attempt of the same work
//! runs. A process counts as moving from its order to leave until a successor runs or none is
//! wanted.
//!
//! Progress is published at most once a round, and stored in rows. After a restart, processes are
//! therefore not counted twice, and no more processes move at a time than the disruption limits
//! allow.

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_api::BlockKind;
use hayward_node_status_api::Health;
use hayward_publication::Batch;
use hayward_rm_scheduler_api::node_publications::{
    Blocker, BlockerReason, CLEARINGS, ClearingEntry,
};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId, WorkKind};
use sqlx::PgConnection;

use crate::model::{AllocationRecord, EvacuatedProcess, Evacuation, MoveOutcome};
use crate::store::{self, Rows};
use crate::working_set::Ledger;
use crate::working_set::nodes_on_trial::wanted_processes;

/// Maximum number of published blockers of one evacuation. A blocker is a process that has not
/// left.
const MAX_BLOCKERS: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Evacuations {
    /// Evacuations by the key of the block, or by `drain/NAME`.
    pub(crate) all: BTreeMap<String, Evacuation>,
    /// Evacuations as written to rows.
    written: BTreeMap<String, Evacuation>,
    /// Published entries by the same keys.
    published: BTreeMap<String, ClearingEntry>,
    /// Processes that got no order to leave in this round, although they are to leave. Each has the
    /// reason.
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
        let all = store::evacuations::load(&mut *tx).await?;
        Ok(Self {
            written: all.clone(),
            all,
            published: store::published_entries::load_by_key(tx, CLEARINGS).await?,
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

    /// Returns true if a process of this work may be the successor that an evacuation waits for.
    pub fn may_have_successor(&self, work: &WorkId) -> bool {
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
            *counts.entry(member.work.parent()).or_default() += 1;
        }
        counts
    }

    /// Records that this process leaves with its successor reserved.
    pub fn mark_successor_reserved(&mut self, allocation: &AllocationId) {
        for evacuation in self.all.values_mut() {
            if let Some(member) = evacuation.members.get_mut(allocation) {
                member.successor_reserved = true;
            }
        }
    }

    /// Returns the process that must have ended before a successor of this work starts. All later
    /// successors wait for the same process, because the first successor may be lost before its
    /// start.
    pub fn awaited_predecessor(&self, work: &WorkId) -> Option<&AllocationId> {
        let mut members = self.all.values().flat_map(|it| &it.members);
        let awaited =
            members.find(|(_, it)| it.work == *work && it.successor_reserved && !it.ended);
        awaited.map(|(id, _)| id)
    }

    /// Returns the processes that already count as the successor of an evacuated process.
    fn claimed_successors(&self) -> BTreeSet<AllocationId> {
        let members = self.all.values().flat_map(|it| it.members.values());
        members
            .filter_map(|member| match &member.settled {
                Some(MoveOutcome::Replaced(successor)) => Some(successor.clone()),
                _ => None,
            })
            .collect()
    }
}

impl Ledger {
    /// Updates which processes of all evacuations have ended, and which have a successor.
    pub(crate) fn settle_evacuations(&mut self) {
        let mut claimed = self.evacuations.claimed_successors();
        let mut all = std::mem::take(&mut self.evacuations.all);
        for evacuation in all.values_mut() {
            for (id, member) in &mut evacuation.members {
                self.settle(id, member, &mut claimed);
            }
        }
        let members = all
            .values()
            .flat_map(|evacuation| evacuation.members.values());
        let unsettled = members.filter(|member| member.settled.is_none());
        self.evacuations.unsettled = unsettled.map(|member| member.work.clone()).collect();
        self.evacuations.all = all;
    }

    /// Updates whether a process of an evacuation has ended and has a successor. `claimed` are the
    /// successors of other processes.
    fn settle(
        &self,
        id: &AllocationId,
        member: &mut EvacuatedProcess,
        claimed: &mut BTreeSet<AllocationId>,
    ) {
        let record = self.allocations.get(id).filter(|it| it.entry.holds());
        match record {
            Some(record) => member.ordered_to_leave |= record.entry.vacate.is_some(),
            None => member.ended = true,
        }
        if !member.awaits_successor() {
            return;
        }
        let successors = self.successors(member, claimed);
        let is_running =
            |record: &&&AllocationRecord| record.entry.state == AllocationState::Running;
        if let Some(successor) = successors.iter().find(is_running) {
            claimed.insert(successor.entry.id.clone());
            member.settled = Some(MoveOutcome::Replaced(successor.entry.id.clone()));
        } else if successors.is_empty() && !self.wants_another_process(&member.work) {
            member.settled = Some(MoveOutcome::Unwanted);
        }
    }

    /// Returns later attempts that stay, oldest first. Attempts that already count as the successor
    /// of another process are not included.
    fn successors(
        &self,
        member: &EvacuatedProcess,
        claimed: &BTreeSet<AllocationId>,
    ) -> Vec<&AllocationRecord> {
        let records = self.allocations.of_work(&member.work);
        let mut later: Vec<&AllocationRecord> = records
            .filter(|record| {
                let entry = &record.entry;
                let is_staying = entry.holds() && entry.vacate.is_none();
                is_staying
                    && entry.incarnation > member.evacuated_incarnation
                    && !claimed.contains(&entry.id)
            })
            .collect();
        later.sort_by_key(|record| record.entry.incarnation);
        later
    }

    /// Returns true if the work could use one more process. The entitlement does not matter,
    /// because the work had this process before its evacuation.
    fn wants_another_process(&self, work: &WorkId) -> bool {
        let demand = self.snapshot.demand.get(work);
        demand.is_some_and(|demand| wanted_processes(demand) > self.staying_processes(work))
    }

    /// Publishes changes of progress, and writes the rows.
    pub(crate) fn publish_evacuations(&mut self, batch: &mut Batch<Rows>) {
        if self.evacuations.all.is_empty() && self.evacuations.written.is_empty() {
            return;
        }
        self.settle_evacuations();
        let claimed = self.evacuations.claimed_successors();
        let mut workers = self.workers_by_block();
        let mut entries = BTreeMap::new();
        for (key, evacuation) in &self.evacuations.all {
            let entry = ClearingEntry {
                workers: workers.remove(key).unwrap_or_default(),
                ..self.progress(evacuation, &claimed)
            };
            entries.insert(key.clone(), entry);
        }
        let evacuations = &mut self.evacuations;
        for key in evacuations
            .published
            .keys()
            .filter(|key| !entries.contains_key(*key))
        {
            batch.withdraw(CLEARINGS, "", key);
        }
        for (key, entry) in &entries {
            if evacuations.published.get(key) != Some(entry) {
                batch.publish(CLEARINGS, "", key, entry);
            }
        }
        evacuations.published = entries;
        for key in evacuations
            .written
            .keys()
            .filter(|key| !evacuations.all.contains_key(*key))
        {
            batch.rows.evacuations.insert(key.clone(), None);
        }
        for (key, evacuation) in &evacuations.all {
            if evacuations.written.get(key) != Some(evacuation) {
                let row = Some(evacuation.clone());
                batch.rows.evacuations.insert(key.clone(), row);
            }
        }
        evacuations.written.clone_from(&evacuations.all);
    }

    /// Returns the processes on blocked nodes, by key of the block.
    fn workers_by_block(&self) -> BTreeMap<String, Vec<AllocationId>> {
        let is_node_key = |key: &&String| key.starts_with("node/");
        let keys = self.evacuations.all.keys().filter(is_node_key);
        let mut workers: BTreeMap<String, Vec<AllocationId>> =
            keys.map(|key| (key.clone(), Vec::new())).collect();
        if workers.is_empty() {
            return workers;
        }
        for record in self.allocations.values().filter(|it| it.entry.holds()) {
            let key = BlockKind::Node.key(record.entry.node.as_str());
            if let Some(on_node) = workers.get_mut(&key) {
                on_node.push(record.entry.id.clone());
            }
        }
        workers
    }

    /// Returns the entry of an evacuation.
    fn progress(&self, evacuation: &Evacuation, claimed: &BTreeSet<AllocationId>) -> ClearingEntry {
        let count = |is_counted: &dyn Fn(&EvacuatedProcess) -> bool| {
            let members = evacuation.members.values();
            members.filter(|it| is_counted(it)).count() as u64
        };
        let failed = |it: &EvacuatedProcess| {
            it.awaits_successor() && self.successors(it, claimed).is_empty()
        };
        let remaining = evacuation.members.iter().filter(|(_, it)| !it.ended);
        let blockers = remaining.filter_map(|(id, _)| self.blocker(self.allocations.get(id)?));
        ClearingEntry {
            number: evacuation.number,
            revision: evacuation.revision,
            since: evacuation.since,
            total: count(&|_| true),
            moved: count(&|it| it.settled.is_some()),
            failed: count(&failed),
            remaining: count(&|it| !it.ended),
            blockers: blockers.take(MAX_BLOCKERS).collect(),
            workers: Vec::new(),
        }
    }

    /// Returns why a process has not left yet. Returns `None` if nothing holds it back.
    fn blocker(&self, record: &AllocationRecord) -> Option<Blocker> {
        let entry = &record.entry;
        let node = self.followed.nodes().get(entry.node.as_str());
        let is_silent =
            node.is_none_or(|node| matches!(node.health, Health::Suspect | Health::Lost));
        let (why, detail) = if let Some((why, detail)) = self.evacuations.held_back.get(&entry.id) {
            (*why, detail.clone())
        } else if entry.kind == WorkKind::Reservation {
            let detail = format!(
                "a reservation is never preempted; ask {} to release it",
                entry.user
            );
            (BlockerReason::Reservation, detail)
        } else if is_silent {
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
