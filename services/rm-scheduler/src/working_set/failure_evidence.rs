//! Facts about nodes, for blocklist. The publication `failures` has results of attempts and times
//! of silence. The publication `machines` has all nodes. blocklist decides which nodes to block.
//!
//! A fact is published in the transaction that ends its attempt, so no fact is lost when the
//! scheduler crashes. The age of facts, their total number and their number for each node are
//! limited. A success on a node without failures is no fact.

use std::collections::{BTreeMap, BTreeSet};

use hayward_node_status_api::{Health, NodeEntry};
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::node_publications::{
    Attempt, FAILURES, FactEntry, FactKind, MACHINES, MachineEntry,
};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState};
use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{AllocationId, Exit, ExitCause, NodeName, Timestamp, WorkKind};
use sqlx::PgConnection;

use crate::config::FactLimits;
use crate::model::AllocationRecord;
use crate::pool_tree::quantum_of_pool;
use crate::store::{self, Rows};
use crate::translate;
use crate::working_set::Ledger;

/// A node with the maximum number of facts gets a new one only if its oldest fact is dropped. This
/// is the minimum age of a dropped fact, in milliseconds.
const MIN_REPLACED_AGE_MS: u64 = 1_000;
/// Minimum number of milliseconds between two reported successes on a node.
const SUCCESS_EVERY_MS: u64 = 10_000;
/// Maximum number of characters of a message.
const MAX_MESSAGE_CHARS: usize = 500;

pub(crate) struct FailureEvidence {
    /// Published facts by key.
    facts: BTreeMap<String, FactEntry>,
    /// Times and keys of all facts.
    by_age: BTreeSet<(Timestamp, String)>,
    /// Times and keys of the facts about each node.
    by_node: BTreeMap<NodeName, BTreeSet<(Timestamp, String)>>,
    /// Number of the newest fact about the silence of a node. It is part of the key of the fact,
    /// and only grows.
    last_number: u64,
    /// Published nodes.
    machines: BTreeMap<NodeName, MachineEntry>,
    /// Running attempts that prove that their node works if they run long enough. Each has the
    /// monotonic time at which that is the case.
    success_timers: BTreeSet<(u64, AllocationId)>,
}

impl FailureEvidence {
    pub async fn load(tx: &mut PgConnection, moment: &Moment) -> Result<Self, sqlx::Error> {
        let mut failure_evidence = Self {
            facts: store::published_entries::load_by_key(&mut *tx, FAILURES).await?,
            by_age: BTreeSet::new(),
            by_node: BTreeMap::new(),
            // Numbers of an earlier term are at most the time of that term in milliseconds, so no
            // number is used twice.
            last_number: u64::try_from(moment.now.unix_ms()).unwrap_or(0),
            machines: store::published_entries::load(tx, MACHINES, |entry: &MachineEntry| {
                entry.node.clone()
            })
            .await?,
            success_timers: BTreeSet::new(),
        };
        for (key, fact) in failure_evidence.facts.clone() {
            failure_evidence.index(key, &fact);
        }
        Ok(failure_evidence)
    }

    fn index(&mut self, key: String, fact: &FactEntry) {
        self.by_age.insert((fact.at, key.clone()));
        let of_node = self.by_node.entry(fact.node.clone()).or_default();
        of_node.insert((fact.at, key));
    }

    fn forget(&mut self, key: &str) -> bool {
        let Some(fact) = self.facts.remove(key) else {
            return false;
        };
        let entry = (fact.at, key.to_owned());
        self.by_age.remove(&entry);
        if let Some(of_node) = self.by_node.get_mut(&fact.node) {
            of_node.remove(&entry);
            if of_node.is_empty() {
                self.by_node.remove(&fact.node);
            }
        }
        true
    }

    /// Publishes a fact, unless its node has the maximum number of facts and all of them are
    /// recent.
    fn publish(
        &mut self,
        key: String,
        fact: FactEntry,
        limits: FactLimits,
        batch: &mut Batch<Rows>,
    ) {
        if !self.forget(&key) {
            let of_node = self.by_node.get(&fact.node);
            let full_node = of_node.filter(|known| known.len() >= limits.max_per_node.max(1));
            if let Some((at, oldest)) = full_node.and_then(BTreeSet::first).cloned() {
                if fact.at.ms_since(at) < MIN_REPLACED_AGE_MS {
                    return;
                }
                self.withdraw(&oldest, batch);
            }
        }
        batch.publish(FAILURES, "", &key, &fact);
        self.index(key.clone(), &fact);
        self.facts.insert(key, fact);
        while self.facts.len() > limits.max_total
            && let Some((_, oldest)) = self.by_age.first().cloned()
        {
            self.withdraw(&oldest, batch);
        }
    }

    fn withdraw(&mut self, key: &str, batch: &mut Batch<Rows>) {
        if self.forget(key) {
            batch.withdraw(FAILURES, "", key);
        }
    }

    fn newest_time(&self, node: &NodeName, what: FactKind) -> Option<Timestamp> {
        let of_node = self.by_node.get(node)?;
        let has_kind = |(_, key): &&(Timestamp, String)| self.facts[key].what == what;
        of_node.iter().rev().find(has_kind).map(|(at, _)| *at)
    }

    /// Returns true if an attempt failed on this node before the grant.
    fn follows_a_failure(&self, entry: &AllocationEntry) -> bool {
        let of_node = self.by_node.get(&entry.node).into_iter().flatten();
        let mut before = of_node.take_while(|(at, _)| *at <= entry.granted_at);
        before.any(|(_, key)| self.facts[key].what == FactKind::Failed)
    }

    /// Returns true if a success on this node is reported: the first one after a failure, and later
    /// ones at intervals.
    fn success_is_due(&self, node: &NodeName, now: Timestamp) -> bool {
        let Some(worked) = self.newest_time(node, FactKind::Worked) else {
            return true;
        };
        let failed = self.newest_time(node, FactKind::Failed);
        failed.is_some_and(|failed| failed > worked) || now.ms_since(worked) >= SUCCESS_EVERY_MS
    }

    fn next_number(&mut self, now: Timestamp) -> u64 {
        let now = u64::try_from(now.unix_ms()).unwrap_or(0);
        self.last_number = now.max(self.last_number + 1);
        self.last_number
    }

    /// Returns the monotonic time at which the next running attempt counts as a success.
    pub fn due_ms(&self) -> Option<u64> {
        self.success_timers.first().map(|(at, _)| *at)
    }
}

/// Conclusion about the node from the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conclusion {
    Failure,
    Success,
    None,
}

/// Returns the conclusion from an end. If the end was ordered (`vacated`), there is none.
fn conclude(vacated: bool, cause: ExitCause) -> Conclusion {
    match cause {
        _ if vacated => Conclusion::None,
        ExitCause::LaunchFailed
        | ExitCause::LaunchUnknown
        | ExitCause::Node
        | ExitCause::UserError
        | ExitCause::UserLimit => Conclusion::Failure,
        ExitCause::Success => Conclusion::Success,
        ExitCause::Intended | ExitCause::Unknown => Conclusion::None,
    }
}

impl Ledger {
    /// Records the end of an attempt. `before` is the attempt as it was before its end.
    pub(crate) fn record_end(
        &mut self,
        before: &AllocationRecord,
        exit: Option<&Exit>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let entry = &before.entry;
        let Some(exit) = exit else {
            return;
        };
        // The node was never asked to start the process, so the end says nothing about the node.
        if exit.cause_code.as_deref() == Some(NOT_OFFERED) {
            return;
        }
        let is_fact = match conclude(entry.vacate.is_some(), exit.cause) {
            Conclusion::Failure => true,
            Conclusion::Success => self.is_worth_reporting(before, moment.now),
            Conclusion::None => false,
        };
        if is_fact {
            self.publish_fact(before, exit, moment, batch);
        }
    }

    /// Starts the timers of running attempts again in a new term.
    pub(crate) fn resume_success_timers(&mut self, monotonic_ms: u64) {
        let is_running =
            |record: &&AllocationRecord| record.entry.state == AllocationState::Running;
        let is_reported = |record: &&AllocationRecord| {
            self.failure_evidence
                .facts
                .contains_key(record.entry.id.as_str())
        };
        let running = self.allocations.values().filter(is_running);
        let needs_timer =
            |record: &&AllocationRecord| !is_reported(record) && self.could_prove_node(record);
        let running: Vec<AllocationRecord> = running.filter(needs_timer).cloned().collect();
        for record in running {
            self.start_success_timer(&record, monotonic_ms);
        }
    }

    /// Starts the timer after which a running attempt is reported as a success, if a success would
    /// prove something about the node.
    pub(crate) fn start_success_timer(&mut self, record: &AllocationRecord, monotonic_ms: u64) {
        if record.entry.kind != WorkKind::Reservation && self.could_prove_node(record) {
            let due = monotonic_ms.saturating_add(self.context.settings.worked_ms);
            self.failure_evidence
                .success_timers
                .insert((due, record.entry.id.clone()));
        }
    }

    /// Returns true if a success of the attempt would prove that its node works again. Its node was
    /// on trial at the grant, or an earlier attempt had failed there.
    fn could_prove_node(&self, record: &AllocationRecord) -> bool {
        record.trial.is_some() || self.failure_evidence.follows_a_failure(&record.entry)
    }

    /// Returns true if a success of the attempt is reported. On a node on trial, every success is
    /// reported.
    fn is_worth_reporting(&self, record: &AllocationRecord, now: Timestamp) -> bool {
        let is_due = || {
            self.failure_evidence
                .success_is_due(&record.entry.node, now)
        };
        record.trial.is_some() || (self.could_prove_node(record) && is_due())
    }

    fn publish_fact(
        &mut self,
        record: &AllocationRecord,
        exit: &Exit,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let entry = &record.entry;
        let message = exit.message.as_ref();
        let fact = FactEntry {
            node: entry.node.clone(),
            what: match exit.cause {
                ExitCause::Success => FactKind::Worked,
                _ => FactKind::Failed,
            },
            at: moment.now,
            attempt: Some(Attempt {
                allocation: entry.id.clone(),
                work: entry.work.clone(),
                user: entry.user.clone(),
                cause: exit.cause,
                cause_code: exit.cause_code.clone(),
                message: message.map(|text| text.chars().take(MAX_MESSAGE_CHARS).collect()),
                ran: entry.running_since.is_some(),
                held_ms: moment.now.ms_since(entry.granted_at),
            }),
        };
        let limits = self.context.settings.fact_limits();
        let key = entry.id.to_string();
        self.failure_evidence.publish(key, fact, limits, batch);
    }

    /// Drops old facts, and reports attempts that have run for long enough.
    pub(crate) fn update_machine_facts(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let max_age_ms = self.context.settings.facts_kept_ms;
        while let Some((at, key)) = self.failure_evidence.by_age.first().cloned()
            && moment.now.ms_since(at) > max_age_ms
        {
            self.failure_evidence.withdraw(&key, batch);
        }
        while let Some((due, id)) = self.failure_evidence.success_timers.first().cloned()
            && due <= moment.monotonic_ms
        {
            self.failure_evidence
                .success_timers
                .remove(&(due, id.clone()));
            let is_running =
                |record: &&AllocationRecord| record.entry.state == AllocationState::Running;
            let record = self.allocations.get(&id).filter(is_running).cloned();
            let proven = record.filter(|record| self.is_worth_reporting(record, moment.now));
            if let Some(record) = proven {
                let exit = Exit::of(ExitCause::Success, "it has been running for a while");
                self.publish_fact(&record, &exit, moment, batch);
            }
        }
    }

    /// Records that a node became silent or answers again.
    pub(crate) fn record_silence(
        &mut self,
        before: &NodeEntry,
        now: &NodeEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let is_silent = |health| matches!(health, Health::Suspect | Health::Lost);
        let is_responsive = |health| matches!(health, Health::Healthy | Health::Quiesced);
        let what = if is_responsive(before.health) && is_silent(now.health) {
            FactKind::Silenced
        } else if is_silent(before.health) && is_responsive(now.health) {
            FactKind::Heard
        } else {
            return;
        };
        let number = self.failure_evidence.next_number(moment.now);
        let fact = FactEntry {
            node: now.node.clone(),
            what,
            at: moment.now,
            attempt: None,
        };
        let key = format!("node/{}/{number}", now.node);
        let limits = self.context.settings.fact_limits();
        self.failure_evidence.publish(key, fact, limits, batch);
    }

    /// Publishes a node in `machines`. blocklist limits which part of a pool it blocks by itself,
    /// and counts nodes and quanta for that.
    pub(crate) fn publish_machine(&mut self, name: &str, batch: &mut Batch<Rows>) {
        let Some(entry) = self.followed.nodes().get(name) else {
            if let Some((node, _)) = self.failure_evidence.machines.remove_entry(name) {
                batch.withdraw(MACHINES, "", node.as_str());
            }
            return;
        };
        let capacity = self.policy.rules().capacity(&entry.capacity);
        let pool = translate::pool_of(entry, self.policy.rules());
        let machine = MachineEntry {
            node: entry.node.clone(),
            ready: entry.takes_work(),
            quanta: quantum_of_pool(&self.snapshot, &pool).quanta_of_node(&capacity),
            pool,
        };
        if self.failure_evidence.machines.get(&machine.node) != Some(&machine) {
            batch.publish(MACHINES, "", machine.node.as_str(), &machine);
            self.failure_evidence
                .machines
                .insert(machine.node.clone(), machine);
        }
    }

    /// Publishes all nodes after a policy change, or with the first nodes of a term.
    pub(crate) fn publish_machines(&mut self, batch: &mut Batch<Rows>) {
        let known = self
            .failure_evidence
            .machines
            .keys()
            .map(ToString::to_string);
        let all: BTreeSet<String> = known
            .chain(self.followed.nodes().iter().map(|(name, _)| name.clone()))
            .collect();
        for name in all {
            self.publish_machine(&name, batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordered_end_is_not_a_failure_of_the_node() {
        use ExitCause::{
            Intended, LaunchFailed, LaunchUnknown, Node, Success, Unknown, UserError, UserLimit,
        };
        let all = [
            (Success, Conclusion::Success),
            (UserError, Conclusion::Failure),
            (UserLimit, Conclusion::Failure),
            (LaunchFailed, Conclusion::Failure),
            (Node, Conclusion::Failure),
            (Intended, Conclusion::None),
            (LaunchUnknown, Conclusion::Failure),
            (Unknown, Conclusion::None),
        ];
        for (cause, expected) in all {
            assert_eq!(conclude(false, cause), expected, "{cause:?}");
            assert_eq!(
                conclude(true, cause),
                Conclusion::None,
                "vacated: {cause:?}"
            );
        }
    }
}
