//! The record of the machines: facts by machine, and by work where it failed and where it worked.
//!
//! Doubtful failures are borne out in one of two ways. A launch that fails here and works
//! elsewhere, and fails nowhere else, is this machine's fault. And where at least three works of at
//! least two users fail on one machine and none of them anywhere else, it is the machine too. A
//! program that works on the machine afterwards speaks for it and clears the doubtful ones before.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{ExitCause, NodeName, Timestamp, WorkId};

use crate::fact::{Blame, Fact, What};

/// Distinct works and users whose doubtful failures together are no longer doubtful.
const WORKS: usize = 3;
const USERS: usize = 2;
/// Attempts that a lost machine takes down with it are one event, not many.
const ONE_EVENT_MS: u64 = 10_000;

/// The last `ms` milliseconds up to and with `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub end: Timestamp,
    pub ms: u64,
}

impl Window {
    pub fn holds(&self, at: Timestamp) -> bool {
        at <= self.end && self.end.ms_since(at) < self.ms
    }
}

/// Where a work was seen, and whether it failed there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sight {
    node: NodeName,
    at: Timestamp,
    failed: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Record {
    /// In order of time; of equal times, of key.
    nodes: BTreeMap<NodeName, Vec<Fact>>,
    works: BTreeMap<WorkId, Vec<Sight>>,
}

impl Record {
    pub fn add(&mut self, node: &NodeName, fact: Fact) {
        self.sight(node, &fact);
        let facts = self.nodes.entry(node.clone()).or_default();
        let order = |fact: &Fact| (fact.at, fact.key.clone(), fact.what);
        let place = facts.partition_point(|known| order(known) <= order(&fact));
        facts.insert(place, fact);
    }

    fn sight(&mut self, node: &NodeName, fact: &Fact) {
        let failed = match (fact.what, fact.blame()) {
            (What::Worked, _) => false,
            (_, Blame::Doubtful | Blame::Shared) => true,
            _ => return,
        };
        if let Some(work) = fact.work() {
            self.works.entry(work.clone()).or_default().push(Sight {
                node: node.clone(),
                at: fact.at,
                failed,
            });
        }
    }

    pub fn of(&self, node: &NodeName) -> &[Fact] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// What is known of a machine so far counts no more.
    pub fn spend(&mut self, node: &NodeName) {
        for fact in self.nodes.get_mut(node).into_iter().flatten() {
            fact.spent = true;
        }
    }

    /// Drops the facts that `keep` does not want, and returns their keys.
    pub fn trim(&mut self, keep: impl Fn(&Fact) -> bool) -> Vec<(String, What)> {
        let mut gone = Vec::new();
        for facts in self.nodes.values_mut() {
            facts.retain(|fact| {
                let kept = keep(fact);
                if !kept {
                    gone.push((fact.key.clone(), fact.what));
                }
                kept
            });
        }
        if !gone.is_empty() {
            self.nodes.retain(|_, facts| !facts.is_empty());
            self.works.clear();
            let nodes = std::mem::take(&mut self.nodes);
            for (node, facts) in &nodes {
                for fact in facts {
                    self.sight(node, fact);
                }
            }
            self.nodes = nodes;
        }
        gone
    }

    /// Failures in the window that speak against the machine, of those that `counts`.
    pub fn against(
        &self,
        node: &NodeName,
        window: Window,
        counts: impl Fn(&Fact) -> bool,
    ) -> Vec<&Fact> {
        let facts = self.of(node);
        let recent = |fact: &&Fact| !fact.spent && window.holds(fact.at);
        let cleared = facts
            .iter()
            .filter(recent)
            .filter(|fact| fact.what == What::Worked)
            .map(|fact| fact.at)
            .max();
        let mut lost = None;
        let (mut found, mut doubtful) = (Vec::new(), Vec::new());
        for fact in facts.iter().filter(recent).filter(|fact| counts(fact)) {
            match fact.blame() {
                Blame::Machine if is_loss(fact) && same_event(&mut lost, fact.at) => {}
                Blame::Shared if self.fails_elsewhere(node, fact, window) => {}
                Blame::Machine | Blame::Shared => found.push(fact),
                Blame::Doubtful if cleared.is_some_and(|at| at >= fact.at) => {}
                Blame::Doubtful if self.fails_elsewhere(node, fact, window) => {}
                Blame::Nobody => {}
                Blame::Doubtful => doubtful.push(fact),
            }
        }
        let many = borne_out_by_many(&doubtful);
        doubtful
            .retain(|fact| many || (fact.at_start() && self.works_elsewhere(node, fact, window)));
        found.extend(doubtful);
        found
    }

    /// The same work fails on another machine too.
    pub fn fails_elsewhere(&self, node: &NodeName, fact: &Fact, window: Window) -> bool {
        self.elsewhere(node, fact, window, true)
    }

    fn works_elsewhere(&self, node: &NodeName, fact: &Fact, window: Window) -> bool {
        self.elsewhere(node, fact, window, false)
    }

    fn elsewhere(&self, node: &NodeName, fact: &Fact, window: Window, failed: bool) -> bool {
        let sights = fact.work().and_then(|work| self.works.get(work));
        sights
            .into_iter()
            .flatten()
            .any(|sight| sight.failed == failed && sight.node != *node && window.holds(sight.at))
    }
}

/// Three works of two users, which fail nowhere else.
fn borne_out_by_many(doubtful: &[&Fact]) -> bool {
    let attempts = || doubtful.iter().filter_map(|fact| fact.attempt.as_ref());
    let works: BTreeSet<_> = attempts().map(|attempt| &attempt.work).collect();
    let users: BTreeSet<_> = attempts().map(|attempt| &attempt.user).collect();
    works.len() >= WORKS && users.len() >= USERS
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
