//! Turns facts into blocks. Each fact is added once, nodes are evaluated by the strategy, and a
//! node on trial by the next fact about it (W6).
//!
//! The evaluation waits until the nodes of the fleet are known, because the brakes count them.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockEntry, BlockEvent};
use hayward_blocklist_domain::backoff::{self, LastBlock};
use hayward_blocklist_domain::canary::{self, Verdict};
use hayward_blocklist_domain::{Action, Block, Fact, Proposal, rule};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::Ledger;
use super::items::AddBlock;
use crate::model::{Key, canary_entry};
use crate::store::{ChangeRow, FactRow, Rows, cause_name};

/// Least time for which facts stay readable, in milliseconds.
const MIN_FACT_AGE_MS: u64 = 3_600_000;
/// Window in which a failure of the same work on another node excuses a node on trial, in
/// milliseconds.
const ELSEWHERE_WINDOW_MS: u64 = 3_600_000;
const TRIM_EVERY_MS: u64 = 60_000;

impl Ledger {
    /// Adds a fact to the indexes.
    pub(super) fn index_fact(&mut self, node: &NodeName, fact: Fact) {
        self.known_facts.insert((fact.key.clone(), fact.kind));
        self.newest_fact = self.newest_fact.max(fact.at);
        if rule::speaks_against_node(&fact) && !fact.spent {
            // A brake may have prevented a block, or a crash its evaluation, so the node is
            // evaluated again.
            self.to_evaluate.insert(node.clone());
        }
        self.facts.add(node, fact);
    }

    /// Adds and stores a fact; a known one is ignored.
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
        // A fast clock must not move the windows into the future.
        fact.at = fact.at.min(moment.now);
        batch.rows.facts.push(FactRow {
            node: node.clone(),
            fact: fact.clone(),
        });
        self.index_fact(node, fact.clone());
        self.new_facts.push((node.clone(), fact));
    }

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
        let reported =
            |item: &BlockEntry| nodes.iter().any(|node| node.as_str() == item.identifier);
        items.retain(reported);
        items
    }

    /// Evaluates new facts. All facts of a batch are added before the first evaluation.
    pub(super) fn evaluate_new_facts(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<BlockEntry> {
        if !self.nodes.is_loaded() {
            return Vec::new();
        }
        let mut items = Vec::new();
        for (node, fact) in std::mem::take(&mut self.new_facts) {
            items.extend(self.evaluate_canary(&node, &fact, moment, batch));
        }
        for node in std::mem::take(&mut self.to_evaluate) {
            items.extend(self.evaluate_node(&node, moment, batch));
        }
        items
    }

    /// Applies a fact to a node on trial.
    fn evaluate_canary(
        &mut self,
        node: &NodeName,
        fact: &Fact,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let key = Key::node(node);
        let record = self.keys.get_mut(&key)?;
        let canary = record.state.canary.clone()?;
        match canary::verdict(&self.facts, node, fact, ELSEWHERE_WINDOW_MS) {
            Verdict::Open => None,
            Verdict::Passed => {
                record.state.canary = None;
                let item = canary_entry(&key, &canary, record.state.removal_no);
                self.spend_facts(&key, batch);
                let change = ChangeRow::unrequested(BlockEvent::TrialPassed, item, moment);
                self.record_end(&key, change, batch);
                None
            }
            Verdict::Failed => {
                let mut causes = canary.causes;
                causes.insert(format!("failed on trial: {}", fact_text(fact)));
                let last = self.auto_blocks.get(&key).and_then(|it| it.last());
                let usual = self.context.settings.default_duration_ms;
                let base_ms = last.map_or(usual, |last| last.duration_ms);
                let block = Block {
                    action: Action::Mark,
                    causes,
                    start: moment.now,
                    end: Some(
                        moment
                            .now
                            .plus_ms(self.next_duration_ms(&key, base_ms, moment)),
                    ),
                    sources: canary.sources,
                };
                self.block_by_strategy(node, block, moment, batch)
            }
        }
    }

    /// Evaluates a node with the strategy and blocks it if a rule proposes that.
    fn evaluate_node(
        &mut self,
        node: &NodeName,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let scores = self.rule.scores(&self.facts, node, self.newest_fact);
        let proposals: Vec<Proposal> = scores
            .into_iter()
            .filter_map(|score| score.proposal)
            .collect();
        let key = Key::node(node);
        if proposals.is_empty() {
            return None;
        }
        self.expire(&key, moment, batch);
        // A failure on a blocked node extends its block without doubling the duration.
        let live = self
            .keys
            .get(&key)
            .is_some_and(|record| record.state.block.is_some());
        let blocks = proposals.into_iter().map(|proposal| {
            let duration_ms = if live {
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
        let block = blocks.reduce(|one, other| one.merge(&other))?;
        self.block_by_strategy(node, block, moment, batch)
    }

    /// Duration of the next block of a key, after the back-off.
    fn next_duration_ms(&self, key: &Key, base_ms: u64, moment: &Moment) -> u64 {
        let last = self.auto_blocks.get(key).and_then(|it| it.last());
        let last = last.map(|last| LastBlock {
            age_ms: moment.now.ms_since(last.at),
            duration_ms: last.duration_ms,
        });
        let settings = &self.context.settings;
        backoff::duration(
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
        let key = Key::node(node);
        let live = self
            .keys
            .get(&key)
            .is_some_and(|record| record.state.block.is_some());
        if !live && let Err(reason) = self.check_brakes_for(node.as_str(), &[], moment) {
            let cause = block.cause();
            tracing::warn!(%node, cause, %reason, "a brake prevents an automatic block");
            self.extend_canary(&key, moment, batch);
            return None;
        }
        let by = block.sources.first().cloned().unwrap_or_default();
        let outcome = self.add_block(&key, AddBlock::new(block, &by), moment, batch);
        self.spend_facts(&key, batch);
        let entry = self.keys.get(&key).and_then(|record| record.entry(&key));
        entry.filter(|_| outcome.changed())
    }

    /// Extends a failed trial when a brake prevents the block: the node stays limited to one
    /// allocation at a time.
    fn extend_canary(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) {
        let until = moment.now.plus_ms(self.context.settings.trial_ms);
        let record = self.keys.get_mut(key);
        let Some(canary) = record.and_then(|record| record.state.canary.as_mut()) else {
            return;
        };
        canary.until = until;
        self.schedule(key);
        self.write_row_and_publish(key, batch);
    }

    /// Deletes facts that are older than the longest window and no longer published. A fact that is
    /// still published would count as new after a restart.
    pub(super) fn trim_facts(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        if moment.monotonic_ms < self.next_trim_ms {
            return;
        }
        self.next_trim_ms = moment.monotonic_ms + TRIM_EVERY_MS;
        let (keep_ms, failures) = (
            self.rule.longest_window_ms().max(MIN_FACT_AGE_MS),
            &self.failures,
        );
        // Before the first update it is unknown which facts are still published.
        if failures.heard() {
            let gone = self.facts.trim(|fact| {
                moment.now.ms_since(fact.at) < keep_ms || failures.get(&fact.key).is_some()
            });
            for fact in &gone {
                self.known_facts.remove(fact);
            }
            batch.rows.forgotten.extend(gone);
        }
        let forgiven = moment.now.minus_ms(self.context.settings.backoff_memory_ms);
        let before: usize = self.auto_blocks.values().map(Vec::len).sum();
        for auto_blocks in self.auto_blocks.values_mut() {
            auto_blocks.retain(|block| block.at > forgiven);
        }
        self.auto_blocks
            .retain(|_, auto_blocks| !auto_blocks.is_empty());
        let after: usize = self.auto_blocks.values().map(Vec::len).sum();
        if after < before {
            batch.rows.forgive_before = Some(forgiven);
        }
    }
}

/// Short text of a fact.
pub(super) fn fact_text(fact: &Fact) -> String {
    match &fact.attempt {
        Some(attempt) => match &attempt.code {
            Some(code) => code.clone(),
            None => cause_name(attempt.cause),
        },
        None => "the node lost contact".to_owned(),
    }
}
