//! From facts to blocks: each fact is taken note of once, machines are judged by the strategy, and
//! a machine on trial by the next thing that happens there (W6).
//!
//! Nothing is judged before rm-scheduler has said which machines there are: the brakes count over
//! them.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockEntry, BlockEvent};
use hayward_blocklist_domain::backoff::{self, Earlier};
use hayward_blocklist_domain::canary::{self, Verdict};
use hayward_blocklist_domain::{Action, Fact, Item, Proposal, rule};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::Ledger;
use super::items::Statement;
use crate::model::{Key, on_trial};
use crate::store::{FactRow, Rows, cause_word};

/// Facts are kept at least so long, for whoever asks for the evidence.
const SHOWN_MS: u64 = 3_600_000;
/// How far back it is looked whether the work of a trial fails elsewhere too.
const ELSEWHERE_MS: u64 = 3_600_000;
const TRIM_EVERY_MS: u64 = 60_000;

impl Ledger {
    /// A fact from the rows: known, and not judged for itself again.
    pub(super) fn hold(&mut self, node: &NodeName, fact: Fact) {
        self.seen.insert((fact.key.clone(), fact.what));
        self.newest = self.newest.max(fact.at);
        if rule::accuses(&fact) && !fact.spent {
            // What a brake held back, or a crash cut short, is looked at again.
            self.pending.insert(node.clone());
        }
        self.record.add(node, fact);
    }

    /// A fact that was told. Told again, nothing happens.
    pub(crate) fn take_note(
        &mut self,
        node: &NodeName,
        mut fact: Fact,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if !self.context.settings.enabled || self.seen.contains(&(fact.key.clone(), fact.what)) {
            return;
        }
        // A clock that is ahead must not move every window into the future.
        fact.at = fact.at.min(moment.now);
        batch.rows.facts.push(FactRow {
            node: node.clone(),
            fact: fact.clone(),
        });
        self.hold(node, fact.clone());
        self.fresh.push((node.clone(), fact));
    }

    pub(super) fn take_report(
        &mut self,
        facts: Vec<(NodeName, Fact)>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<BlockEntry> {
        let nodes: BTreeSet<NodeName> = facts.iter().map(|(node, _)| node.clone()).collect();
        for (node, fact) in facts {
            self.take_note(&node, fact, moment, batch);
        }
        let mut items = self.judge_fresh(moment, batch);
        let told = |item: &BlockEntry| nodes.iter().any(|node| node.as_str() == item.identifier);
        items.retain(told);
        items
    }

    /// All facts of one batch are on record before the first of them is judged by the others.
    pub(super) fn judge_fresh(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<BlockEntry> {
        if !self.machines.heard() {
            return Vec::new();
        }
        let mut items = Vec::new();
        for (node, fact) in std::mem::take(&mut self.fresh) {
            items.extend(self.try_out(&node, &fact, moment, batch));
        }
        for node in std::mem::take(&mut self.pending) {
            items.extend(self.judge(&node, moment, batch));
        }
        items
    }

    /// What a fact means for a machine on trial.
    fn try_out(
        &mut self,
        node: &NodeName,
        fact: &Fact,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let key = Key::node(node);
        let block = self.blocks.get_mut(&key)?;
        let trial = block.slot.trial.clone()?;
        match canary::verdict(&self.record, node, fact, ELSEWHERE_MS) {
            Verdict::Open => None,
            Verdict::Passed => {
                block.slot.trial = None;
                let item = on_trial(&key, &trial, block.slot.removal_no);
                self.spend(&key, batch);
                self.ended(&key, (BlockEvent::TrialPassed, item), moment, batch);
                None
            }
            Verdict::Failed => {
                let mut causes = trial.causes;
                causes.insert(format!("failed on trial: {}", said(fact)));
                let last = self.history.get(&key).and_then(|past| past.last());
                let usual = self.context.settings.default_duration_ms;
                let base_ms = last.map_or(usual, |last| last.duration_ms);
                let item = Item {
                    action: Action::Mark,
                    causes,
                    start: moment.now,
                    end: Some(moment.now.plus_ms(self.longer(&key, base_ms, moment))),
                    sources: trial.sources,
                };
                self.quarantine(node, item, moment, batch)
            }
        }
    }

    fn judge(
        &mut self,
        node: &NodeName,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let scores = self.rule.scores(&self.record, node, self.newest);
        let proposals: Vec<Proposal> = scores
            .into_iter()
            .filter_map(|score| score.proposal)
            .collect();
        let key = Key::node(node);
        if proposals.is_empty() {
            return None;
        }
        self.expire(&key, moment, batch);
        // What fails on a machine that is blocked already prolongs the block and doubles nothing.
        let live = self
            .blocks
            .get(&key)
            .is_some_and(|block| block.slot.item.is_some());
        let items = proposals.into_iter().map(|proposal| {
            let duration_ms = if live {
                proposal.duration_ms
            } else {
                self.longer(&key, proposal.duration_ms, moment)
            };
            Item {
                action: proposal.action,
                causes: [proposal.cause].into(),
                start: moment.now,
                end: Some(moment.now.plus_ms(duration_ms)),
                sources: [proposal.source].into(),
            }
        });
        let item = items.reduce(|one, other| one.merge(&other))?;
        self.quarantine(node, item, moment, batch)
    }

    /// The duration of the next block of a key, after those that are remembered.
    fn longer(&self, key: &Key, base_ms: u64, moment: &Moment) -> u64 {
        let last = self.history.get(key).and_then(|past| past.last());
        let last = last.map(|last| Earlier {
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

    /// Blocks a machine by evidence, if the brakes allow it.
    fn quarantine(
        &mut self,
        node: &NodeName,
        item: Item,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Option<BlockEntry> {
        let key = Key::node(node);
        let live = self
            .blocks
            .get(&key)
            .is_some_and(|block| block.slot.item.is_some());
        if !live && let Err(held) = self.brake(node.as_str(), &[], moment) {
            let cause = item.cause();
            tracing::warn!(%node, cause, %held, "not blocked: a brake holds");
            self.prolong_trial(&key, moment, batch);
            return None;
        }
        let by = item.sources.first().cloned().unwrap_or_default();
        let outcome = self.put(&key, Statement::new(item, &by), moment, batch);
        self.spend(&key, batch);
        let entry = self.blocks.get(&key).and_then(|block| block.entry(&key));
        entry.filter(|_| outcome.changed())
    }

    /// A trial that failed where no more may be blocked goes on: one allocation at a time is all
    /// the machine gets.
    fn prolong_trial(&mut self, key: &Key, moment: &Moment, batch: &mut Batch<Rows>) {
        let until = moment.now.plus_ms(self.context.settings.trial_ms);
        let block = self.blocks.get_mut(key);
        let Some(trial) = block.and_then(|block| block.slot.trial.as_mut()) else {
            return;
        };
        trial.until = until;
        self.schedule(key);
        self.write_down(key, batch);
    }

    /// Facts go when they are older than the longest window and no longer told: one that is still
    /// told would be taken for a new one after a restart.
    pub(super) fn trim_record(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        if moment.monotonic_ms < self.next_trim_ms {
            return;
        }
        self.next_trim_ms = moment.monotonic_ms + TRIM_EVERY_MS;
        let (kept_ms, failures) = (self.rule.longest_window_ms().max(SHOWN_MS), &self.failures);
        // Before the first answer it is not known what is still told.
        if failures.heard() {
            let gone = self.record.trim(|fact| {
                moment.now.ms_since(fact.at) < kept_ms || failures.get(&fact.key).is_some()
            });
            for fact in &gone {
                self.seen.remove(fact);
            }
            batch.rows.forgotten.extend(gone);
        }
        let forgiven = moment.now.minus_ms(self.context.settings.backoff_memory_ms);
        let before: usize = self.history.values().map(Vec::len).sum();
        for past in self.history.values_mut() {
            past.retain(|past| past.at > forgiven);
        }
        self.history.retain(|_, past| !past.is_empty());
        let after: usize = self.history.values().map(Vec::len).sum();
        if after < before {
            batch.rows.forgive_before = Some(forgiven);
        }
    }
}

/// What a fact says, in a few words.
pub(super) fn said(fact: &Fact) -> String {
    match &fact.attempt {
        Some(attempt) => match &attempt.code {
            Some(code) => code.clone(),
            None => cause_word(attempt.cause),
        },
        None => "the node fell silent".to_owned(),
    }
}
