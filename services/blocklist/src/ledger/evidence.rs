//! The record of one machine as people see it: score, cost, and what holds a block back.

use hayward_blocklist_api::{Cost, Evidence, EvidenceFact, FactKind, PastBlock, RuleScore};
use hayward_blocklist_domain::{Fact, Score, What, Window};
use hayward_publication::Moment;
use hayward_vocabulary::NodeName;

use super::Ledger;
use super::strategy_eval::said;
use crate::model::Key;
use crate::view::view;

/// Facts shown at most.
const FACTS: usize = 100;

impl Ledger {
    /// `None` for a machine nobody has heard of.
    pub(super) fn evidence(&self, node: &str, moment: &Moment) -> Option<Evidence> {
        let name = NodeName::new(node).ok()?;
        let key = Key::node(&name);
        let facts = self.record.of(&name);
        let block = self.blocks.get(&key);
        if facts.is_empty() && block.is_none() && !self.machines.known.contains(node) {
            return None;
        }
        let entry = block.and_then(|block| block.entry(&key));
        let entry = entry.filter(|entry| entry.in_force(moment.now));
        let scores = self.rule.scores(&self.record, &name, self.newest);
        let reached = scores.iter().any(|score| score.proposal.is_some());
        let held = || self.brake(node, &[], moment).err();
        let withheld = (reached && entry.is_none()).then(held).flatten();
        let since = entry.as_ref().map(|entry| entry.start);
        let quanta = self.machines.get(node).map_or(0, |machine| machine.quanta);
        let clearings = self.context.clearings.read();
        Some(Evidence {
            node: node.to_owned(),
            strategy: self.rule.name().to_owned(),
            cost: Cost {
                quanta_withheld: since.map_or(0, |_| quanta),
                withheld_ms: since.map_or(0, |since| moment.now.ms_since(since)),
                ..lost(facts)
            },
            item: entry.map(|entry| view(entry, &clearings, moment.now)),
            withheld: withheld.map(|held| held.to_string()),
            past: self.past(&key),
            facts: self.shown(&name, &scores),
            scores: scores.iter().map(score).collect(),
        })
    }

    fn past(&self, key: &Key) -> Vec<PastBlock> {
        let past = self.history.get(key).into_iter().flatten().rev();
        past.map(|past| PastBlock {
            at: past.at,
            duration_ms: past.duration_ms,
            source: past.source.clone(),
        })
        .collect()
    }

    fn shown(&self, node: &NodeName, scores: &[Score]) -> Vec<EvidenceFact> {
        let window = Window {
            end: self.newest,
            ms: scores
                .iter()
                .map(|score| score.window_ms)
                .max()
                .unwrap_or(0),
        };
        let against = self.record.against(node, window, |_| true);
        let facts = self.record.of(node).iter().rev().take(FACTS);
        facts
            .map(|fact| EvidenceFact {
                at: fact.at,
                what: kind(fact.what),
                work: fact.work().cloned(),
                cause: (fact.what == What::Failed).then(|| said(fact)),
                counted: against.iter().any(|other| std::ptr::eq(*other, fact)),
            })
            .collect()
    }
}

fn lost(facts: &[Fact]) -> Cost {
    let mut cost = Cost::default();
    for fact in facts.iter().filter(|fact| fact.what == What::Failed) {
        cost.attempts_lost += 1;
        cost.lost_ms += fact.attempt.as_ref().map_or(0, |attempt| attempt.held_ms);
    }
    cost
}

fn kind(what: What) -> FactKind {
    match what {
        What::Failed => FactKind::Failed,
        What::Worked => FactKind::Worked,
        What::Silenced => FactKind::Silenced,
        What::Heard => FactKind::Heard,
        What::Slow => FactKind::Slow,
    }
}

fn score(score: &Score) -> RuleScore {
    RuleScore {
        rule: score.rule.to_owned(),
        score: score.counted,
        threshold: score.threshold,
        jobs: score.jobs,
        jobs_needed: score.jobs_needed,
        window_ms: score.window_ms,
        reached: score.proposal.is_some(),
    }
}
