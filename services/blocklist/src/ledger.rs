//! The working set: every key with its item or the memory of its removal, and when each has to be
//! looked at again. What it decides goes to rows and into `blocks` in one transaction.
//!
//! Invariants: a key is in `due` at most once, at its `due`; exactly the live items are published.

mod block;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_blocklist_api::{BLOCKS, BlockAction, BlockEntry, BlockEvent, BlockKind, BlockOutcome};
use hayward_blocklist_domain::{Item, Outcome};
use hayward_publication::{Batch, Moment, Reply, Wake};
use hayward_vocabulary::Timestamp;
use sqlx::PgConnection;

pub use self::block::{Block, Key, action, entry};
use crate::config::Settings;
use crate::error::Refusal;
use crate::store::{self, BlockRow, ChangeRow, Rows};

/// How long somebody wants something blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Default,
    At(Timestamp),
    For(u64),
    Permanent,
}

/// A checked request.
#[derive(Debug, Clone)]
pub struct New {
    pub key: Key,
    pub action: BlockAction,
    pub cause: String,
    pub source: String,
    pub until: Until,
    pub based_on: Option<u64>,
}

/// What became of one item.
#[derive(Debug, Clone)]
pub struct Done {
    pub outcome: BlockOutcome,
    pub stale: bool,
    pub item: Option<BlockEntry>,
}

pub enum Command {
    /// Items are taken in together, in order.
    Add {
        items: Vec<New>,
        by: String,
        reply: Reply<Vec<Done>>,
    },
    Remove {
        key: Key,
        by: String,
        why: Option<String>,
        reply: Reply<Result<(), Refusal>>,
    },
}

pub struct Ledger {
    settings: Arc<Settings>,
    blocks: BTreeMap<Key, Block>,
    due: BTreeSet<(Timestamp, Key)>,
    changes: u32,
}

/// Old changes are trimmed once in this many.
const TRIM_EVERY: u32 = 1000;

impl hayward_publication::Ledger for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = Settings;

    async fn load(
        tx: &mut PgConnection,
        _moment: &Moment,
        context: &Arc<Settings>,
    ) -> Result<Self, sqlx::Error> {
        let mut ledger = Self {
            settings: context.clone(),
            blocks: BTreeMap::new(),
            due: BTreeSet::new(),
            changes: 0,
        };
        for (key, block) in store::load_blocks(tx).await? {
            ledger.blocks.insert(key.clone(), block);
            ledger.schedule(&key, None);
        }
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Add { items, by, reply } => {
                let done = items
                    .into_iter()
                    .map(|new| self.add(new, &by, moment, batch))
                    .collect();
                batch.answer(reply, done);
            }
            Command::Remove {
                key,
                by,
                why,
                reply,
            } => {
                let answer = self.remove(&key, (by, why), moment, batch);
                batch.answer(reply, answer);
            }
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        while self.due.first().is_some_and(|(due, _)| *due <= moment.now) {
            let Some((_, key)) = self.due.pop_first() else {
                break;
            };
            if let Some(block) = self.blocks.get_mut(&key) {
                block.due = None;
            }
            if !self.expire(&key, moment, batch) {
                self.forget(&key, moment, batch);
            }
        }
        self.due.first().map_or(Wake::OnNews, |(due, _)| {
            Wake::After(Duration::from_millis(due.ms_since(moment.now)))
        })
    }

    fn is_empty(rows: &Rows) -> bool {
        rows.is_empty()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}

impl Ledger {
    fn add(&mut self, new: New, by: &str, moment: &Moment, batch: &mut Batch<Rows>) -> Done {
        // Race 4: an item that is over goes first, so that extending it is a new fact. One that was
        // over when it was added is left its time.
        if self
            .blocks
            .get(&new.key)
            .is_some_and(|block| block.due <= Some(moment.now))
        {
            self.expire(&new.key, moment, batch);
        }
        let end = match new.until {
            Until::Default => Some(moment.now.plus_ms(self.settings.default_duration_ms)),
            Until::For(ms) => Some(moment.now.plus_ms(ms)),
            Until::At(end) => Some(end),
            Until::Permanent => None,
        };
        let item = Item {
            action: action(new.action),
            causes: [new.cause].into(),
            start: moment.now,
            end,
            sources: [new.source].into(),
        };
        let block = self.blocks.entry(new.key.clone()).or_default();
        let outcome = block.slot.add(&item, new.based_on);
        let entry = block
            .slot
            .item
            .as_ref()
            .map(|item| entry(&new.key, item, block.slot.removal_no));
        if outcome.changed() {
            block.updated = moment.now;
            self.schedule(&new.key, Some(moment.now));
            self.tell(&new.key, (event(outcome), by), moment, batch);
        } else {
            self.drop_if_untouched(&new.key);
        }
        Done {
            outcome: wire(outcome),
            stale: outcome == Outcome::Stale,
            item: entry,
        }
    }

    fn remove(
        &mut self,
        key: &Key,
        (by, why): (String, Option<String>),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let gone = || Refusal::NoItem(key.0.key(&key.1));
        let block = self.blocks.get_mut(key).ok_or_else(gone)?;
        let live = block
            .slot
            .item
            .as_ref()
            .is_some_and(|item| item.in_force(moment.now));
        if !live {
            return Err(gone());
        }
        let item = block.slot.remove().ok_or_else(gone)?;
        let item = entry(key, &item, number_before(block));
        let event = BlockEvent::Removed;
        self.withdraw(
            key,
            ChangeRow {
                at: moment.now,
                event,
                by: Some(by),
                why,
                item,
            },
            batch,
        );
        Ok(())
    }

    /// True when there was an item and it is over.
    fn expire(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) -> bool {
        let Some(block) = self.blocks.get_mut(key) else {
            return false;
        };
        let Some(item) = block.slot.expire(moment.now) else {
            return false;
        };
        let item = entry(key, &item, number_before(block));
        let event = BlockEvent::Expired;
        self.withdraw(
            key,
            ChangeRow {
                at: moment.now,
                event,
                by: None,
                why: None,
                item,
            },
            batch,
        );
        true
    }

    /// The item of this key is gone, as `change` says.
    fn withdraw(&mut self, key: &Key, change: ChangeRow, batch: &mut Batch<Rows>) {
        let Some(block) = self.blocks.get_mut(key) else {
            return;
        };
        block.updated = change.at;
        batch
            .rows
            .blocks
            .insert(key.clone(), Some(BlockRow::of(block)));
        batch.withdraw(BLOCKS, "", &key.0.key(&key.1));
        self.schedule(key, Some(change.at));
        self.note(change, batch);
    }

    fn tell(
        &mut self,
        key: &Key,
        (event, by): (BlockEvent, &str),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(block) = self.blocks.get(key) else {
            return;
        };
        let Some(item) = &block.slot.item else { return };
        let item = entry(key, item, block.slot.removal_no);
        batch
            .rows
            .blocks
            .insert(key.clone(), Some(BlockRow::of(block)));
        batch.publish(BLOCKS, "", &item.key(), &item);
        let by = Some(by.to_owned());
        self.note(
            ChangeRow {
                at: moment.now,
                event,
                by,
                why: None,
                item,
            },
            batch,
        );
    }

    fn note(&mut self, change: ChangeRow, batch: &mut Batch<Rows>) {
        batch.rows.changes.push(change);
        self.changes += 1;
        if self.changes >= TRIM_EVERY {
            self.changes = 0;
            batch.rows.trim_changes = true;
        }
    }

    /// A removal is old enough to be forgotten.
    fn forget(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) {
        let Some(block) = self.blocks.get(key) else {
            return;
        };
        let age = moment.now.ms_since(block.updated);
        if block.slot.item.is_some() || age < self.settings.tombstone_ttl_ms {
            self.schedule(key, None);
            return;
        }
        self.blocks.remove(key);
        batch.rows.blocks.insert(key.clone(), None);
    }

    /// A stale copy of a key nobody knows must not leave an empty one behind.
    fn drop_if_untouched(&mut self, key: &Key) {
        let untouched = self
            .blocks
            .get(key)
            .is_some_and(|block| block.slot.item.is_none() && block.slot.removal_no == 0);
        if untouched {
            self.blocks.remove(key);
        }
    }

    /// Puts the key where the queue has to look at it next: at the end of its item, or when the
    /// memory of its removal may go. `changed` is now, where an add may have brought an end that
    /// has passed already (section 4, rule 2).
    fn schedule(&mut self, key: &Key, changed: Option<Timestamp>) {
        let Some(block) = self.blocks.get_mut(key) else {
            return;
        };
        let due = match &block.slot.item {
            Some(item) => item.end.map(|end| match changed {
                Some(now) if end <= now => now.plus_ms(self.settings.check_interval_ms),
                _ => end,
            }),
            None => Some(block.updated.plus_ms(self.settings.tombstone_ttl_ms)),
        };
        if let Some(old) = std::mem::replace(&mut block.due, due) {
            self.due.remove(&(old, key.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, key.clone()));
        }
    }
}

/// The number an item that was just removed had lived under.
fn number_before(block: &Block) -> u64 {
    block.slot.removal_no.saturating_sub(1)
}

fn wire(outcome: Outcome) -> BlockOutcome {
    match outcome {
        Outcome::Added => BlockOutcome::Added,
        Outcome::Upgraded => BlockOutcome::Upgraded,
        Outcome::Merged => BlockOutcome::Merged,
        Outcome::Unchanged | Outcome::Stale => BlockOutcome::None,
    }
}

fn event(outcome: Outcome) -> BlockEvent {
    match outcome {
        Outcome::Added => BlockEvent::Added,
        Outcome::Upgraded => BlockEvent::Upgraded,
        _ => BlockEvent::Merged,
    }
}

/// What may be blocked, as it is named in paths and rows.
pub fn kind(text: &str) -> Option<BlockKind> {
    match text.to_ascii_uppercase().as_str() {
        "NODE" => Some(BlockKind::Node),
        "WORKER" => Some(BlockKind::Worker),
        _ => None,
    }
}
