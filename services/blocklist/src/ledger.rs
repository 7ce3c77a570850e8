//! The working set: every key with its item, its trial or the memory of its removal, when each has
//! to be looked at again, and the record of the machines. What it decides goes to rows and into
//! `blocks` in one transaction.
//!
//! Invariants: a key is in `due` at most once, at its `due`; exactly the live items and trials are
//! published; a fact is taken note of once, however often it is told.

mod dedupe;
mod evidence;
mod items;
mod nodes;
mod report;
mod requests;
mod strategy_eval;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hayward_blocklist_api::BlockEntry;
use hayward_blocklist_domain::brake_check::Guard;
use hayward_blocklist_domain::{Fact, Item, Record, Rule, What};
use hayward_publication::{Batch, Followed, Moment, Trial, Wake};
use hayward_rm_scheduler_api::evidence::{ClearingEntry, FactEntry};
use hayward_service::metrics::Reading;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

use self::nodes::Machines;
use crate::command::Command;
use crate::context::Context;
use crate::metrics;
use crate::model::{Block, Key, Past};
use crate::store::{self, Rows};

#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) blocks: BTreeMap<Key, Block>,
    due: BTreeSet<(Timestamp, Key)>,
    changes: u32,
    /// The publication was brought into agreement with the rows and the settings.
    opened: bool,
    pub(crate) machines: Machines,
    pub(crate) failures: Followed<FactEntry>,
    pub(crate) clearings: Followed<ClearingEntry>,
    rule: Rule,
    record: Record,
    seen: HashSet<(String, What)>,
    /// The time of the newest fact: where every window ends.
    newest: Timestamp,
    /// Facts that were not looked at yet, and machines to be judged once the machines are known.
    fresh: Vec<(NodeName, Fact)>,
    pending: BTreeSet<NodeName>,
    history: BTreeMap<Key, Vec<Past>>,
    /// B3: automatic evacuations that wait for their turn, and when the next one may begin.
    owed: VecDeque<(Key, Item)>,
    next_evacuation_ms: u64,
    next_trim_ms: u64,
    /// From look to look at the invariants.
    guard: Guard,
}

impl hayward_publication::Ledger for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = Context;

    async fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<Context>,
    ) -> Result<Self, sqlx::Error> {
        let mut ledger = Self::empty(context.clone());
        for (key, block) in store::load_blocks(tx).await? {
            ledger.blocks.insert(key.clone(), block);
            ledger.schedule(&key);
        }
        ledger.resume_turns(moment);
        for row in store::load_facts(tx).await? {
            ledger.hold(&row.node, row.fact);
        }
        for row in store::load_past(tx).await? {
            ledger.history.entry(row.key).or_default().push(row.past);
        }
        ledger.machines.known = store::load_machines(tx).await?.into_iter().collect();
        ledger.adopt(store::load_strategy(tx).await?.as_ref());
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Add(orders, reply) => {
                let answer = self.take_orders(&orders, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Remove(removal, reply) => {
                let answer = self.remove(removal, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Report(facts, reply) => {
                let answer = self.take_report(facts, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Choose(read, by, reply) => {
                let answer = self.choose(read, by, moment, batch);
                batch.answer(reply, answer);
            }
            Command::Evidence(node, reply) => batch.answer(reply, self.evidence(&node, moment)),
            Command::Machines(update, reply) => {
                self.absorb_machines(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Facts(update, reply) => {
                self.absorb_facts(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Clearings(update, reply) => {
                self.absorb_clearings(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::Invariants(reply) => batch.answer(reply, self.report(moment)),
        }
    }

    /// What people order is tried on a copy; what is shared with it is written on commit only.
    fn trial(&self, command: &Command) -> Trial<Self> {
        match command {
            Command::Add(..) | Command::Remove(..) | Command::Choose(..) => {
                Trial::OnACopy(Box::new(self.clone()))
            }
            _ => Trial::Never,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.open(batch);
        if !self.context.settings.enabled {
            return Wake::OnNews;
        }
        self.judge_fresh(moment, batch);
        while self.due.first().is_some_and(|(due, _)| *due <= moment.now) {
            let Some((_, key)) = self.due.pop_first() else {
                break;
            };
            if let Some(block) = self.blocks.get_mut(&key) {
                block.due = None;
            }
            if !self.expire(&key, moment, batch) && !self.give_up_trial(&key, moment, batch) {
                self.forget(&key, moment, batch);
            }
        }
        self.evacuate_next(moment, batch);
        self.trim_record(moment, batch);
        self.next_look(moment)
    }

    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        metrics::readings(self.live_entries(moment.now))
    }

    fn weight(rows: &Rows) -> usize {
        rows.weight()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}

impl Ledger {
    fn empty(context: Arc<Context>) -> Self {
        Self {
            context,
            blocks: BTreeMap::new(),
            due: BTreeSet::new(),
            changes: 0,
            opened: false,
            machines: Machines::default(),
            failures: Followed::default(),
            clearings: Followed::default(),
            rule: Rule::None,
            record: Record::default(),
            seen: HashSet::new(),
            newest: Timestamp::default(),
            fresh: Vec::new(),
            pending: BTreeSet::new(),
            history: BTreeMap::new(),
            owed: VecDeque::new(),
            next_evacuation_ms: 0,
            next_trim_ms: 0,
            guard: Guard::default(),
        }
    }

    /// Published entries that are in force.
    fn live_entries(&self, now: Timestamp) -> impl Iterator<Item = BlockEntry> {
        let entries = self.blocks.iter();
        let entries = entries.filter_map(|(key, block)| block.entry(key));
        entries.filter(move |entry| entry.in_force(now))
    }

    fn next_look(&self, moment: &Moment) -> Wake {
        let due = self.due.first().map(|(due, _)| due.ms_since(moment.now));
        let owed = self
            .owed
            .front()
            .map(|_| self.next_evacuation_ms.saturating_sub(moment.monotonic_ms));
        let next = due.into_iter().chain(owed).min();
        next.map_or(Wake::OnNews, |ms| Wake::After(Duration::from_millis(ms)))
    }
}
