//! Log of facts, indexed by node, and of outcomes, indexed by work.
//!
//! Ambiguous failures count against a node in two cases. In the first, a launch fails on the node,
//! succeeds on another node, and fails on no other node. In the second, at least three jobs of at
//! least two users fail on this node only. A later success on the node clears its earlier ambiguous
//! failures.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{ExitCause, NodeName, Timestamp, WorkId};

use crate::node_fact::{Blame, Fact, FactKind};

/// Minimum number of distinct jobs whose ambiguous failures together count against a node.
const MIN_JOBS: usize = 3;
/// Minimum number of distinct users of these jobs.
const MIN_USERS: usize = 2;
/// Failures by loss of the node within this time count as one event.
const NODE_LOSS_WINDOW_MS: u64 = 10_000;

/// Period of `ms` milliseconds up to and including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub end: Timestamp,
    pub ms: u64,
}

impl Window {
    /// Returns whether the instant is in the window.
    pub fn contains(&self, at: Timestamp) -> bool {
        at <= self.end && self.end.ms_since(at) < self.ms
    }
}

/// Outcome of a piece of work on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WorkOutcome {
    node: NodeName,
    at: Timestamp,
    failed: bool,
}

#[derive(Debug, Clone, Default)]
pub struct FactLog {
    /// Facts about each node, sorted by time, then by key.
    facts_by_node: BTreeMap<NodeName, Vec<Fact>>,
    /// Outcomes of each piece of work. They show whether work fails on one node only.
    outcomes_by_work: BTreeMap<WorkId, Vec<WorkOutcome>>,
}

impl FactLog {
    /// Adds a fact in order of time.
    pub fn add(&mut self, node: &NodeName, fact: Fact) {
        self.index_outcome(node, &fact);
        let facts = self.facts_by_node.entry(node.clone()).or_default();
        let sort_key = |fact: &Fact| (fact.at, fact.key.clone(), fact.kind);
        let position = facts.partition_point(|other| sort_key(other) <= sort_key(&fact));
        facts.insert(position, fact);
    }

    fn index_outcome(&mut self, node: &NodeName, fact: &Fact) {
        let failed = match (fact.kind, fact.blame()) {
            (FactKind::Success, _) => false,
            (_, Blame::Ambiguous | Blame::Shared) => true,
            _ => return,
        };
        if let Some(work) = fact.work() {
            self.outcomes_by_work
                .entry(work.clone())
                .or_default()
                .push(WorkOutcome {
                    node: node.clone(),
                    at: fact.at,
                    failed,
                });
        }
    }

    /// Returns the facts about a node, oldest first.
    pub fn facts(&self, node: &NodeName) -> &[Fact] {
        self.facts_by_node.get(node).map_or(&[], Vec::as_slice)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.facts_by_node.keys()
    }

    /// Marks all facts of a node as spent, so that they no longer count.
    pub fn mark_spent(&mut self, node: &NodeName) {
        for fact in self.facts_by_node.get_mut(node).into_iter().flatten() {
            fact.spent = true;
        }
    }

    /// Removes the facts that `is_retained` does not accept. Returns the key and kind of each
    /// removed fact.
    pub fn retain(&mut self, is_retained: impl Fn(&Fact) -> bool) -> Vec<(String, FactKind)> {
        let mut removed = Vec::new();
        for facts in self.facts_by_node.values_mut() {
            facts.retain(|fact| {
                let is_removed = !is_retained(fact);
                if is_removed {
                    removed.push((fact.key.clone(), fact.kind));
                }
                !is_removed
            });
        }
        if !removed.is_empty() {
            // The index of outcomes is built again from the remaining facts.
            self.facts_by_node.retain(|_, facts| !facts.is_empty());
            self.outcomes_by_work.clear();
            let facts_by_node = std::mem::take(&mut self.facts_by_node);
            for (node, facts) in &facts_by_node {
                for fact in facts {
                    self.index_outcome(node, fact);
                }
            }
            self.facts_by_node = facts_by_node;
        }
        removed
    }

    /// Returns the failures in the window that count against the node, among those that
    /// `is_relevant` accepts.
    pub fn failures_against(
        &self,
        node: &NodeName,
        window: Window,
        is_relevant: impl Fn(&Fact) -> bool,
    ) -> Vec<&Fact> {
        let facts = self.facts(node);
        let is_current = |fact: &&Fact| !fact.spent && window.contains(fact.at);
        let last_success = facts
            .iter()
            .filter(is_current)
            .filter(|fact| fact.kind == FactKind::Success)
            .map(|fact| fact.at)
            .max();
        let mut last_loss_at: Option<Timestamp> = None;
        let (mut failures, mut ambiguous) = (Vec::new(), Vec::new());
        for fact in facts
            .iter()
            .filter(is_current)
            .filter(|fact| is_relevant(fact))
        {
            match fact.blame() {
                Blame::None => {}
                Blame::Node if is_node_loss(fact) => {
                    let is_same_loss = last_loss_at
                        .is_some_and(|last| fact.at.ms_since(last) < NODE_LOSS_WINDOW_MS);
                    last_loss_at = Some(fact.at);
                    if !is_same_loss {
                        failures.push(fact);
                    }
                }
                Blame::Node => failures.push(fact),
                Blame::Shared => {
                    if !self.fails_on_other_node(node, fact, window) {
                        failures.push(fact);
                    }
                }
                Blame::Ambiguous => {
                    let is_cleared = last_success.is_some_and(|at| at >= fact.at);
                    if !is_cleared && !self.fails_on_other_node(node, fact, window) {
                        ambiguous.push(fact);
                    }
                }
            }
        }
        let is_confirmed = is_confirmed_by_many(&ambiguous);
        ambiguous.retain(|fact| {
            is_confirmed
                || (fact.failed_at_start() && self.succeeds_on_other_node(node, fact, window))
        });
        failures.extend(ambiguous);
        failures
    }

    /// Returns whether the same work also fails on another node.
    pub fn fails_on_other_node(&self, node: &NodeName, fact: &Fact, window: Window) -> bool {
        self.has_outcome_on_other_node(node, fact, window, true)
    }

    /// Returns whether the same work succeeds on another node.
    fn succeeds_on_other_node(&self, node: &NodeName, fact: &Fact, window: Window) -> bool {
        self.has_outcome_on_other_node(node, fact, window, false)
    }

    fn has_outcome_on_other_node(
        &self,
        node: &NodeName,
        fact: &Fact,
        window: Window,
        failed: bool,
    ) -> bool {
        let outcomes = fact.work().and_then(|work| self.outcomes_by_work.get(work));
        outcomes.into_iter().flatten().any(|outcome| {
            outcome.failed == failed && outcome.node != *node && window.contains(outcome.at)
        })
    }
}

/// Returns whether the failures are of at least three jobs and at least two users.
fn is_confirmed_by_many(ambiguous: &[&Fact]) -> bool {
    let attempts = || ambiguous.iter().filter_map(|fact| fact.attempt.as_ref());
    let works: BTreeSet<_> = attempts().map(|attempt| &attempt.work).collect();
    let users: BTreeSet<_> = attempts().map(|attempt| &attempt.user).collect();
    works.len() >= MIN_JOBS && users.len() >= MIN_USERS
}

/// Returns whether the attempt failed because its node was lost.
fn is_node_loss(fact: &Fact) -> bool {
    let attempt = fact.attempt.as_ref();
    attempt.is_some_and(|attempt| attempt.cause == ExitCause::Node && attempt.cause_class.is_none())
}

#[cfg(test)]
pub(crate) mod tests;
