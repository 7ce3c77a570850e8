//! Log of facts by node, and of outcomes by work.
//!
//! Ambiguous failures count against a node in two cases. First, a launch fails here, works on
//! another node and fails nowhere else. Second, at least three jobs of at least two users fail here
//! and nowhere else. A later success on the node clears its earlier ambiguous failures.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{ExitCause, NodeName, Timestamp, WorkId};

use crate::fact::{Blame, Fact, NodeFact};

/// Distinct jobs and users with ambiguous failures that together count against a node.
const MIN_WORKS: usize = 3;
const MIN_USERS: usize = 2;
/// Failures of one node loss within this time count as one event.
const ONE_EVENT_MS: u64 = 10_000;

/// The last `ms` milliseconds up to and including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub end: Timestamp,
    pub ms: u64,
}

impl Window {
    pub fn contains(&self, at: Timestamp) -> bool {
        at <= self.end && self.end.ms_since(at) < self.ms
    }
}

/// Outcome of a work item on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WorkOutcome {
    node: NodeName,
    at: Timestamp,
    failed: bool,
}

#[derive(Debug, Clone, Default)]
pub struct FactLog {
    /// Sorted by time, then by key.
    nodes: BTreeMap<NodeName, Vec<Fact>>,
    works: BTreeMap<WorkId, Vec<WorkOutcome>>,
}

impl FactLog {
    pub fn add(&mut self, node: &NodeName, fact: Fact) {
        self.index_outcome(node, &fact);
        let facts = self.nodes.entry(node.clone()).or_default();
        let order = |fact: &Fact| (fact.at, fact.key.clone(), fact.kind);
        let position = facts.partition_point(|known| order(known) <= order(&fact));
        facts.insert(position, fact);
    }

    fn index_outcome(&mut self, node: &NodeName, fact: &Fact) {
        let failed = match (fact.kind, fact.blame()) {
            (NodeFact::Success, _) => false,
            (_, Blame::Ambiguous | Blame::Shared) => true,
            _ => return,
        };
        if let Some(work) = fact.work() {
            self.works
                .entry(work.clone())
                .or_default()
                .push(WorkOutcome {
                    node: node.clone(),
                    at: fact.at,
                    failed,
                });
        }
    }

    pub fn facts(&self, node: &NodeName) -> &[Fact] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// Marks all facts of a node as spent; they no longer count.
    pub fn spend(&mut self, node: &NodeName) {
        for fact in self.nodes.get_mut(node).into_iter().flatten() {
            fact.spent = true;
        }
    }

    /// Removes the facts that `keep` rejects, and returns their keys.
    pub fn trim(&mut self, keep: impl Fn(&Fact) -> bool) -> Vec<(String, NodeFact)> {
        let mut gone = Vec::new();
        for facts in self.nodes.values_mut() {
            facts.retain(|fact| {
                let retain = keep(fact);
                if !retain {
                    gone.push((fact.key.clone(), fact.kind));
                }
                retain
            });
        }
        if !gone.is_empty() {
            self.nodes.retain(|_, facts| !facts.is_empty());
            self.works.clear();
            let nodes = std::mem::take(&mut self.nodes);
            for (node, facts) in &nodes {
                for fact in facts {
                    self.index_outcome(node, fact);
                }
            }
            self.nodes = nodes;
        }
        gone
    }

    /// Failures in the window that count against the node, among those that `counts` accepts.
    pub fn against(
        &self,
        node: &NodeName,
        window: Window,
        counts: impl Fn(&Fact) -> bool,
    ) -> Vec<&Fact> {
        let facts = self.facts(node);
        let recent = |fact: &&Fact| !fact.spent && window.contains(fact.at);
        let cleared = facts
            .iter()
            .filter(recent)
            .filter(|fact| fact.kind == NodeFact::Success)
            .map(|fact| fact.at)
            .max();
        let mut lost = None;
        let (mut found, mut ambiguous) = (Vec::new(), Vec::new());
        for fact in facts.iter().filter(recent).filter(|fact| counts(fact)) {
            match fact.blame() {
                Blame::Node if is_loss(fact) && same_event(&mut lost, fact.at) => {}
                Blame::Shared if self.fails_elsewhere(node, fact, window) => {}
                Blame::Node | Blame::Shared => found.push(fact),
                Blame::Ambiguous if cleared.is_some_and(|at| at >= fact.at) => {}
                Blame::Ambiguous if self.fails_elsewhere(node, fact, window) => {}
                Blame::None => {}
                Blame::Ambiguous => ambiguous.push(fact),
            }
        }
        let many = is_confirmed_by_many(&ambiguous);
        ambiguous
            .retain(|fact| many || (fact.at_start() && self.works_elsewhere(node, fact, window)));
        found.extend(ambiguous);
        found
    }

    /// True when the same work also fails on another node.
    pub fn fails_elsewhere(&self, node: &NodeName, fact: &Fact, window: Window) -> bool {
        self.elsewhere(node, fact, window, true)
    }

    fn works_elsewhere(&self, node: &NodeName, fact: &Fact, window: Window) -> bool {
        self.elsewhere(node, fact, window, false)
    }

    fn elsewhere(&self, node: &NodeName, fact: &Fact, window: Window, failed: bool) -> bool {
        let outcomes = fact.work().and_then(|work| self.works.get(work));
        outcomes.into_iter().flatten().any(|outcome| {
            outcome.failed == failed && outcome.node != *node && window.contains(outcome.at)
        })
    }
}

/// True for at least three works of at least two users.
fn is_confirmed_by_many(ambiguous: &[&Fact]) -> bool {
    let attempts = || ambiguous.iter().filter_map(|fact| fact.attempt.as_ref());
    let works: BTreeSet<_> = attempts().map(|attempt| &attempt.work).collect();
    let users: BTreeSet<_> = attempts().map(|attempt| &attempt.user).collect();
    works.len() >= MIN_WORKS && users.len() >= MIN_USERS
}

fn is_loss(fact: &Fact) -> bool {
    let attempt = fact.attempt.as_ref();
    attempt.is_some_and(|attempt| attempt.cause == ExitCause::Node && attempt.code.is_none())
}

fn same_event(last: &mut Option<Timestamp>, at: Timestamp) -> bool {
    let same = last.is_some_and(|last| at.ms_since(last) < ONE_EVENT_MS);
    *last = Some(at);
    same
}

#[cfg(test)]
pub(crate) mod tests;
