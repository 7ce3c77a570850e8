//! What people and owners ask for: checked as a whole first, so that a refusal changes nothing.

use std::collections::BTreeSet;

use hayward_blocklist_api::{BlockKind, BlockOutcome, StrategyView};
use hayward_blocklist_domain::{Item, Outcome, Rule, Withheld};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use super::items::Statement;
use super::nodes::Blocked;
use super::{Ledger, dedupe};
use crate::error::Refusal;
use crate::model::{Done, New, Orders, STALE, Until, entry};
use crate::store::{Rows, StrategyRow};
use crate::strategy;

/// And for an automatic source that asks for no time at all (4.3).
const ZERO: &str = "ZERO_DURATION";

impl Ledger {
    pub(super) fn take_orders(
        &mut self,
        orders: &Orders,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<Vec<Done>, Refusal> {
        if !self.context.settings.enabled {
            return Err(Refusal::Disabled);
        }
        // Race 4: an item that is over goes first, so that extending it is a new fact.
        for new in &orders.items {
            self.expire(&new.key, moment, batch);
        }
        self.check_room(&orders.items)?;
        self.check_names(&orders.items)?;
        self.check_conflicts(orders)?;
        self.check_brakes(&orders.items, moment)?;
        let first = batch.rows.changes.len();
        let items = orders.items.iter();
        let done = items.map(|new| (&new.key, self.take(new, orders, moment, batch)));
        let done = dedupe::answers(done.collect());
        dedupe::lines(&mut batch.rows.changes, first);
        Ok(done)
    }

    fn live(&self, new: &New) -> Option<&Item> {
        self.blocks.get(&new.key)?.slot.item.as_ref()
    }

    fn is_stale(&self, new: &New) -> bool {
        let number = self
            .blocks
            .get(&new.key)
            .map_or(0, |block| block.slot.removal_no);
        new.based_on.is_some_and(|based_on| based_on < number)
    }

    /// I25
    fn check_room(&self, items: &[New]) -> Result<(), Refusal> {
        let fresh = items.iter().map(|new| &new.key);
        let fresh = fresh.filter(|key| !self.blocks.contains_key(*key));
        let (has, most) = (self.blocks.len(), self.context.settings.max_items);
        let fresh: BTreeSet<_> = fresh.collect();
        if fresh.is_empty() || has + fresh.len() <= most {
            return Ok(());
        }
        Err(Refusal::Full(has, most))
    }

    /// A machine that was never seen is a slip of the pen, as soon as the machines are known.
    fn check_names(&self, items: &[New]) -> Result<(), Refusal> {
        if !self.machines.heard() {
            return Ok(());
        }
        let known = &self.machines.known;
        let unknown =
            |new: &&New| new.key.kind == BlockKind::Node && !known.contains(&new.key.identifier);
        match items.iter().enumerate().find(|(_, new)| unknown(new)) {
            Some((number, new)) => {
                let name = new.key.identifier.clone();
                Err(Refusal::UnknownNode(number, name, known.len()))
            }
            None => Ok(()),
        }
    }

    fn check_conflicts(&self, orders: &Orders) -> Result<(), Refusal> {
        if orders.allow_merge {
            return Ok(());
        }
        for new in orders.items.iter().filter(|new| !self.is_stale(new)) {
            let settings = &self.context.settings;
            if let Some(item) = self.live(new).filter(|item| !new.repeats(item, settings)) {
                let number = self
                    .blocks
                    .get(&new.key)
                    .map_or(0, |block| block.slot.removal_no);
                return Err(Refusal::Exists(Box::new(entry(&new.key, item, number))));
            }
        }
        Ok(())
    }

    /// Automatic items together keep to the brakes. Copies of what is there already are no more.
    fn check_brakes(&self, items: &[New], moment: &Moment) -> Result<(), Refusal> {
        let mut more: Vec<&str> = Vec::new();
        for (number, new) in items.iter().enumerate() {
            let counts = new.automatic() && new.until != Until::For(0) && !self.is_stale(new);
            let Some(node) = new.key.whole_node().filter(|_| counts) else {
                continue;
            };
            if self.live(new).is_some() || more.contains(&node) {
                continue;
            }
            self.brake(node, &more, moment)
                .map_err(|held| Refusal::Brake(number, held))?;
            more.push(node);
        }
        Ok(())
    }

    fn take(
        &mut self,
        new: &New,
        orders: &Orders,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Done {
        let nothing = |reason, ledger: &Self| Done {
            outcome: BlockOutcome::None,
            reason,
            item: ledger
                .blocks
                .get(&new.key)
                .and_then(|block| block.entry(&new.key)),
            warnings: Vec::new(),
        };
        if new.automatic() && new.until == Until::For(0) {
            return nothing(Some(ZERO), self);
        }
        if !orders.allow_merge && !self.is_stale(new) && self.live(new).is_some() {
            // Checked before: it says the same.
            return nothing(None, self);
        }
        let item = new.item(moment.now, &self.context.settings);
        let manual = !item.automatic();
        let said = Statement {
            item,
            based_on: new.based_on,
            by: &orders.by,
        };
        let outcome = self.put(&new.key, said, moment, batch);
        let warnings = new
            .key
            .whole_node()
            .filter(|_| manual && outcome.changed())
            .and_then(|node| self.warning(node, moment));
        Done {
            outcome: wire(outcome),
            warnings: warnings.into_iter().collect(),
            ..nothing((outcome == Outcome::Stale).then_some(STALE), self)
        }
    }

    /// Machines under a block or on trial, for everybody.
    fn blocked(&self) -> impl Iterator<Item = Blocked<'_>> {
        self.blocks.iter().filter_map(|(key, block)| {
            let node = key.whole_node()?;
            let automatic = match (&block.slot.item, &block.slot.trial) {
                (Some(item), _) => item.automatic(),
                (None, Some(_)) => true,
                (None, None) => return None,
            };
            Some(Blocked { node, automatic })
        })
    }

    /// Whether a machine may be blocked automatically, `more` being blocked with it.
    pub(super) fn brake(&self, node: &str, more: &[&str], moment: &Moment) -> Result<(), Withheld> {
        let more = more.iter().map(|node| Blocked {
            node,
            automatic: true,
        });
        let blocked = self.blocked().chain(more);
        let (name, pool) = self.machines.pool_of(node, blocked, moment.monotonic_ms)?;
        self.context.settings.brakes().allow(&name, pool)
    }

    fn warning(&self, node: &str, moment: &Moment) -> Option<String> {
        let found = self
            .machines
            .pool_of(node, self.blocked(), moment.monotonic_ms);
        let (name, pool) = found.ok()?;
        self.context.settings.brakes().warning(&name, pool)
    }

    /// A strategy that would block most of a pool by what is on record is refused with the numbers.
    pub(super) fn choose(
        &mut self,
        (rule, parameters): strategy::Read,
        by: String,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<StrategyView, Refusal> {
        if !self.context.settings.enabled {
            return Err(Refusal::Disabled);
        }
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
            let scores = rule.scores(&self.record, node, self.newest);
            scores.iter().any(|score| score.proposal.is_some())
        };
        let met: Vec<&str> = self
            .record
            .nodes()
            .filter(met)
            .map(NodeName::as_str)
            .collect();
        for node in &met {
            let found = self
                .machines
                .pool_of(node, std::iter::empty(), moment.monotonic_ms);
            let Ok((name, pool)) = found else { continue };
            let mates: Vec<&str> = met
                .iter()
                .copied()
                .filter(|other| {
                    let other = self.machines.get(other);
                    other.is_some_and(|other| other.pool == name && other.ready)
                })
                .collect();
            let count = u64::try_from(mates.len()).unwrap_or(u64::MAX);
            let allowed = self.context.settings.brakes().allowed(pool);
            if count > allowed && count.saturating_mul(2) > pool.ready {
                return Err(Refusal::TooBroad(format!(
                    "by what is on record now this would block {count} of {} ready nodes of pool \
                     {name} ({}); {allowed} may be blocked automatically",
                    pool.ready,
                    mates[..mates.len().min(5)].join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The strategy in force at the start of a term: the one chosen, else the one of the settings.
    pub(super) fn adopt(&mut self, chosen: Option<&StrategyRow>) {
        let settings = &self.context.settings;
        let order = hayward_blocklist_api::StrategyOrder {
            name: chosen.map_or(&settings.strategy, |row| &row.name).clone(),
            parameters: chosen.map(|row| row.parameters.clone()).unwrap_or_default(),
        };
        let read = strategy::read(&order, settings.defaults());
        let (rule, parameters) = read.unwrap_or_else(|faults| {
            tracing::error!(
                ?faults,
                name = order.name,
                "a stored strategy does not read"
            );
            (Rule::None, std::collections::BTreeMap::new())
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
