//! Evaluates facts and adds the resulting blocks. A fact is one event on a node, for example a
//! failed process or lost contact. The strategy evaluates nodes by all their facts.
//! A node on trial is evaluated by each new fact (W6).
//!
//! The evaluation waits until the nodes of the fleet are known, because the brakes count them. The
//! brakes limit automatic blocks, so that failures never block most of a pool.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockEntry, BlockEvent};
use hayward_blocklist_domain::backoff::{self, LastBlock};
use hayward_blocklist_domain::trial_verdict::{self, Verdict};
use hayward_blocklist_domain::{Action, Block, Fact, Proposal, rule};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::Ledger;
use super::items::NewBlock;
use crate::model::{Key, canary_entry};
use crate::store::{ChangeRow, FactRow, Rows, cause_name};

/// Minimum time for which facts are stored, in milliseconds.
const MIN_FACT_AGE_MS: u64 = 3_600_000;
/// Window in which a failure of the same work on another node excuses a node on trial, in
/// milliseconds.
const OTHER_NODE_WINDOW_MS: u64 = 3_600_000;
/// Interval between two deletions of old facts, in milliseconds.
const TRIM_INTERVAL_MS: u64 = 60_000;

impl Ledger {
    /// Adds a fact to the indexes.
    pub(super) fn index_fact(&mut self, node: &NodeName, fact: Fact) {
        self.known_facts.insert((fact.key.clone(), fact.kind));
        self.newest_fact_at = self.newest_fact_at.max(fact.at);
        if rule::can_count_against_node(&fact) && !fact.spent {
            // Loaded facts are evaluated again, because a brake may have prevented the block, or a
            // crash may have prevented the evaluation. Spent facts have already led to a block or
            // were cleared.
            self.nodes_to_evaluate.insert(node.clone());
        }
        self.facts.add(node, fact);
    }

    /// Adds and stores a fact. A fact that is known already is ignored.
    pub(crate) fn add_fact(
        &mut self,
        node: &NodeName,
        mut fact: Fact,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if !self.context.settings.enabled
            || self.known_facts.contains(&(fact.key.clone(), fact.kind))
        {
            return;
        }
        // The clock of a reporter may be fast. It must not move the windows into the future.
        fact.at = fact.at.min(moment.now);
        batch.rows.facts.push(FactRow {
            node: node.clone(),
            fact: fact.clone(),
        });
        self.index_fact(node, fact.clone());
        self.unevaluated_facts.push((node.clone(), fact));
    }

    /// Adds facts that an owner reported. Returns the items that they led to.
    pub(super) fn add_reported_facts(
        &mut self,
        facts: Vec<(NodeName, Fact)>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<BlockEntry> {
        let nodes: BTreeSet<NodeName> = facts.iter().map(|(node, _)| node.clone()).collect();
        for (node, fact) in facts {
            self.add_fact(&node, fact, moment, batch);
        }
        let mut items = self.evaluate_new_facts(moment, batch);
        let is_reported =
            |item: &BlockEntry| nodes.iter().any(|node| node.as_str() == item.identifier);
        items.retain(is_reported);
        items
    }

    /// Evaluates new facts, and returns the resulting items. All facts of a batch are added before
    /// the first evaluation.
    pub(super) fn evaluate_new_facts(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<BlockEntry> {
        if !self.nodes.is_loaded() {
            return Vec::new();
        }
        let mut items = Vec::new();
        for (node, fact) in std::mem::take(&mut self.unevaluated_facts) {
            items.extend(self.evaluate_trial(&node, &fact, moment, batch));
        }
        for node in std::mem::take(&mut self.nodes_to_evaluate) {
            items.extend(self.evaluate_node(&node, moment, batch));
        }
        items
    }

    /// Evaluates a node on trial by one fact.
    fn evaluate_trial(
        &mut self,
        node: &NodeName,
        fact: &Fact,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let key = Key::for_node(node);
        let record = self.keys.get_mut(&key)?;
        let trial = record.state.canary.clone()?;
        match trial_verdict::judge_fact(&self.facts, node, fact, OTHER_NODE_WINDOW_MS) {
            Verdict::Undecided => None,
            Verdict::Passed => {
                record.state.canary = None;
                let item = canary_entry(&key, &trial, record.state.removal_no);
                self.mark_facts_spent(&key, batch);
                let change = ChangeRow::new(BlockEvent::TrialPassed, item, moment);
                self.record_end(&key, change, batch);
                None
            }
            Verdict::Failed => {
                let mut causes = trial.causes;
                causes.insert(format!("failed on trial: {}", describe_fact(fact)));
                let last = self.auto_blocks.get(&key).and_then(|it| it.last());
                let default_ms = self.context.settings.default_duration_ms;
                let base_ms = last.map_or(default_ms, |last| last.duration_ms);
                let block = Block {
                    action: Action::Mark,
                    causes,
                    start: moment.now,
                    end: Some(
                        moment
                            .now
                            .plus_ms(self.next_duration_ms(&key, base_ms, moment)),
                    ),
                    sources: trial.sources,
                };
                self.block_by_strategy(node, block, moment, batch)
            }
        }
    }

    /// Evaluates a node by the strategy, and blocks it if the strategy proposes a block.
    fn evaluate_node(
        &mut self,
        node: &NodeName,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let scores = self.strategy.scores(&self.facts, node, self.newest_fact_at);
        let proposals: Vec<Proposal> = scores
            .into_iter()
            .filter_map(|score| score.proposal)
            .collect();
        let key = Key::for_node(node);
        if proposals.is_empty() {
            return None;
        }
        self.expire(&key, moment, batch);
        // The back-off does not apply to a failure on a blocked node, which only extends its block.
        let is_blocked = self
            .keys
            .get(&key)
            .is_some_and(|record| record.state.block.is_some());
        let blocks = proposals.into_iter().map(|proposal| {
            let duration_ms = if is_blocked {
                proposal.duration_ms
            } else {
                self.next_duration_ms(&key, proposal.duration_ms, moment)
            };
            Block {
                action: proposal.action,
                causes: [proposal.cause].into(),
                start: moment.now,
                end: Some(moment.now.plus_ms(duration_ms)),
                sources: [proposal.source].into(),
            }
        });
        let block = blocks.reduce(|block, other| block.merge(&other))?;
        self.block_by_strategy(node, block, moment, batch)
    }

    /// Returns the duration of the next block of a key, including the back-off.
    fn next_duration_ms(&self, key: &Key, base_ms: u64, moment: &Moment) -> u64 {
        let last = self.auto_blocks.get(key).and_then(|it| it.last());
        let last = last.map(|last| LastBlock {
            age_ms: moment.now.ms_since(last.at),
            duration_ms: last.duration_ms,
        });
        let settings = &self.context.settings;
        backoff::next_duration_ms(
            base_ms,
            last,
            settings.backoff_memory_ms,
            settings.backoff_cap_ms,
        )
    }

    /// Blocks a node because of its facts, unless a brake prevents it.
    fn block_by_strategy(
        &mut self,
        node: &NodeName,
        block: Block,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let key = Key::for_node(node);
        let is_blocked = self
            .keys
            .get(&key)
            .is_some_and(|record| record.state.block.is_some());
        if !is_blocked && let Err(reason) = self.check_brakes_for(node.as_str(), &[], moment) {
            let cause = block.cause();
            tracing::warn!(%node, cause, %reason, "a brake prevents an automatic block");
            self.extend_trial(&key, moment, batch);
            return None;
        }
        let source = block.sources.first().cloned().unwrap_or_default();
        let outcome = self.add_block(&key, NewBlock::new(block, &source), moment, batch);
        self.mark_facts_spent(&key, batch);
        let entry = self.keys.get(&key).and_then(|record| record.entry(&key));
        entry.filter(|_| outcome.is_change())
    }

    /// Extends a failed trial if a brake prevents the block, so that the node remains limited to
    /// one allocation at a time.
    fn extend_trial(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) {
        let until = moment.now.plus_ms(self.context.settings.trial_ms);
        let record = self.keys.get_mut(key);
        let Some(trial) = record.and_then(|record| record.state.canary.as_mut()) else {
            return;
        };
        trial.until = until;
        self.schedule_check(key);
        self.write_row_and_publish(key, batch);
    }

    /// Deletes facts that are older than the longest window and no longer published, and old
    /// automatic blocks. Published facts are retained, because they would count as new after a
    /// restart.
    pub(super) fn trim_facts(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        if moment.monotonic_ms < self.next_trim_ms {
            return;
        }
        self.next_trim_ms = moment.monotonic_ms + TRIM_INTERVAL_MS;
        let retention_ms = self.strategy.longest_window_ms().max(MIN_FACT_AGE_MS);
        let failures = &self.failures;
        // The published facts are unknown before the first update.
        if failures.has_update() {
            let removed = self.facts.retain(|fact| {
                moment.now.ms_since(fact.at) < retention_ms || failures.get(&fact.key).is_some()
            });
            for fact in &removed {
                self.known_facts.remove(fact);
            }
            batch.rows.removed_facts.extend(removed);
        }
        self.trim_auto_blocks(moment, batch);
    }

    /// Deletes automatic blocks that are too old for the back-off.
    fn trim_auto_blocks(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let cutoff = moment.now.minus_ms(self.context.settings.backoff_memory_ms);
        let count_before: usize = self.auto_blocks.values().map(Vec::len).sum();
        for auto_blocks in self.auto_blocks.values_mut() {
            auto_blocks.retain(|block| block.at > cutoff);
        }
        self.auto_blocks
            .retain(|_, auto_blocks| !auto_blocks.is_empty());
        let count_after: usize = self.auto_blocks.values().map(Vec::len).sum();
        if count_after < count_before {
            batch.rows.remove_auto_blocks_until = Some(cutoff);
        }
    }
}

/// Describes a fact in a few words.
pub(super) fn describe_fact(fact: &Fact) -> String {
    match &fact.attempt {
        Some(attempt) => match &attempt.cause_class {
            Some(cause_class) => cause_class.clone(),
            None => cause_name(attempt.cause),
        },
        None => "the node lost contact".to_owned(),
    }
}
