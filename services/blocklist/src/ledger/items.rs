//! Keys over time: what is put on one, what is taken away, what ends by itself, and how all of it
//! becomes rows, entries and news.

use hayward_blocklist_api::{BLOCKS, BlockEvent};
use hayward_blocklist_domain::{Action, Item, Outcome, Withheld};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::Ledger;
use crate::error::Refusal;
use crate::model::{Block, Key, Past, Removal, entry, etag, on_trial};
use crate::store::{BlockRow, ChangeRow, PastRow, Rows};

/// Old changes are trimmed once in this many.
const TRIM_EVERY: u32 = 1000;
/// B3: at most one node is evacuated automatically in this time.
const BETWEEN_EVACUATIONS_MS: u64 = 10_000;

/// What somebody says about a key.
pub(super) struct Statement<'a> {
    pub item: Item,
    /// The number a re-announced copy carries.
    pub based_on: Option<u64>,
    pub by: &'a str,
}

impl<'a> Statement<'a> {
    pub fn new(item: Item, by: &'a str) -> Self {
        Self {
            item,
            based_on: None,
            by,
        }
    }
}

impl Ledger {
    /// Brings the publication into agreement with the rows: with the feature off it is empty (B10),
    /// and full again when it is back on.
    pub(super) fn open(&mut self, batch: &mut Batch<Rows>) {
        if std::mem::replace(&mut self.opened, true) {
            return;
        }
        for (key, block) in &self.blocks {
            let entry = block.entry(key).filter(|_| self.context.settings.enabled);
            match entry {
                Some(entry) => batch.publish(BLOCKS, "", &key.published(), &entry),
                None => batch.withdraw(BLOCKS, "", &key.published()),
            }
        }
    }

    /// One statement about one key, and all that follows from it.
    pub(super) fn put(
        &mut self,
        key: &Key,
        said: Statement<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Outcome {
        let (item, owed) = self.paced(key, said.item, moment);
        let block = self.blocks.entry(key.clone()).or_default();
        let outcome = block.slot.add(&item, said.based_on);
        let news = owed.is_some() && block.owed != owed;
        block.owed = owed.or(block.owed);
        if !outcome.changed() {
            if news {
                self.write_down(key, batch);
            }
            self.drop_if_untouched(key);
            return outcome;
        }
        block.updated = moment.now;
        self.schedule(key);
        self.tell(key, (event(outcome), said.by), moment, batch);
        if outcome == Outcome::Added && item.automatic() {
            self.remember(key, &item, moment, batch);
        }
        outcome
    }

    /// B3 and B1: automatic evacuations come one after the other, and none while much of the pool
    /// turns bad. Until its turn comes the node is marked; what then is owed is kept.
    fn paced(&mut self, key: &Key, item: Item, moment: &Moment) -> (Item, Option<Action>) {
        let Some(node) = key.whole_node().filter(|_| item.automatic()) else {
            return (item, None);
        };
        let now = self
            .blocks
            .get(key)
            .and_then(|block| block.slot.item.as_ref());
        if item.action == Action::Mark || now.is_some_and(|now| now.action >= item.action) {
            return (item, None);
        }
        let marked = Item {
            action: Action::Mark,
            ..item.clone()
        };
        if matches!(self.brake(node, &[], moment), Err(Withheld::Storm { .. })) {
            return (marked, None);
        }
        if moment.monotonic_ms < self.next_evacuation_ms {
            return (marked, Some(self.put_off(key, item)));
        }
        self.next_evacuation_ms = moment.monotonic_ms + BETWEEN_EVACUATIONS_MS;
        (item, None)
    }

    /// Each key waits once, for the most that was said of it.
    fn put_off(&mut self, key: &Key, item: Item) -> Action {
        let waits = self.owed.iter_mut().find(|(waits, _)| waits == key);
        let Some((_, waits)) = waits else {
            let owed = item.action;
            self.owed.push_back((key.clone(), item));
            return owed;
        };
        if waits.action < item.action {
            *waits = item;
        }
        waits.action
    }

    /// A term goes on where the one before ended: what is owed has its turn, and none of it sooner
    /// after the last evacuation than if there had been no new term (B3).
    pub(super) fn resume_turns(&mut self, moment: &Moment) {
        let mut owed = Vec::new();
        let mut last = None;
        for (key, block) in &self.blocks {
            let item = block.slot.item.as_ref();
            let Some(item) = item.filter(|it| key.whole_node().is_some() && it.automatic()) else {
                continue;
            };
            if let Some(action) = block.owed {
                let item = Item {
                    action,
                    ..item.clone()
                };
                owed.push((block.updated, key.clone(), item));
            } else if item.action != Action::Mark {
                last = last.max(Some(block.updated));
            }
        }
        // Within one instant in the order of the keys: the sort is stable.
        owed.sort_by_key(|(since, ..)| *since);
        self.owed = owed.into_iter().map(|(_, key, item)| (key, item)).collect();
        let since = last.map_or(u64::MAX, |last| moment.now.ms_since(last));
        let left = BETWEEN_EVACUATIONS_MS.saturating_sub(since);
        self.next_evacuation_ms = moment.monotonic_ms + left;
    }

    /// The turn of the next automatic evacuation.
    pub(super) fn evacuate_next(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        while moment.monotonic_ms >= self.next_evacuation_ms {
            let Some((key, item)) = self.owed.pop_front() else {
                return;
            };
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            block.owed = None;
            let still = block.slot.item.as_ref();
            if still.is_some_and(Item::automatic) {
                let by = item.sources.first().cloned().unwrap_or_default();
                self.put(&key, Statement::new(item, &by), moment, batch);
            }
        }
    }

    /// An automatic block began: the next one of its key is doubled, and the brakes count it.
    fn remember(&mut self, key: &Key, item: &Item, moment: &Moment, batch: &mut Batch<Rows>) {
        let past = Past {
            at: moment.now,
            duration_ms: item.end.map_or(u64::MAX, |end| end.ms_since(moment.now)),
            source: item.sources.iter().cloned().collect::<Vec<_>>().join(", "),
        };
        self.history
            .entry(key.clone())
            .or_default()
            .push(past.clone());
        let key = key.clone();
        if let Some(node) = key.whole_node() {
            self.machines.turned_bad(node, moment.monotonic_ms);
        }
        batch.rows.past.push(PastRow { key, past });
    }

    pub(super) fn remove(
        &mut self,
        removal: Removal,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let key = removal.key;
        let gone = || Refusal::NoItem(key.published());
        let block = self.blocks.get_mut(&key).ok_or_else(gone)?;
        let on_trial = block.slot.trial.is_some();
        if !self.context.settings.enabled || !(on_trial || block.is_blocked(moment.now)) {
            return Err(gone());
        }
        let item = block.entry(&key).ok_or_else(gone)?;
        if removal.seen.is_some_and(|seen| seen != etag(&item)) {
            return Err(Refusal::Changed(key.published()));
        }
        block.slot.remove();
        block.slot.trial = None;
        self.spend(&key, batch);
        let (by, why) = (Some(removal.by), removal.why);
        let change = ChangeRow {
            version: moment.revision,
            at: moment.now,
            event: BlockEvent::Removed,
            by,
            why,
            item,
        };
        self.settle(&key, change, batch);
        Ok(())
    }

    /// True when there was an item and it is over.
    pub(super) fn expire(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) -> bool {
        let trial_ms = key
            .whole_node()
            .map_or(0, |_| self.context.settings.trial_ms);
        let Some(block) = self.blocks.get_mut(key) else {
            return false;
        };
        let number = block.slot.removal_no;
        let Some(item) = block.slot.expire(moment.now, trial_ms) else {
            return false;
        };
        let item = entry(key, &item, number);
        self.ended(key, (BlockEvent::Expired, item), moment, batch);
        true
    }

    /// True when there was a trial and nobody has used it.
    pub(super) fn give_up_trial(
        &mut self,
        key: &Key,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> bool {
        let Some(block) = self.blocks.get_mut(key) else {
            return false;
        };
        let Some(trial) = block.slot.give_up_trial(moment.now) else {
            return false;
        };
        let item = on_trial(key, &trial, block.slot.removal_no);
        self.ended(key, (BlockEvent::TrialUnused, item), moment, batch);
        true
    }

    /// Something ended by itself.
    pub(super) fn ended(
        &mut self,
        key: &Key,
        (event, item): (BlockEvent, hayward_blocklist_api::BlockEntry),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let change = ChangeRow {
            version: moment.revision,
            at: moment.now,
            event,
            by: None,
            why: None,
            item,
        };
        self.settle(key, change, batch);
    }

    /// The item or the trial of this key is gone, as `change` says; a trial may have come of it.
    fn settle(&mut self, key: &Key, change: ChangeRow, batch: &mut Batch<Rows>) {
        if let Some(block) = self.blocks.get_mut(key) {
            block.updated = change.at;
        }
        self.note(change, batch);
        self.write_down(key, batch);
        self.schedule(key);
    }

    /// The key as it is now, in its row and in `blocks`.
    pub(super) fn write_down(&self, key: &Key, batch: &mut Batch<Rows>) {
        let Some(block) = self.blocks.get(key) else {
            return;
        };
        batch
            .rows
            .blocks
            .insert(key.clone(), Some(BlockRow::of(block)));
        match block.entry(key) {
            Some(entry) => batch.publish(BLOCKS, "", &key.published(), &entry),
            None => batch.withdraw(BLOCKS, "", &key.published()),
        }
    }

    fn tell(
        &mut self,
        key: &Key,
        (event, by): (BlockEvent, &str),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(item) = self.blocks.get(key).and_then(|block| block.entry(key)) else {
            return;
        };
        self.write_down(key, batch);
        let by = Some(by.to_owned());
        let change = ChangeRow {
            version: moment.revision,
            at: moment.now,
            event,
            by,
            why: None,
            item,
        };
        self.note(change, batch);
    }

    fn note(&mut self, change: ChangeRow, batch: &mut Batch<Rows>) {
        batch.rows.changes.push(change);
        self.changes += 1;
        if self.changes >= TRIM_EVERY {
            self.changes = 0;
            batch.rows.trim_changes = true;
        }
    }

    /// What is on record of the machine counts no more: it has led to a block, or was overruled.
    pub(super) fn spend(&mut self, key: &Key, batch: &mut Batch<Rows>) {
        let name = key.whole_node().and_then(|node| NodeName::new(node).ok());
        let Some(node) = name else { return };
        self.record.spend(&node);
        for row in &mut batch.rows.facts {
            row.fact.spent |= row.node == node;
        }
        batch.rows.spent.insert(node);
    }

    /// A removal is old enough to be forgotten.
    pub(super) fn forget(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(block) = self.blocks.get(key) else {
            return;
        };
        let age = moment.now.ms_since(block.updated);
        let young = age < self.context.settings.tombstone_ttl_ms;
        if block.slot.item.is_some() || block.slot.trial.is_some() || young {
            self.schedule(key);
            return;
        }
        self.blocks.remove(key);
        batch.rows.blocks.insert(key.clone(), None);
    }

    /// A stale copy of a key nobody knows must not leave an empty one behind.
    fn drop_if_untouched(&mut self, key: &Key) {
        let untouched = |block: &Block| block.slot == hayward_blocklist_domain::Slot::default();
        if self.blocks.get(key).is_some_and(untouched) {
            self.blocks.remove(key);
        }
    }

    /// Puts the key where the queue has to look at it next: at the end of its item or its trial, or
    /// when the memory of its removal may go.
    pub(super) fn schedule(&mut self, key: &Key) {
        let settings = &self.context.settings;
        let Some(block) = self.blocks.get_mut(key) else {
            return;
        };
        let due = match (&block.slot.item, &block.slot.trial) {
            (Some(item), _) => item.end,
            (None, Some(trial)) => Some(trial.until),
            (None, None) => Some(block.updated.plus_ms(settings.tombstone_ttl_ms)),
        };
        if let Some(old) = std::mem::replace(&mut block.due, due) {
            self.due.remove(&(old, key.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, key.clone()));
        }
    }
}

fn event(outcome: Outcome) -> BlockEvent {
    match outcome {
        Outcome::Added => BlockEvent::Added,
        Outcome::Upgraded => BlockEvent::Upgraded,
        _ => BlockEvent::Merged,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayward_vocabulary::Timestamp;

    use super::*;
    use crate::context::Context;

    #[test]
    fn b3_each_machine_waits_for_its_turn_once() {
        let mut ledger = Ledger::empty(Arc::new(Context::new(crate::Settings::default())));
        let key = Key::node(&NodeName::new("n1").unwrap());
        let item = |action| Item {
            action,
            causes: ["disk".to_owned()].into(),
            start: Timestamp::default(),
            end: None,
            sources: ["auto".to_owned()].into(),
        };
        let (low, high) = (Action::Mark, Action::IMMEDIATE);
        assert!(low < high);
        assert_eq!(ledger.put_off(&key, item(low)), low);
        assert_eq!(ledger.put_off(&key, item(high)), high);
        assert_eq!(ledger.put_off(&key, item(low)), high, "it is owed the most");
        assert_eq!(ledger.owed.len(), 1);
    }
}
