//! Evidence against one node: scores, cost, facts, and the brake that prevents a block.

use hayward_blocklist_api as api;
use hayward_blocklist_api::{Cost, Evidence, EvidenceFact, PastBlock, RuleScore};
use hayward_blocklist_domain::{Fact, FactKind, Score, Window};
use hayward_publication::Moment;
use hayward_vocabulary::NodeName;

use super::Ledger;
use super::strategy_evaluation::describe_fact;
use crate::model::Key;
use crate::view::to_view;

/// Maximum number of facts of one response.
const MAX_FACTS: usize = 100;

impl Ledger {
    /// Returns the evidence against a node. `None` if the node is unknown.
    pub(super) fn collect_evidence(&self, node: &str, moment: &Moment) -> Option<Evidence> {
        let name = NodeName::new(node).ok()?;
        let key = Key::for_node(&name);
        let facts = self.facts.facts(&name);
        let record = self.keys.get(&key);
        if facts.is_empty() && record.is_none() && !self.nodes.known_names.contains(node) {
            return None;
        }
        let entry = record.and_then(|record| record.entry(&key));
        let entry = entry.filter(|entry| entry.is_in_force(moment.now));
        let scores = self
            .strategy
            .scores(&self.facts, &name, self.newest_fact_at);
        let is_reached = scores.iter().any(|score| score.proposal.is_some());
        let find_brake = || self.check_brakes_for(node, &[], moment).err();
        let withheld = (is_reached && entry.is_none()).then(find_brake).flatten();
        let since = entry.as_ref().map(|entry| entry.start);
        let quanta = self.nodes.get(node).map_or(0, |node| node.quanta);
        let evacuations = self.context.evacuations.read();
        Some(Evidence {
            node: node.to_owned(),
            strategy: self.strategy.name().to_owned(),
            cost: Cost {
                quanta_withheld: since.map_or(0, |_| quanta),
                withheld_ms: since.map_or(0, |since| moment.now.ms_since(since)),
                ..cost_of_failures(facts)
            },
            item: entry.map(|entry| to_view(entry, &evacuations, moment.now)),
            withheld: withheld.map(|brake| brake.to_string()),
            past: self.past_blocks(&key),
            facts: self.newest_facts(&name, &scores),
            scores: scores.iter().map(to_rule_score).collect(),
        })
    }

    fn past_blocks(&self, key: &Key) -> Vec<PastBlock> {
        let auto_blocks = self.auto_blocks.get(key).into_iter().flatten().rev();
        auto_blocks
            .map(|block| PastBlock {
                at: block.at,
                duration_ms: block.duration_ms,
                source: block.source.clone(),
            })
            .collect()
    }

    fn newest_facts(&self, node: &NodeName, scores: &[Score]) -> Vec<EvidenceFact> {
        let window = Window {
            end: self.newest_fact_at,
            ms: scores
                .iter()
                .map(|score| score.window_ms)
                .max()
                .unwrap_or(0),
        };
        let counted_failures = self.facts.failures_against(node, window, |_| true);
        let facts = self.facts.facts(node).iter().rev().take(MAX_FACTS);
        facts
            .map(|fact| EvidenceFact {
                at: fact.at,
                what: to_api_kind(fact.kind),
                work: fact.work().cloned(),
                cause: (fact.kind == FactKind::Failure).then(|| describe_fact(fact)),
                counted: counted_failures
                    .iter()
                    .any(|other| std::ptr::eq(*other, fact)),
            })
            .collect()
    }
}

fn cost_of_failures(facts: &[Fact]) -> Cost {
    let mut cost = Cost::default();
    for fact in facts.iter().filter(|fact| fact.kind == FactKind::Failure) {
        cost.attempts_lost += 1;
        cost.lost_ms += fact
            .attempt
            .as_ref()
            .map_or(0, |attempt| attempt.occupied_ms);
    }
    cost
}

fn to_api_kind(kind: FactKind) -> api::FactKind {
    match kind {
        FactKind::Failure => api::FactKind::Failed,
        FactKind::Success => api::FactKind::Worked,
        FactKind::LostContact => api::FactKind::Silenced,
        FactKind::Contact => api::FactKind::Heard,
        FactKind::Slow => api::FactKind::Slow,
    }
}

fn to_rule_score(score: &Score) -> RuleScore {
    RuleScore {
        rule: score.rule.to_owned(),
        score: score.fact_count,
        threshold: score.threshold,
        jobs: score.jobs,
        jobs_needed: score.jobs_needed,
        window_ms: score.window_ms,
        reached: score.proposal.is_some(),
    }
}
