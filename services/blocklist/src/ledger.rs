//! Working set of blocklist: all keys with their blocks, trials and remembered removals, and the
//! facts about nodes. Rows and the publication `blocks` change in one transaction.
//!
//! Invariants: a key is in `next_checks` at most once, at the time in its record. Exactly the
//! current blocks and trials are published. A repeated fact is added once.

mod block_requests;
mod evacuation_queue;
mod evidence;
mod invariants;
mod items;
mod nodes;
mod repeated_keys;
mod strategy;
mod strategy_evaluation;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hayward_blocklist_api::BlockEntry;
use hayward_blocklist_domain::brake_check::BrakeCheck;
use hayward_blocklist_domain::{Block, Fact, FactKind, FactLog, Rule};
use hayward_publication::{Batch, DryRunSupport, Followed, Moment, Wake};
use hayward_rm_scheduler_api::node_publications::{ClearingEntry, FactEntry};
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
    /// Keys with the time of their next check.
    next_checks: BTreeSet<(Timestamp, Key)>,
    /// Number of changes that were added to the history since it was last trimmed.
    changes_since_trim: u32,
    /// True once the publication was synchronized with the rows and the settings in this term.
    publication_synced: bool,
    pub(crate) nodes: Nodes,
    pub(crate) failures: Followed<FactEntry>,
    pub(crate) evacuations: Followed<ClearingEntry>,
    /// Current strategy.
    strategy: Rule,
    facts: FactLog,
    /// Keys and kinds of all facts.
    known_facts: HashSet<(String, FactKind)>,
    /// Time of the newest fact, which is the end of every window.
    newest_fact_at: Timestamp,
    /// New facts that have not yet been evaluated for a node on trial.
    unevaluated_facts: Vec<(NodeName, Fact)>,
    /// Nodes to evaluate by the strategy. They wait until `machines` is loaded.
    nodes_to_evaluate: BTreeSet<NodeName>,
    /// Automatic blocks of each key within the back-off memory, oldest first.
    auto_blocks: BTreeMap<Key, Vec<AutoBlock>>,
    /// Automatic evacuations that wait for the rate limit, oldest first (B3).
    evacuation_queue: VecDeque<(Key, Block)>,
    /// Monotonic time at which the next automatic evacuation may start.
    next_evacuation_ms: u64,
    /// Monotonic time of the next deletion of old facts.
    next_trim_ms: u64,
    /// State of the independent check of the limits on automatic blocks.
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
            ledger.schedule_check(&key);
        }
        ledger.restore_evacuation_queue(moment);
        for row in store::load_facts(tx).await? {
            ledger.index_fact(&row.node, row.fact);
        }
        for row in store::auto_block::load(tx).await? {
            ledger
                .auto_blocks
                .entry(row.key)
                .or_default()
                .push(row.auto_block);
        }
        ledger.nodes.known_names = store::known_node::load(tx).await?.into_iter().collect();
        ledger.load_strategy(store::strategy::load(tx).await?.as_ref());
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::AddBlocks(requests, reply) => {
                let result = self.add_blocks(&requests, moment, batch);
                batch.answer(reply, result);
            }
            Command::RemoveBlock(request, reply) => {
                let result = self.remove_block(request, moment, batch);
                batch.answer(reply, result);
            }
            Command::ReportFailures(facts, reply) => {
                let result = self.add_reported_facts(facts, moment, batch);
                batch.answer(reply, result);
            }
            Command::SetStrategy {
                strategy,
                caller_name,
                reply,
            } => {
                let result = self.set_strategy(strategy, caller_name, moment, batch);
                batch.answer(reply, result);
            }
            Command::ShowEvidence { node, reply } => {
                batch.answer(reply, self.collect_evidence(&node, moment));
            }
            Command::NodesUpdate(update, reply) => {
                self.apply_node_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::FactsUpdate(update, reply) => {
                self.apply_fact_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::EvacuationsUpdate(update, reply) => {
                self.apply_evacuation_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::CheckInvariants(reply) => batch.answer(reply, self.check_invariants(moment)),
        }
    }

    /// Allows dry runs of the commands of callers on a copy. Shared state is written only on
    /// commit.
    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::AddBlocks(..) | Command::RemoveBlock(..) | Command::SetStrategy { .. } => {
                DryRunSupport::OnCopy(Box::new(self.clone()))
            }
            _ => DryRunSupport::Unsupported,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.sync_publication(batch);
        if !self.context.settings.enabled {
            return Wake::OnCommand;
        }
        self.evaluate_new_facts(moment, batch);
        while self
            .next_checks
            .first()
            .is_some_and(|(at, _)| *at <= moment.now)
        {
            let Some((_, key)) = self.next_checks.pop_first() else {
                break;
            };
            if let Some(record) = self.keys.get_mut(&key) {
                record.next_check_at = None;
            }
            if !self.expire(&key, moment, batch) && !self.expire_canary(&key, moment, batch) {
                self.remove_expired_record(&key, moment, batch);
            }
        }
        self.start_next_evacuation(moment, batch);
        self.trim_facts(moment, batch);
        self.next_wake(moment)
    }

    fn readings(&self, moment: &Moment) -> Vec<Reading> {
        metrics::readings(self.entries_in_force(moment.now))
    }

    fn count_changes(rows: &Rows) -> usize {
        rows.count()
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
            next_checks: BTreeSet::new(),
            changes_since_trim: 0,
            publication_synced: false,
            nodes: Nodes::default(),
            failures: Followed::default(),
            evacuations: Followed::default(),
            strategy: Rule::None,
            facts: FactLog::default(),
            known_facts: HashSet::new(),
            newest_fact_at: Timestamp::default(),
            unevaluated_facts: Vec::new(),
            nodes_to_evaluate: BTreeSet::new(),
            auto_blocks: BTreeMap::new(),
            evacuation_queue: VecDeque::new(),
            next_evacuation_ms: 0,
            next_trim_ms: 0,
            brake_check: BrakeCheck::default(),
        }
    }

    /// Returns the published entries that are in force.
    fn entries_in_force(&self, now: Timestamp) -> impl Iterator<Item = BlockEntry> {
        let entries = self.keys.iter();
        let entries = entries.filter_map(|(key, record)| record.entry(key));
        entries.filter(move |entry| entry.is_in_force(now))
    }

    /// Returns when the next round is needed.
    fn next_wake(&self, moment: &Moment) -> Wake {
        let next_check_ms = self
            .next_checks
            .first()
            .map(|(at, _)| at.ms_since(moment.now));
        let next_evacuation_ms = self
            .evacuation_queue
            .front()
            .map(|_| self.next_evacuation_ms.saturating_sub(moment.monotonic_ms));
        let next_ms = next_check_ms.into_iter().chain(next_evacuation_ms).min();
        next_ms.map_or(Wake::OnCommand, |ms| Wake::After(Duration::from_millis(ms)))
    }
}
