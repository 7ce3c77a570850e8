//! Adds, removes and expires the blocks of keys, and writes the changes to rows, entries and
//! history.

use hayward_blocklist_api::{BLOCKS, BlockEvent};
use hayward_blocklist_domain::{Block, Outcome};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::Ledger;
use super::evacuation_queue::RateLimited;
use crate::error::Refusal;
use crate::model::{AutoBlock, Key, KeyRecord, RemoveRequest, block_entry, canary_entry, etag};
use crate::store::{AutoBlockRow, BlockRow, ChangeRow, Rows};

/// Number of changes after which the history is trimmed.
const TRIM_INTERVAL_CHANGES: u32 = 1000;

/// A block to add to a key.
pub(super) struct NewBlock<'a> {
    pub block: Block,
    /// The `removal_no` of a re-announced copy. `None` for a new block.
    pub copied_removal_no: Option<u64>,
    /// Caller or source, for the history.
    pub actor: &'a str,
}

impl<'a> NewBlock<'a> {
    pub fn new(block: Block, actor: &'a str) -> Self {
        Self {
            block,
            copied_removal_no: None,
            actor,
        }
    }
}

impl Ledger {
    /// Synchronizes the publication with the rows, once per term. The publication is empty while
    /// the blocklist is disabled (BL-10).
    pub(super) fn sync_publication(&mut self, batch: &mut Batch<Rows>) {
        if std::mem::replace(&mut self.publication_synced, true) {
            return;
        }
        for (key, record) in &self.keys {
            let entry = record.entry(key).filter(|_| self.context.settings.enabled);
            match entry {
                Some(entry) => batch.publish(BLOCKS, "", &key.publication_key(), &entry),
                None => batch.withdraw(BLOCKS, "", &key.publication_key()),
            }
        }
    }

    /// Merges a block into its key, and writes the row, the entry and the history.
    pub(super) fn add_block(
        &mut self,
        key: &Key,
        request: NewBlock<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Outcome {
        let RateLimited { block, pending } = self.rate_limit_evacuation(key, request.block, moment);
        let record = self.keys.entry(key.clone()).or_default();
        let outcome = record.state.add(&block, request.copied_removal_no);
        let is_newly_pending = pending.is_some() && record.pending_evacuation != pending;
        record.pending_evacuation = pending.or(record.pending_evacuation);
        if !outcome.is_change() {
            if is_newly_pending {
                self.write_row_and_publish(key, batch);
            }
            self.remove_if_empty(key);
            return outcome;
        }
        record.updated_at = moment.now;
        self.schedule_check(key);
        if let Some(item) = self.keys.get(key).and_then(|record| record.entry(key)) {
            self.write_row_and_publish(key, batch);
            let change = ChangeRow {
                actor: Some(request.actor.to_owned()),
                ..ChangeRow::new(addition_event(outcome), item, moment)
            };
            self.append_change(change, batch);
        }
        if outcome == Outcome::Added && block.is_automatic() {
            self.record_auto_block(key, &block, moment, batch);
        }
        outcome
    }

    /// Stores the start of an automatic block. The back-off makes the next block of the key twice
    /// as long, and the storm brake counts this one.
    fn record_auto_block(
        &mut self,
        key: &Key,
        block: &Block,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let auto_block = AutoBlock {
            at: moment.now,
            duration_ms: block.end.map_or(u64::MAX, |end| end.ms_since(moment.now)),
            source: block.sources.iter().cloned().collect::<Vec<_>>().join(", "),
        };
        self.auto_blocks
            .entry(key.clone())
            .or_default()
            .push(auto_block.clone());
        let key = key.clone();
        if let Some(node) = key.cluster_scoped_node() {
            self.nodes.record_failure(node, moment.monotonic_ms);
        }
        batch
            .rows
            .auto_blocks
            .push(AutoBlockRow { key, auto_block });
    }

    /// Removes the block or the trial of a key on request of a caller.
    pub(super) fn remove_block(
        &mut self,
        request: RemoveRequest,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let key = request.key;
        let not_blocked = || Refusal::NotBlocked(key.publication_key());
        let record = self.keys.get_mut(&key).ok_or_else(not_blocked)?;
        let is_on_trial = record.state.canary.is_some();
        if !self.context.settings.enabled || !(is_on_trial || record.is_blocked(moment.now)) {
            return Err(not_blocked());
        }
        let item = record.entry(&key).ok_or_else(not_blocked)?;
        if request.if_match.is_some_and(|tag| tag != etag(&item)) {
            return Err(Refusal::ItemChanged(key.publication_key()));
        }
        record.state.remove();
        record.state.canary = None;
        self.mark_facts_spent(&key, batch);
        let change = ChangeRow {
            actor: Some(request.caller_name),
            reason: request.reason,
            ..ChangeRow::new(BlockEvent::Removed, item, moment)
        };
        self.record_end(&key, change, batch);
        Ok(())
    }

    /// Removes the block of a key if its end has passed. Returns whether it was removed.
    pub(super) fn expire(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) -> bool {
        let trial_ms = key
            .cluster_scoped_node()
            .map_or(0, |_| self.context.settings.trial_ms);
        let Some(record) = self.keys.get_mut(key) else {
            return false;
        };
        let removal_no = record.state.removal_no;
        let Some(block) = record.state.expire(moment.now, trial_ms) else {
            return false;
        };
        let item = block_entry(key, &block, removal_no);
        let change = ChangeRow::new(BlockEvent::Expired, item, moment);
        self.record_end(key, change, batch);
        true
    }

    /// Ends an unused trial if its time has passed. Returns whether it was ended.
    pub(super) fn expire_canary(
        &mut self,
        key: &Key,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> bool {
        let Some(record) = self.keys.get_mut(key) else {
            return false;
        };
        let Some(canary) = record.state.expire_canary(moment.now) else {
            return false;
        };
        let item = canary_entry(key, &canary, record.state.removal_no);
        let change = ChangeRow::new(BlockEvent::TrialUnused, item, moment);
        self.record_end(key, change, batch);
        true
    }

    /// Records the end of a block or trial. A trial may follow a block.
    pub(super) fn record_end(&mut self, key: &Key, change: ChangeRow, batch: &mut Batch<Rows>) {
        if let Some(record) = self.keys.get_mut(key) {
            record.updated_at = change.at;
        }
        self.append_change(change, batch);
        self.write_row_and_publish(key, batch);
        self.schedule_check(key);
    }

    /// Writes the row of a key and its entry in `blocks`.
    pub(super) fn write_row_and_publish(&self, key: &Key, batch: &mut Batch<Rows>) {
        let Some(record) = self.keys.get(key) else {
            return;
        };
        batch
            .rows
            .blocks
            .insert(key.clone(), Some(BlockRow::from_record(record)));
        match record.entry(key) {
            Some(entry) => batch.publish(BLOCKS, "", &key.publication_key(), &entry),
            None => batch.withdraw(BLOCKS, "", &key.publication_key()),
        }
    }

    /// Appends a change to the history.
    fn append_change(&mut self, change: ChangeRow, batch: &mut Batch<Rows>) {
        batch.rows.changes.push(change);
        self.changes_since_trim += 1;
        if self.changes_since_trim >= TRIM_INTERVAL_CHANGES {
            self.changes_since_trim = 0;
            batch.rows.trim_changes = true;
        }
    }

    /// Marks the facts of a node as spent, because they led to a block or an operator overruled
    /// them.
    pub(super) fn mark_facts_spent(&mut self, key: &Key, batch: &mut Batch<Rows>) {
        let node = key
            .cluster_scoped_node()
            .and_then(|node| NodeName::new(node).ok());
        let Some(node) = node else { return };
        self.facts.mark_spent(&node);
        for row in &mut batch.rows.facts {
            row.fact.spent |= row.node == node;
        }
        batch.rows.spent_nodes.insert(node);
    }

    /// Deletes the record of a key once the time for which its removal is remembered has passed.
    pub(super) fn remove_expired_record(
        &mut self,
        key: &Key,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(record) = self.keys.get(key) else {
            return;
        };
        let age_ms = moment.now.ms_since(record.updated_at);
        let is_remembered = age_ms < self.context.settings.tombstone_ttl_ms;
        if record.state.block.is_some() || record.state.canary.is_some() || is_remembered {
            self.schedule_check(key);
            return;
        }
        self.keys.remove(key);
        batch.rows.blocks.insert(key.clone(), None);
    }

    /// Removes the record of a key if it is empty. A stale copy of an unknown key creates such a
    /// record.
    fn remove_if_empty(&mut self, key: &Key) {
        let is_empty =
            |record: &KeyRecord| record.state == hayward_blocklist_domain::KeyState::default();
        if self.keys.get(key).is_some_and(is_empty) {
            self.keys.remove(key);
        }
    }

    /// Schedules the next check of a key: at the end of its block, of its trial, or of the time for
    /// which its removal is remembered.
    pub(super) fn schedule_check(&mut self, key: &Key) {
        let settings = &self.context.settings;
        let Some(record) = self.keys.get_mut(key) else {
            return;
        };
        let next_check_at = match (&record.state.block, &record.state.canary) {
            (Some(block), _) => block.end,
            (None, Some(canary)) => Some(canary.until),
            (None, None) => Some(record.updated_at.plus_ms(settings.tombstone_ttl_ms)),
        };
        if let Some(previous) = std::mem::replace(&mut record.next_check_at, next_check_at) {
            self.next_checks.remove(&(previous, key.clone()));
        }
        if let Some(at) = next_check_at {
            self.next_checks.insert((at, key.clone()));
        }
    }
}

fn addition_event(outcome: Outcome) -> BlockEvent {
    match outcome {
        Outcome::Added => BlockEvent::Added,
        Outcome::Upgraded => BlockEvent::Upgraded,
        _ => BlockEvent::Merged,
    }
}
