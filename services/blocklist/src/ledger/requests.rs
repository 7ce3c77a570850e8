//! Adds requested blocks and sets the strategy. All checks run first, so a refused command changes
//! nothing.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockKind, BlockOutcome, StrategyView};
use hayward_blocklist_domain::{Block, BrakeReason, Outcome, Rule};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::items::AddBlock;
use super::nodes::Blocked;
use super::{Ledger, dedupe};
use crate::error::Refusal;
use crate::model::{AddResult, BlockEnd, BlockRequest, BlockRequests, STALE, entry};
use crate::store::{Rows, StrategyRow};
use crate::strategy;

/// Reason of an unchanged result: an automatic request with a duration of zero.
const ZERO_DURATION: &str = "ZERO_DURATION";

impl Ledger {
    pub(super) fn add_blocks(
        &mut self,
        requests: &BlockRequests,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<Vec<AddResult>, Refusal> {
        if !self.context.settings.enabled {
            return Err(Refusal::Disabled);
        }
        // Ended blocks are removed first, so that extending one is a new block.
        for request in &requests.items {
            self.expire(&request.key, moment, batch);
        }
        self.check_capacity(&requests.items)?;
        self.check_names(&requests.items)?;
        self.check_conflicts(requests)?;
        self.check_brakes(&requests.items, moment)?;
        let first = batch.rows.changes.len();
        let items = requests.items.iter();
        let results = items.map(|it| (&it.key, self.add_one(it, requests, moment, batch)));
        let results = dedupe::merge_results(results.collect());
        dedupe::merge_changes(&mut batch.rows.changes, first);
        Ok(results)
    }

    fn live(&self, request: &BlockRequest) -> Option<&Block> {
        self.keys.get(&request.key)?.state.block.as_ref()
    }

    fn is_stale(&self, request: &BlockRequest) -> bool {
        let number = self
            .keys
            .get(&request.key)
            .map_or(0, |record| record.state.removal_no);
        request.based_on.is_some_and(|based_on| based_on < number)
    }

    /// Refuses requests that would exceed the most keys in memory (I25).
    fn check_capacity(&self, items: &[BlockRequest]) -> Result<(), Refusal> {
        let fresh = items.iter().map(|request| &request.key);
        let fresh = fresh.filter(|key| !self.keys.contains_key(*key));
        let (has, most) = (self.keys.len(), self.context.settings.max_items);
        let fresh: BTreeSet<_> = fresh.collect();
        if fresh.is_empty() || has + fresh.len() <= most {
            return Ok(());
        }
        Err(Refusal::Full(has, most))
    }

    /// Refuses unknown nodes once the nodes of the fleet are known: such a name is a typing error.
    fn check_names(&self, items: &[BlockRequest]) -> Result<(), Refusal> {
        if !self.nodes.is_loaded() {
            return Ok(());
        }
        let known = &self.nodes.known;
        let unknown = |request: &&BlockRequest| {
            request.key.kind == BlockKind::Node && !known.contains(&request.key.identifier)
        };
        match items
            .iter()
            .enumerate()
            .find(|(_, request)| unknown(request))
        {
            Some((number, request)) => {
                let name = request.key.identifier.clone();
                Err(Refusal::UnknownNode(number, name, known.len()))
            }
            None => Ok(()),
        }
    }

    /// Refuses a request that differs from the existing block, unless it may be merged.
    fn check_conflicts(&self, requests: &BlockRequests) -> Result<(), Refusal> {
        if requests.allow_merge {
            return Ok(());
        }
        for request in requests
            .items
            .iter()
            .filter(|request| !self.is_stale(request))
        {
            let settings = &self.context.settings;
            if let Some(block) = self
                .live(request)
                .filter(|it| !request.repeats(it, settings))
            {
                let number = self
                    .keys
                    .get(&request.key)
                    .map_or(0, |record| record.state.removal_no);
                return Err(Refusal::Exists(Box::new(entry(
                    &request.key,
                    block,
                    number,
                ))));
            }
        }
        Ok(())
    }

    /// Refuses automatic requests that together exceed the brakes. Requests for blocked keys do not
    /// count.
    fn check_brakes(&self, items: &[BlockRequest], moment: &Moment) -> Result<(), Refusal> {
        let mut also_blocked: Vec<&str> = Vec::new();
        for (number, request) in items.iter().enumerate() {
            let counts = request.is_automatic()
                && request.end != BlockEnd::After(0)
                && !self.is_stale(request);
            let Some(node) = request.key.whole_node().filter(|_| counts) else {
                continue;
            };
            if self.live(request).is_some() || also_blocked.contains(&node) {
                continue;
            }
            self.check_brakes_for(node, &also_blocked, moment)
                .map_err(|reason| Refusal::Brake(number, reason))?;
            also_blocked.push(node);
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        request: &BlockRequest,
        requests: &BlockRequests,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> AddResult {
        let unchanged = |reason, ledger: &Self| AddResult {
            outcome: BlockOutcome::None,
            reason,
            item: ledger
                .keys
                .get(&request.key)
                .and_then(|record| record.entry(&request.key)),
            warnings: Vec::new(),
        };
        if request.is_automatic() && request.end == BlockEnd::After(0) {
            return unchanged(Some(ZERO_DURATION), self);
        }
        if !requests.allow_merge && !self.is_stale(request) && self.live(request).is_some() {
            // `check_conflicts` found the request equal to the block.
            return unchanged(None, self);
        }
        let block = request.block(moment.now, &self.context.settings);
        let manual = !block.is_automatic();
        let addition = AddBlock {
            block,
            based_on: request.based_on,
            by: &requests.by,
        };
        let outcome = self.add_block(&request.key, addition, moment, batch);
        let warnings = request
            .key
            .whole_node()
            .filter(|_| manual && outcome.changed())
            .and_then(|node| self.warning(node, moment));
        AddResult {
            outcome: wire(outcome),
            warnings: warnings.into_iter().collect(),
            ..unchanged((outcome == Outcome::Stale).then_some(STALE), self)
        }
    }

    /// Nodes that are blocked for all work, or on trial.
    fn blocked(&self) -> impl Iterator<Item = Blocked<'_>> {
        self.keys.iter().filter_map(|(key, record)| {
            let node = key.whole_node()?;
            let automatic = match (&record.state.block, &record.state.canary) {
                (Some(block), _) => block.is_automatic(),
                (None, Some(_)) => true,
                (None, None) => return None,
            };
            Some(Blocked { node, automatic })
        })
    }

    /// Checks whether a node may be blocked automatically together with the nodes in `more`.
    pub(super) fn check_brakes_for(
        &self,
        node: &str,
        more: &[&str],
        moment: &Moment,
    ) -> Result<(), BrakeReason> {
        let more = more.iter().map(|node| Blocked {
            node,
            automatic: true,
        });
        let blocked = self.blocked().chain(more);
        let (name, pool) = self.nodes.pool_of(node, blocked, moment.monotonic_ms)?;
        self.context.settings.brakes().allow(&name, pool)
    }

    fn warning(&self, node: &str, moment: &Moment) -> Option<String> {
        let found = self
            .nodes
            .pool_of(node, self.blocked(), moment.monotonic_ms);
        let (name, pool) = found.ok()?;
        self.context.settings.brakes().warning(&name, pool)
    }

    /// Sets the strategy, unless it would now block most of a pool.
    pub(super) fn set_strategy(
        &mut self,
        parsed: strategy::Parsed,
        by: String,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<StrategyView, Refusal> {
        if !self.context.settings.enabled {
            return Err(Refusal::Disabled);
        }
        let strategy::Parsed { rule, parameters } = parsed;
        self.check_breadth(&rule, moment)?;
        let row = StrategyRow {
            name: rule.name().to_owned(),
            parameters,
            by,
            at: moment.now,
        };
        self.rule = rule;
        let view = StrategyView {
            name: row.name.clone(),
            parameters: row.parameters.clone(),
            by: Some(row.by.clone()),
            at: Some(row.at),
            revision: moment.revision,
        };
        let (context, chosen) = (self.context.clone(), view.clone());
        batch.once_committed(move |revision| {
            *context.strategy.write() = StrategyView { revision, ..chosen };
        });
        batch.rows.strategy = Some(row);
        Ok(view)
    }

    fn check_breadth(&self, rule: &Rule, moment: &Moment) -> Result<(), Refusal> {
        let met = |node: &&NodeName| {
            let scores = rule.scores(&self.facts, node, self.newest_fact);
            scores.iter().any(|score| score.proposal.is_some())
        };
        let met: Vec<&str> = self
            .facts
            .nodes()
            .filter(met)
            .map(NodeName::as_str)
            .collect();
        for node in &met {
            let found = self
                .nodes
                .pool_of(node, std::iter::empty(), moment.monotonic_ms);
            let Ok((name, pool)) = found else { continue };
            let mates: Vec<&str> = met
                .iter()
                .copied()
                .filter(|other| {
                    let other = self.nodes.get(other);
                    other.is_some_and(|other| other.pool == name && other.ready)
                })
                .collect();
            let count = u64::try_from(mates.len()).unwrap_or(u64::MAX);
            let allowed = self.context.settings.brakes().allowed(pool);
            if count > allowed && count.saturating_mul(2) > pool.ready {
                return Err(Refusal::TooBroad(format!(
                    "with the current facts this would block {count} of {} ready nodes of pool \
                     {name} ({}); {allowed} may be blocked automatically",
                    pool.ready,
                    mates[..mates.len().min(5)].join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Loads the strategy at the start of a term: the stored one, else the one of the settings.
    pub(super) fn load_strategy(&mut self, chosen: Option<&StrategyRow>) {
        let settings = &self.context.settings;
        let order = hayward_blocklist_api::StrategyOrder {
            name: chosen.map_or(&settings.strategy, |row| &row.name).clone(),
            parameters: chosen.map(|row| row.parameters.clone()).unwrap_or_default(),
        };
        let parsed = strategy::parse(&order, settings.defaults());
        let strategy::Parsed { rule, parameters } = parsed.unwrap_or_else(|faults| {
            tracing::error!(?faults, name = order.name, "a stored strategy is invalid");
            strategy::Parsed {
                rule: Rule::None,
                parameters: std::collections::BTreeMap::new(),
            }
        });
        let view = StrategyView {
            name: rule.name().to_owned(),
            parameters,
            by: chosen.map(|row| row.by.clone()),
            at: chosen.map(|row| row.at),
            revision: 0,
        };
        *self.context.strategy.write() = view;
        self.rule = rule;
    }
}

fn wire(outcome: Outcome) -> BlockOutcome {
    match outcome {
        Outcome::Added => BlockOutcome::Added,
        Outcome::Upgraded => BlockOutcome::Upgraded,
        Outcome::Merged => BlockOutcome::Merged,
        Outcome::Unchanged | Outcome::Stale => BlockOutcome::None,
    }
}
