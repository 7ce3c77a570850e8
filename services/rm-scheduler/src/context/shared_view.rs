//! State that handlers read without a command to the working set. It is updated when a batch is
//! committed.

use std::collections::{BTreeMap, VecDeque};

use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_api::shares::{Budgets, LedgerLine};
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_domain::{Verdicts, plan};
use hayward_vocabulary::{Receipt, Timestamp, WorkId};

/// The committed state that handlers read.
#[derive(Debug, Default)]
pub struct SharedView {
    pub policy: PolicyView,
    /// Shares and verdicts of the newest round. `None` before the first round.
    pub newest_round: Option<NewestRound>,
    /// The newest rounds. The newest is last.
    pub rounds: VecDeque<RoundView>,
    /// Receipts by number, in the order of preemptions. Readers get them with their round.
    pub receipts: BTreeMap<u64, Receipt>,
}

impl SharedView {
    /// Returns up to `limit` rounds, the newest first, each with the present state of its receipts.
    pub fn newest_rounds(&self, limit: usize) -> Vec<RoundView> {
        let mut receipts: BTreeMap<u64, Vec<Receipt>> = BTreeMap::new();
        for receipt in self.receipts.values() {
            let round_receipts = receipts.entry(receipt.round).or_default();
            round_receipts.push(receipt.clone());
        }
        let newest = self.rounds.iter().rev().take(limit);
        newest
            .map(|round| RoundView {
                receipts: receipts.remove(&round.round).unwrap_or_default(),
                ..round.clone()
            })
            .collect()
    }

    pub fn round(&self, round: u64) -> Option<RoundView> {
        let found = self.rounds.iter().find(|view| view.round == round)?;
        let receipts = self.receipts.values().filter(|it| it.round == round);
        Some(RoundView {
            receipts: receipts.cloned().collect(),
            ..found.clone()
        })
    }
}

/// The shares and verdicts of the newest round, and the fairness ledger.
#[derive(Debug, Default)]
pub struct NewestRound {
    pub round: u64,
    pub at: Timestamp,
    pub shares: plan::Shares,
    /// Verdicts with the numbers of this round. Published verdicts have the numbers of their
    /// publication.
    pub verdicts: Verdicts,
    pub ledger: Vec<LedgerLine>,
    pub budgets: Budgets,
}

/// Shares and verdicts that a round changed.
pub struct RoundChanges {
    /// `None` if the planner read the whole snapshot. In that case `verdicts` contains all
    /// verdicts.
    pub shares: Option<plan::ShareDelta>,
    pub verdicts: Verdicts,
    /// Work that no longer has a verdict.
    pub removed_work: Vec<WorkId>,
}

impl RoundChanges {
    /// Applies the changes to `newest`. `all_shares` is set if the planner read the whole snapshot.
    pub fn apply(self, all_shares: Option<plan::Shares>, newest: &mut NewestRound) {
        match self.shares {
            Some(delta) => newest.shares.apply_delta(delta),
            None => newest.verdicts.clear(),
        }
        if let Some(all_shares) = all_shares {
            newest.shares = all_shares;
        }
        for work in &self.removed_work {
            newest.verdicts.remove(work);
        }
        newest.verdicts.extend(self.verdicts);
    }
}
