//! Working set of blocklist: every key with its block, its trial or the memory of its removal, the
//! time of its next check, and the facts about nodes. Changes go to rows and to the publication
//! `blocks` in one transaction.
//!
//! Invariants: a key is in `due` at most once, at its own `due`; exactly the live blocks and trials
//! are published; a repeated fact is added once.

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
use hayward_blocklist_domain::brake_check::BrakeCheck;
use hayward_blocklist_domain::{Block, Fact, FactLog, NodeFact, Rule};
use hayward_publication::{Batch, DryRunSupport, Followed, Moment, Wake};
use hayward_rm_scheduler_api::evidence::{ClearingEntry, FactEntry};
use hayward_service::metrics::Reading;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

use self::nodes::Nodes;
use crate::command::Command;
use crate::context::Context;
use crate::metrics;
use crate::model::{AutoBlock, Key, KeyRecord};
use crate::store::{self, Rows};

#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) keys: BTreeMap<Key, KeyRecord>,
    due: BTreeSet<(Timestamp, Key)>,
    changes_since_trim: u32,
    /// True after the publication was synchronized with the rows and the settings.
    publication_synced: bool,
    pub(crate) nodes: Nodes,
    pub(crate) failures: Followed<FactEntry>,
    pub(crate) evacuations: Followed<ClearingEntry>,
    rule: Rule,
    facts: FactLog,
    known_facts: HashSet<(String, NodeFact)>,
    /// Time of the newest fact: the end of every window.
    newest_fact: Timestamp,
    /// Facts not evaluated yet.
    new_facts: Vec<(NodeName, Fact)>,
    /// Nodes to evaluate once the nodes of the fleet are known.
    to_evaluate: BTreeSet<NodeName>,
    auto_blocks: BTreeMap<Key, Vec<AutoBlock>>,
    /// Automatic evacuations that wait, oldest first (B3).
    evacuation_queue: VecDeque<(Key, Block)>,
    /// Monotonic time from which the next evacuation may begin.
    next_evacuation_ms: u64,
    next_trim_ms: u64,
    /// State of the independent check of the brakes.
    brake_check: BrakeCheck,
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
        for (key, record) in store::load_blocks(tx).await? {
            ledger.keys.insert(key.clone(), record);
            ledger.schedule(&key);
        }
        ledger.restore_evacuation_queue(moment);
        for row in store::load_facts(tx).await? {
            ledger.index_fact(&row.node, row.fact);
        }
        for row in store::load_auto_blocks(tx).await? {
            ledger
                .auto_blocks
                .entry(row.key)
                .or_default()
                .push(row.auto_block);
        }
        ledger.nodes.known = store::load_known_nodes(tx).await?.into_iter().collect();
        ledger.load_strategy(store::load_strategy(tx).await?.as_ref());
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::AddBlocks(requests, reply) => {
                let answer = self.add_blocks(&requests, moment, batch);
                batch.answer(reply, answer);
            }
            Command::RemoveBlock(request, reply) => {
                let answer = self.remove(request, moment, batch);
                batch.answer(reply, answer);
            }
            Command::ReportFailures(facts, reply) => {
                let answer = self.add_reported_facts(facts, moment, batch);
                batch.answer(reply, answer);
            }
            Command::SetStrategy(strategy, by, reply) => {
                let answer = self.set_strategy(strategy, by, moment, batch);
                batch.answer(reply, answer);
            }
            Command::ShowEvidence(node, reply) => batch.answer(reply, self.evidence(&node, moment)),
            Command::NodesUpdate(update, reply) => {
                self.absorb_nodes(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::FactsUpdate(update, reply) => {
                self.absorb_facts(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::EvacuationsUpdate(update, reply) => {
                self.absorb_evacuations(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::CheckInvariants(reply) => batch.answer(reply, self.check_invariants(moment)),
        }
    }

    /// Commands of callers can run as a dry run on a copy; shared state is written only on commit.
    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::AddBlocks(..) | Command::RemoveBlock(..) | Command::SetStrategy(..) => {
                DryRunSupport::OnCopy(Box::new(self.clone()))
            }
            _ => DryRunSupport::Unsupported,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.sync_publication(batch);
        if !self.context.settings.enabled {
            return Wake::OnNews;
        }
        self.evaluate_new_facts(moment, batch);
        while self.due.first().is_some_and(|(due, _)| *due <= moment.now) {
            let Some((_, key)) = self.due.pop_first() else {
                break;
            };
            if let Some(record) = self.keys.get_mut(&key) {
                record.due = None;
            }
            if !self.expire(&key, moment, batch) && !self.expire_canary(&key, moment, batch) {
                self.forget(&key, moment, batch);
            }
        }
        self.evacuate_next(moment, batch);
        self.trim_facts(moment, batch);
        self.next_wake(moment)
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
            keys: BTreeMap::new(),
            due: BTreeSet::new(),
            changes_since_trim: 0,
            publication_synced: false,
            nodes: Nodes::default(),
            failures: Followed::default(),
            evacuations: Followed::default(),
            rule: Rule::None,
            facts: FactLog::default(),
            known_facts: HashSet::new(),
            newest_fact: Timestamp::default(),
            new_facts: Vec::new(),
            to_evaluate: BTreeSet::new(),
            auto_blocks: BTreeMap::new(),
            evacuation_queue: VecDeque::new(),
            next_evacuation_ms: 0,
            next_trim_ms: 0,
            brake_check: BrakeCheck::default(),
        }
    }

    /// Published entries that are in force.
    fn live_entries(&self, now: Timestamp) -> impl Iterator<Item = BlockEntry> {
        let entries = self.keys.iter();
        let entries = entries.filter_map(|(key, record)| record.entry(key));
        entries.filter(move |entry| entry.in_force(now))
    }

    fn next_wake(&self, moment: &Moment) -> Wake {
        let due = self.due.first().map(|(due, _)| due.ms_since(moment.now));
        let evacuation = self
            .evacuation_queue
            .front()
            .map(|_| self.next_evacuation_ms.saturating_sub(moment.monotonic_ms));
        let next = due.into_iter().chain(evacuation).min();
        next.map_or(Wake::OnNews, |ms| Wake::After(Duration::from_millis(ms)))
    }
}
