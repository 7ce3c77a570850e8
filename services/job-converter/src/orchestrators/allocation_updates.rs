//! Applies changes of the publication `allocations` of rm-scheduler to the work of orchestrators.

use hayward_job_converter_api::orchestrators::ORCHESTRATED;
use hayward_job_converter_domain::BackoffPolicy;
use hayward_job_converter_domain::orchestrator_maps::MapEntry as _;
use hayward_publication::Followed;
use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{Exit, ExitCause, Timestamp};
use uuid::Uuid;

use super::{Orchestrators, Work, work_uuid};
use crate::store::Rows;
use crate::store::backoffs::BackoffRow;

/// Maximum number of ended allocations that are published for a piece of work. An ended allocation
/// is published until a map no longer names it. The oldest are settled first.
const MAX_ENDED: usize = 16;

/// End of a launched process that was neither vacated nor lost with its node.
struct UnrequestedEnd<'a> {
    uuid: Uuid,
    entry: &'a AllocationEntry,
    /// Whether the process ended in this term. Earlier ends are counted already.
    in_this_term: bool,
}

impl Orchestrators {
    /// Applies a change of an allocation. Returns true if the allocation belongs to an
    /// orchestrator. Also returns the end of the hold and the work, if the work is now held back.
    pub fn apply_allocation(
        &mut self,
        entry: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> (bool, Option<(u64, Uuid)>) {
        let uuid = work_uuid(&entry.work).filter(|uuid| self.works.contains_key(uuid));
        let Some(uuid) = uuid else {
            return (false, None);
        };
        let mut hold_end = None;
        if let Some(work) = self.works.get_mut(&uuid) {
            let before = work.allocations.insert(entry.id.clone(), entry.clone());
            // The end of an allocation may be its first observed state.
            let was_live = before.as_ref().is_none_or(AllocationEntry::holds);
            let ended = !entry.holds() && was_live && !work.settled.contains(&entry.id);
            let in_this_term = self.synced || before.is_some();
            if entry.vacate.is_some() {
                let vacated = work.vacate_read_at.entry(entry.id.clone());
                vacated.or_insert(moment.revision);
            }
            if ended && ended_unrequested(entry) {
                let end = UnrequestedEnd {
                    uuid,
                    entry,
                    in_this_term,
                };
                hold_end = self.apply_unrequested_end(&end, moment, batch);
            }
        }
        self.limit_ended(uuid, batch);
        self.dirty.insert(uuid);
        (true, hold_end)
    }

    /// Removes an allocation. Returns true if the allocation belonged to an orchestrator.
    pub fn remove_allocation(&mut self, before: &AllocationEntry, batch: &mut Batch<Rows>) -> bool {
        let uuid = work_uuid(&before.work).filter(|uuid| self.works.contains_key(uuid));
        let Some(uuid) = uuid else {
            return false;
        };
        if let Some(work) = self.works.get_mut(&uuid) {
            work.allocations.remove(&before.id);
            work.vacate_read_at.remove(&before.id);
            if work.settled.remove(&before.id) {
                batch.rows.deleted_settled.push(before.id.to_string());
            }
            batch.withdraw(ORCHESTRATED, work.orchestrator.as_str(), before.id.as_str());
        }
        self.dirty.insert(uuid);
        true
    }

    /// Applies the first full update of a term. Allocations that the update does not contain do not
    /// exist.
    pub fn apply_first_full_update(
        &mut self,
        allocations: &Followed<AllocationEntry>,
        batch: &mut Batch<Rows>,
    ) {
        self.synced = true;
        for (uuid, work) in &mut self.works {
            work.settled.retain(|allocation| {
                let exists = allocations.get(allocation.as_str()).is_some();
                if !exists {
                    batch.rows.deleted_settled.push(allocation.to_string());
                }
                exists
            });
            self.dirty.insert(*uuid);
        }
        // The orchestrator can read vacates of an earlier term from the revision of this batch on.
        // Writing a row makes the batch commit, so that this revision exists.
        let vacated = self
            .works
            .values()
            .filter(|work| !work.vacate_read_at.is_empty());
        for name in vacated.map(|work| &work.orchestrator) {
            if let Some(record) = self.by_name.get(name) {
                batch
                    .rows
                    .orchestrators
                    .set_orchestrator(name, record.row());
            }
        }
        for (name, allocation) in std::mem::take(&mut self.unconfirmed_allocations) {
            if allocations.get(allocation.as_str()).is_none() {
                batch.withdraw(ORCHESTRATED, name.as_str(), &allocation);
            }
        }
    }

    /// Handles a launched process that ended by itself. Work that is no job ends with its process.
    /// A job is held back, each time twice as long.
    fn apply_unrequested_end(
        &mut self,
        end: &UnrequestedEnd<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<(u64, Uuid)> {
        let UnrequestedEnd { uuid, entry, .. } = *end;
        let work = self.works.get_mut(&uuid)?;
        let record = self.by_name.get_mut(&work.orchestrator)?;
        let map_entry = record.map.get(&work.name)?.entry.clone();
        if work.retired.is_some() || map_entry.fields.launch.is_none() {
            return None;
        }
        if map_entry.is_job() {
            // Ends before this term are counted already.
            return if end.in_this_term {
                work.count_process_end(uuid, entry, moment, batch)
            } else {
                None
            };
        }
        record.map.end(&work.name);
        let end_reason = record
            .map
            .get(&work.name)
            .and_then(|known| known.end_reason);
        batch
            .rows
            .orchestrators
            .set_work(uuid, work.row(&map_entry, end_reason));
        None
    }

    /// Settles the oldest ended allocations beyond the limit.
    fn limit_ended(&mut self, uuid: Uuid, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get(&uuid) else {
            return;
        };
        let is_unread_end = |allocation: &&AllocationEntry| {
            !allocation.holds() && !work.settled.contains(&allocation.id)
        };
        let mut ended: Vec<&AllocationEntry> =
            work.allocations.values().filter(is_unread_end).collect();
        // No map names retired work, so its orchestrator does not read the ends.
        let limit = if work.retired.is_some() { 0 } else { MAX_ENDED };
        ended.sort_by_key(|allocation| allocation.granted_at);
        let excess = ended.len().saturating_sub(limit);
        let excess: Vec<_> = ended
            .iter()
            .take(excess)
            .map(|allocation| allocation.id.clone())
            .collect();
        for allocation in excess {
            self.settle_allocation(uuid, &allocation, batch);
        }
    }
}

fn ended_unrequested(entry: &AllocationEntry) -> bool {
    let cause = entry.exit.as_ref().map(|exit| exit.cause);
    let caused_by_others = matches!(cause, Some(ExitCause::Node | ExitCause::Intended));
    entry.vacate.is_none() && entry.launch.is_some() && !caused_by_others
}

impl Work {
    /// Counts the end of a process. A process that succeeded counts no failure, and a long run
    /// clears the backoff. Returns the end of a new hold.
    fn count_process_end(
        &mut self,
        uuid: Uuid,
        entry: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<(u64, Uuid)> {
        let since = entry.running_since.map(Timestamp::unix_ms);
        let ran_ms = since.map_or(0, |since| moment.now.unix_ms().saturating_sub(since));
        if ran_ms >= BackoffPolicy::HEALTHY_AFTER_MS.cast_signed() {
            self.clear_backoff(uuid, batch);
        }
        let succeeded = |exit: &Exit| exit.cause == ExitCause::Success;
        let is_held_back = !entry.exit.as_ref().is_some_and(succeeded)
            && self
                .backoff
                .record_failure(moment.monotonic_ms, &BackoffPolicy::SERVICE);
        if is_held_back {
            batch.rows.backoffs.push(self.backoff_row(uuid));
        }
        let held_until_ms = self.backoff.held_until_ms().filter(|_| is_held_back);
        held_until_ms.map(|held_until_ms| (held_until_ms, uuid))
    }

    /// Clears the backoff after progress.
    pub(super) fn clear_backoff(&mut self, uuid: Uuid, batch: &mut Batch<Rows>) {
        if self.backoff.clear() {
            batch.rows.backoffs.push(self.backoff_row(uuid));
        }
    }

    fn backoff_row(&self, uuid: Uuid) -> BackoffRow {
        BackoffRow {
            slot: self.id.to_string(),
            work: uuid,
            strikes: i32::try_from(self.backoff.failures()).unwrap_or(i32::MAX),
        }
    }

    pub(super) fn is_held_back(&self, now_ms: u64) -> bool {
        self.backoff.is_held(now_ms)
    }
}
