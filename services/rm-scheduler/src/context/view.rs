//! State that handlers read without asking the ledger. It is updated when a batch is committed.

use std::collections::{BTreeMap, VecDeque};

use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_api::shares::{Budgets, LedgerLine};
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_domain::{Verdicts, plan};
use hayward_vocabulary::{Receipt, Timestamp, WorkId};

#[derive(Debug, Default)]
pub struct SharedView {
    pub policy: PolicyView,
    /// None before the first round.
    pub counted: Option<NewestRound>,
    /// Newest last.
    pub rounds: VecDeque<RoundView>,
    /// By number, which grows. Readers get them with their round.
    pub receipts: BTreeMap<u64, Receipt>,
}

impl SharedView {
    /// Newest first, each with the present state of its receipts.
    pub fn newest_rounds(&self, limit: usize) -> Vec<RoundView> {
        let mut receipts: BTreeMap<u64, Vec<Receipt>> = BTreeMap::new();
        for receipt in self.receipts.values() {
            let of_round = receipts.entry(receipt.round).or_default();
            of_round.push(receipt.clone());
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

/// The shares of the newest round, and the fairness ledger up to `at`.
#[derive(Debug, Default)]
pub struct NewestRound {
    pub round: u64,
    pub at: Timestamp,
    pub shares: plan::Shares,
    /// With the numbers of this round. Published verdicts keep the numbers of their publication.
    pub verdicts: Verdicts,
    pub ledger: Vec<LedgerLine>,
    pub budgets: Budgets,
}

/// Shares and verdicts that a round changed.
pub struct RoundChanges {
    /// None when the planner read the whole snapshot; then `verdicts` has all of them.
    pub shares: Option<plan::ShareDelta>,
    pub verdicts: Verdicts,
    /// Work that has no verdict any more.
    pub gone: Vec<WorkId>,
}

impl RoundChanges {
    /// `all`: all shares, when the planner read the whole snapshot.
    pub fn apply(self, all: Option<plan::Shares>, counted: &mut NewestRound) {
        match self.shares {
            Some(news) => counted.shares.absorb(news),
            None => counted.verdicts.clear(),
        }
        if let Some(all) = all {
            counted.shares = all;
        }
        for work in &self.gone {
            counted.verdicts.remove(work);
        }
        counted.verdicts.extend(self.verdicts);
    }
}
