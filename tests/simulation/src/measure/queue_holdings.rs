//! Shares that each queue holds over time. The list is empty if jobs are not in queues.

use crate::{fair_shares::Share, trace::Names};

/// Share that one queue holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeldByQueue {
    /// Current holdings.
    held: Share,
    /// Holdings summed over all samples.
    pub held_sum: Share,
    /// Holdings summed over the samples at which demand exceeded the cluster.
    pub contended_sum: Share,
}

#[derive(Debug, Default)]
pub(super) struct QueueHoldings {
    names: Names,
    holdings: Vec<HeldByQueue>,
}

impl QueueHoldings {
    /// Returns the index of a queue. Indices follow the order of first use.
    pub fn index(&mut self, queue: &str) -> usize {
        let index = self.names.index(queue);
        self.holdings
            .resize(self.names.len(), HeldByQueue::default());
        index
    }

    pub fn add_share(&mut self, queue: Option<usize>, share: Share) {
        if let Some(queue) = queue {
            self.holdings[queue].held += share;
        }
    }

    pub fn remove_share(&mut self, queue: Option<usize>, share: Share) {
        if let Some(queue) = queue {
            self.holdings[queue].held -= share;
        }
    }

    pub fn sample(&mut self, contended: bool) {
        for holding in &mut self.holdings {
            holding.held_sum += holding.held;
            if contended {
                holding.contended_sum += holding.held;
            }
        }
    }

    pub fn held_shares(&self) -> impl Iterator<Item = (usize, Share)> {
        let holdings = self.holdings.iter().enumerate();
        holdings.map(|(queue, holding)| (queue, holding.held))
    }

    pub fn names(&self) -> Vec<String> {
        let indices = 0..self.names.len();
        indices
            .map(|index| self.names.name(index).to_owned())
            .collect()
    }

    pub fn holdings(&self) -> impl Iterator<Item = (usize, &str, &HeldByQueue)> {
        let holdings = self.holdings.iter().enumerate();
        holdings.map(|(queue, holding)| (queue, self.names.name(queue), holding))
    }
}
