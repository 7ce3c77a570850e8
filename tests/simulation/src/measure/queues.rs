//! Holdings of each queue. Empty if there are no queues.

use crate::{share::Share, trace::Names};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Account {
    held: Share,
    /// Holdings summed over all samples.
    pub held_sum: Share,
    /// Holdings summed over the samples at which demand exceeded the cluster.
    pub contended_sum: Share,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    names: Names,
    accounts: Vec<Account>,
}

impl Queues {
    /// Returns the index of a queue. Indices follow the order of first use.
    pub fn index(&mut self, queue: &str) -> usize {
        let at = self.names.index(queue);
        self.accounts.resize(self.names.len(), Account::default());
        at
    }

    pub fn gained(&mut self, queue: Option<usize>, share: Share) {
        if let Some(at) = queue {
            self.accounts[at].held += share;
        }
    }

    pub fn gave_up(&mut self, queue: Option<usize>, share: Share) {
        if let Some(at) = queue {
            self.accounts[at].held -= share;
        }
    }

    pub fn sample(&mut self, contended: bool) {
        for account in &mut self.accounts {
            account.held_sum += account.held;
            if contended {
                account.contended_sum += account.held;
            }
        }
    }

    pub fn held(&self) -> impl Iterator<Item = (usize, Share)> {
        let all = self.accounts.iter().enumerate();
        all.map(|(at, account)| (at, account.held))
    }

    pub fn names(&self) -> Vec<String> {
        let all = 0..self.names.len();
        all.map(|at| self.names.name(at).to_owned()).collect()
    }

    pub fn accounts(&self) -> impl Iterator<Item = (usize, &str, &Account)> {
        let all = self.accounts.iter().enumerate();
        all.map(|(at, account)| (at, self.names.name(at), account))
    }
}
