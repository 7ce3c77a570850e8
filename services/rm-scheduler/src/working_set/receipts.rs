//! Receipts of preemptions, from the order to leave to the outcome.
//!
//! A receipt with a beneficiary is open until a process of the beneficiary runs in the freed space.
//! The receipt lapses if the beneficiary will not use that space. This is the case when the
//! preempted process has left, and the beneficiary has neither a process on the node nor a claim to
//! the node. The
//! verdicts of the preempted work and of the beneficiary contain their newest receipts. All
//! receipts are stored with their round.

use std::collections::{BTreeMap, BTreeSet};

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VERDICTS, VerdictEntry};
use hayward_rm_scheduler_domain::plan;
use hayward_vocabulary::{NodeName, Outcome, Receipt, WorkId};

use crate::metrics::PreemptionPairs;
use crate::model::AllocationRecord;
use crate::store::Rows;
use crate::store::receipts::MAX_STORED;
use crate::working_set::Ledger;

/// Open receipts, and the number of the newest receipt.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    last: u64,
    /// Open receipts by number.
    open: BTreeMap<u64, Receipt>,
    /// For the metric of reversed preemptions.
    pairs: PreemptionPairs,
}

impl Receipts {
    pub fn new(receipts: &BTreeMap<u64, Receipt>) -> Self {
        let open = receipts
            .iter()
            .filter(|(_, receipt)| receipt.outcome == Outcome::Open);
        Self {
            last: receipts.last_key_value().map_or(0, |(last, _)| *last),
            open: open
                .map(|(number, receipt)| (*number, receipt.clone()))
                .collect(),
            pairs: PreemptionPairs::new(receipts.values()),
        }
    }

    fn count(&mut self, new_receipts: &[Receipt]) {
        for receipt in new_receipts {
            self.pairs.count(receipt);
        }
    }

    /// Adds a receipt, and returns its number.
    fn add(&mut self, receipt: &Receipt) -> u64 {
        self.last += 1;
        if receipt.outcome == Outcome::Open {
            self.open.insert(self.last, receipt.clone());
            // The store has deleted older receipts, so they are never closed.
            self.open = self.open.split_off(&self.last.saturating_sub(MAX_STORED));
        }
        self.last
    }
}

impl Ledger {
    /// Writes a receipt for each preemption that this round carried out. `carried_out` has the
    /// vacated allocations, with the detail of each order.
    pub(crate) fn write_receipts(
        &mut self,
        receipts: &[plan::Receipt],
        carried_out: &BTreeMap<String, String>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let new_receipts: Vec<Receipt> = receipts
            .iter()
            .filter(|receipt| carried_out.contains_key(receipt.allocation.as_str()))
            .map(|receipt| self.to_receipt(receipt.clone(), moment))
            .collect();
        self.receipts.count(&new_receipts);
        self.charge_preemptions(new_receipts.iter(), moment, batch);
        let numbered = new_receipts
            .into_iter()
            .map(|it| (self.receipts.add(&it), it));
        let numbered = numbered.collect();
        self.publish_receipts(numbered, batch);
    }

    /// Converts a receipt of a plan.
    fn to_receipt(&self, receipt: plan::Receipt, moment: &Moment) -> Receipt {
        let demand = self.followed.demand().get(receipt.work.as_str());
        let task_ms = demand.and_then(|demand| demand.task_ms);
        let outcome = match receipt.beneficiary {
            Some(_) => Outcome::Open,
            None => Outcome::NoBeneficiary,
        };
        Receipt {
            round: self.timing.round(),
            at: moment.now,
            allocation: receipt.allocation,
            work: receipt.work,
            user: receipt.user,
            node: receipt.node,
            order: receipt.quanta,
            lost_ms: receipt.lost_ms.min(task_ms.unwrap_or(u64::MAX)),
            beneficiary: receipt.beneficiary,
            for_user: receipt.for_user,
            outcome,
        }
    }

    /// Closes receipts when a process of the beneficiary runs in the freed space. The oldest
    /// receipts for this work and node are closed, up to the quanta of the process.
    pub(crate) fn fulfil_receipts(
        &mut self,
        entry: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let mut covered_quanta = 0;
        let mut fulfilled = BTreeMap::new();
        for (number, receipt) in &self.receipts.open {
            let freed_for_entry = receipt.beneficiary.as_ref() == Some(&entry.work)
                && receipt.node == entry.node
                && receipt.at <= entry.granted_at
                && !self.still_holds_space(receipt);
            if freed_for_entry && covered_quanta < entry.order {
                covered_quanta += receipt.order;
                let outcome = Outcome::Started {
                    allocation: entry.id.clone(),
                    at: moment.now,
                    after_ms: moment.now.ms_since(receipt.at),
                };
                let receipt = Receipt {
                    outcome,
                    ..receipt.clone()
                };
                fulfilled.insert(*number, receipt);
            }
        }
        self.publish_receipts(fulfilled, batch);
    }

    /// Closes the receipts whose beneficiary will not use the freed space.
    pub(crate) fn close_lapsed_receipts(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        if self.receipts.open.is_empty() {
            return;
        }
        let lapsed = self.receipts.open.iter().filter_map(|(number, receipt)| {
            let outcome = self.lapsed_outcome(receipt, moment)?;
            let receipt = Receipt {
                outcome,
                ..receipt.clone()
            };
            Some((*number, receipt))
        });
        let lapsed = lapsed.collect();
        self.publish_receipts(lapsed, batch);
    }

    /// Returns true while a process leaves the node. Several processes may leave for one
    /// beneficiary.
    fn is_emptying(&self, node: &NodeName) -> bool {
        let planned = |record: &AllocationRecord| self.snapshot.allocations.get(&record.entry.id);
        self.allocations
            .on_node(node)
            .filter_map(planned)
            .any(|allocation| allocation.leaving)
    }

    /// Returns true if the preempted process still holds the space.
    fn still_holds_space(&self, receipt: &Receipt) -> bool {
        self.snapshot.allocations.contains_key(&receipt.allocation)
    }

    /// Returns the outcome of a lapsed receipt. Returns `None` while the beneficiary may still use
    /// the space.
    fn lapsed_outcome(&self, receipt: &Receipt, moment: &Moment) -> Option<Outcome> {
        let work = receipt.beneficiary.as_ref()?;
        let not_started = |detail| Outcome::NotStarted {
            at: moment.now,
            detail,
        };
        if self.followed.demand().get(work.as_str()).is_none() {
            return Some(not_started(format!("{work} ended first")));
        }
        let claims = self.snapshot.carried.claims.get(work);
        let claimed = claims.is_some_and(|nodes| nodes.contains(&receipt.node));
        if self.still_holds_space(receipt) || claimed || self.is_emptying(&receipt.node) {
            return None;
        }
        let later = self.later_allocations(work, receipt);
        if later.iter().any(|entry| entry.node == receipt.node) {
            return None;
        }
        let other = later
            .iter()
            .find(|entry| entry.state == AllocationState::Running);
        Some(match (other, self.verdicts.get(work)) {
            (Some(entry), _) => Outcome::StartedElsewhere {
                allocation: entry.id.clone(),
                node: entry.node.clone(),
            },
            (None, Some(verdict)) => not_started(verdict.detail.clone()),
            (None, None) => not_started("it is no longer entitled to the space".to_owned()),
        })
    }

    /// Returns the allocations that the beneficiary got after the receipt and still has.
    fn later_allocations(&self, work: &WorkId, receipt: &Receipt) -> Vec<&AllocationEntry> {
        let entries = self.allocations.of_work(work);
        entries
            .map(|record| &record.entry)
            .filter(|entry| entry.holds() && entry.vacate.is_none())
            .filter(|entry| entry.granted_at >= receipt.at)
            .collect()
    }

    /// Writes receipts, and adds each one to its round and to the verdicts of the preempted work
    /// and the beneficiary.
    fn publish_receipts(&mut self, receipts: BTreeMap<u64, Receipt>, batch: &mut Batch<Rows>) {
        if receipts.is_empty() {
            return;
        }
        let mut changed = BTreeSet::new();
        for (number, receipt) in &receipts {
            if receipt.outcome != Outcome::Open {
                self.receipts.open.remove(number);
            }
            for work in std::iter::once(&receipt.work).chain(&receipt.beneficiary) {
                if let Some(verdict) = self.verdicts.get_mut(work) {
                    insert_into_verdict(verdict, receipt);
                    changed.insert(work.clone());
                }
            }
        }
        for work in changed {
            if let Some(verdict) = self.verdicts.get(&work) {
                batch.publish(VERDICTS, "", work.as_str(), verdict);
            }
        }
        batch.rows.receipts.extend(receipts.clone());
        let context = self.context.clone();
        batch.once_committed(move |_| {
            let stored = &mut context.view.write().receipts;
            stored.extend(receipts);
            let newest = stored.last_key_value().map_or(0, |(newest, _)| *newest);
            *stored = stored.split_off(&(newest + 1).saturating_sub(MAX_STORED));
        });
    }
}

/// Adds a receipt to a verdict. If the verdict has an earlier state of the receipt, it is replaced.
/// Otherwise the receipt becomes the first of the list.
fn insert_into_verdict(verdict: &mut VerdictEntry, receipt: &Receipt) {
    let existing = verdict
        .receipts
        .iter_mut()
        .find(|known| known.allocation == receipt.allocation);
    match existing {
        Some(existing) => existing.clone_from(receipt),
        // A closed receipt that the list no longer contains is not added again.
        None if matches!(receipt.outcome, Outcome::Open | Outcome::NoBeneficiary) => {
            verdict.receipts.insert(0, receipt.clone());
            trim_to_limit(&mut verdict.receipts);
        }
        None => {}
    }
}

/// Drops the receipts of the oldest rounds until the list is short enough. All receipts of a round
/// are dropped together, because a part of them would mislead.
fn trim_to_limit(receipts: &mut Vec<Receipt>) {
    while receipts.len() > Receipt::MAX_SHOWN {
        let oldest = receipts.last().map(|receipt| receipt.round);
        if receipts.first().map(|receipt| receipt.round) == oldest {
            receipts.truncate(Receipt::MAX_SHOWN);
        } else {
            receipts.retain(|receipt| Some(receipt.round) != oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{AllocationId, Timestamp, UserName};

    use super::*;

    fn receipt(round: u64) -> Receipt {
        Receipt {
            round,
            at: Timestamp::from_unix_ms(1),
            allocation: AllocationId::new("alc_1").unwrap(),
            work: WorkId::new("job_1").unwrap(),
            user: UserName::new("ann").unwrap(),
            node: NodeName::new("n1").unwrap(),
            order: 1,
            lost_ms: 1,
            beneficiary: None,
            for_user: None,
            outcome: Outcome::NoBeneficiary,
        }
    }

    #[test]
    fn receipts_are_trimmed_by_whole_rounds() {
        let remaining_rounds = |counts: &[(u64, usize)]| {
            let mut all = Vec::new();
            for (round, count) in counts {
                all.extend(std::iter::repeat_n(receipt(*round), *count));
            }
            trim_to_limit(&mut all);
            let mut rounds: Vec<u64> = all.into_iter().map(|receipt| receipt.round).collect();
            rounds.dedup();
            rounds
        };
        assert_eq!(remaining_rounds(&[(9, 6), (7, 6), (4, 4)]), [9, 7, 4]);
        assert_eq!(remaining_rounds(&[(9, 6), (7, 7), (4, 4)]), [9, 7]);
        assert_eq!(remaining_rounds(&[(9, 16), (7, 1)]), [9]);
        let mut single_round = vec![receipt(9); 40];
        trim_to_limit(&mut single_round);
        assert_eq!(single_round.len(), Receipt::MAX_SHOWN);
    }
}
