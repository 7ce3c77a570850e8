//! Holdings of each queue over time. Without queues there are none.

use crate::{share::Share, trace::Names};

/// Holdings of one queue.
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
        let index = self.names.index(queue);
        self.accounts.resize(self.names.len(), Account::default());
        index
    }

    pub fn add_share(&mut self, queue: Option<usize>, share: Share) {
        if let Some(queue) = queue {
            self.accounts[queue].held += share;
        }
    }

    pub fn remove_share(&mut self, queue: Option<usize>, share: Share) {
        if let Some(queue) = queue {
            self.accounts[queue].held -= share;
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

    pub fn held_shares(&self) -> impl Iterator<Item = (usize, Share)> {
        let accounts = self.accounts.iter().enumerate();
        accounts.map(|(queue, account)| (queue, account.held))
    }

    pub fn names(&self) -> Vec<String> {
        let indices = 0..self.names.len();
        indices
            .map(|index| self.names.name(index).to_owned())
            .collect()
    }

    pub fn accounts(&self) -> impl Iterator<Item = (usize, &str, &Account)> {
        let accounts = self.accounts.iter().enumerate();
        accounts.map(|(queue, account)| (queue, self.names.name(queue), account))
    }
}
