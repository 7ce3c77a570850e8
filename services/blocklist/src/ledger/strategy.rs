//! The current strategy of automatic blocks: it is loaded at the start of a term, and set by
//! operators.

use std::collections::BTreeMap;

use hayward_blocklist_api::StrategyView;
use hayward_blocklist_domain::Rule;
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::Ledger;
use crate::error::Refusal;
use crate::store::{Rows, StrategyRow};
use crate::strategy::{self, ParsedStrategy};

/// Maximum number of nodes that a refusal lists.
const MAX_LISTED_NODES: usize = 5;

impl Ledger {
    /// Sets the strategy, unless it would block most of a pool now.
    pub(super) fn set_strategy(
        &mut self,
        strategy: ParsedStrategy,
        caller_name: String,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<StrategyView, Refusal> {
        if !self.context.settings.enabled {
            return Err(Refusal::Disabled);
        }
        self.check_strategy_breadth(&strategy.rule, moment)?;
        let row = StrategyRow {
            name: strategy.rule.name().to_owned(),
            parameters: strategy.parameters,
            set_by: caller_name,
            set_at: moment.now,
        };
        self.strategy = strategy.rule;
        let view = StrategyView {
            name: row.name.clone(),
            parameters: row.parameters.clone(),
            by: Some(row.set_by.clone()),
            at: Some(row.set_at),
            revision: moment.revision,
        };
        let (context, committed_view) = (self.context.clone(), view.clone());
        batch.once_committed(move |revision| {
            *context.strategy.write() = StrategyView {
                revision,
                ..committed_view
            };
        });
        batch.rows.strategy = Some(row);
        Ok(view)
    }

    /// Refuses a rule that would block most of a pool with the current facts. The rule must propose
    /// more nodes than may be blocked automatically, and more than half of the ready nodes.
    fn check_strategy_breadth(&self, rule: &Rule, moment: &Moment) -> Result<(), Refusal> {
        let is_proposed = |node: &&NodeName| {
            let scores = rule.scores(&self.facts, node, self.newest_fact_at);
            scores.iter().any(|score| score.proposal.is_some())
        };
        let proposed: Vec<&str> = self
            .facts
            .nodes()
            .filter(is_proposed)
            .map(NodeName::as_str)
            .collect();
        for node in &proposed {
            let pool = self
                .nodes
                .pool_counts(node, std::iter::empty(), moment.monotonic_ms);
            let Ok((pool, counts)) = pool else { continue };
            let proposed_in_pool: Vec<&str> = proposed
                .iter()
                .copied()
                .filter(|other| {
                    let other = self.nodes.get(other);
                    other.is_some_and(|other| other.pool == pool && other.ready)
                })
                .collect();
            let count = u64::try_from(proposed_in_pool.len()).unwrap_or(u64::MAX);
            let allowed = self.context.settings.brakes().max_withheld(counts);
            if count > allowed && count.saturating_mul(2) > counts.ready {
                let first_names = &proposed_in_pool[..proposed_in_pool.len().min(MAX_LISTED_NODES)];
                return Err(Refusal::StrategyTooBroad(format!(
                    "with the current facts this would block {count} of {} ready nodes of pool \
                     {pool} ({}); at most {allowed} may be blocked automatically",
                    counts.ready,
                    first_names.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Loads the strategy at the start of a term: the stored strategy, or else the strategy of the
    /// settings.
    pub(super) fn load_strategy(&mut self, stored: Option<&StrategyRow>) {
        let settings = &self.context.settings;
        let request = hayward_blocklist_api::StrategyOrder {
            name: stored.map_or(&settings.strategy, |row| &row.name).clone(),
            parameters: stored.map(|row| row.parameters.clone()).unwrap_or_default(),
        };
        let parsed = strategy::parse(&request, settings.strategy_defaults());
        let strategy = parsed.unwrap_or_else(|faults| {
            tracing::error!(
                ?faults,
                name = request.name,
                "the stored strategy is invalid"
            );
            ParsedStrategy {
                rule: Rule::None,
                parameters: BTreeMap::new(),
            }
        });
        let view = StrategyView {
            name: strategy.rule.name().to_owned(),
            parameters: strategy.parameters,
            by: stored.map(|row| row.set_by.clone()),
            at: stored.map(|row| row.set_at),
            revision: 0,
        };
        *self.context.strategy.write() = view;
        self.strategy = strategy.rule;
    }
}
