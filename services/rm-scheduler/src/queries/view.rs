//! What readers see that is not published: it is refreshed when a batch is committed.

use std::collections::{BTreeMap, VecDeque};

use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_api::shares::{Budgets, LedgerLine};
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_domain::{Verdicts, plan};
use hayward_vocabulary::{Receipt, Timestamp, WorkId};

#[derive(Debug, Default)]
pub struct SharedView {
    pub policy: PolicyView,
    /// Absent until the first round.
    pub counted: Option<NewestRound>,
    /// Newest last.
    pub rounds: VecDeque<RoundView>,
    /// By number, which grows; told with the rounds that wrote them.
    pub receipts: BTreeMap<u64, Receipt>,
}

impl SharedView {
    /// Newest first, each with its receipts as they stand.
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

/// The arithmetic of the newest round, and the fairness ledger up to `at`.
#[derive(Debug, Default)]
pub struct NewestRound {
    pub round: u64,
    pub at: Timestamp,
    pub shares: plan::Shares,
    /// With the numbers of this round; what is published keeps those it was published with.
    pub verdicts: Verdicts,
    pub ledger: Vec<LedgerLine>,
    pub budgets: Budgets,
}

/// What a round counted and said otherwise than the one before.
pub struct RoundChanges {
    /// Absent when all was read anew; then these are all the verdicts there are.
    pub shares: Option<plan::ShareDelta>,
    pub verdicts: Verdicts,
    /// Work without a verdict any more.
    pub gone: Vec<WorkId>,
}

impl RoundChanges {
    /// `all` are the shares, where all was read anew.
    pub fn tell(self, all: Option<plan::Shares>, counted: &mut NewestRound) {
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
