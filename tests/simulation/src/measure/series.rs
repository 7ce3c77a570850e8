//! Shares over time, in few enough buckets for a chart.

use std::collections::BTreeMap;

use super::Moment;
use crate::{fair_shares::Share, trace::Workload};

/// Number of buckets in the window, which reaches from the first to the last submission.
const BUCKETS: usize = 240;
/// A whole share. Shares are stored in millionths.
const WHOLE_SHARE: u64 = 1_000_000;

/// Sums over the samples in one bucket of the window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    pub samples: u64,
    /// CPU in use, in millionths of the CPU of the cluster.
    pub cpu_used: u64,
    /// Holdings by user, in millionths of the cluster.
    pub held: BTreeMap<usize, u64>,
    /// Holdings by queue, in millionths of the cluster.
    pub by_queue: BTreeMap<usize, u64>,
}

/// Used and installed CPU at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuUse {
    pub used: u64,
    pub capacity: u64,
}

/// Shares and CPU use over time.
#[derive(Debug, Clone)]
pub struct Series {
    /// Start of the window.
    pub first: Moment,
    /// End of the window.
    pub last: Moment,
    pub buckets: Vec<Bucket>,
    pub user_names: Vec<String>,
    /// Names of the queues. Empty if there are no queues.
    pub queue_names: Vec<String>,
    user_by_account: BTreeMap<usize, usize>,
}

impl Series {
    pub(super) fn new(workload: &Workload, first: Moment, last: Moment) -> Self {
        let users = 0..workload.users.len();
        Self {
            first,
            last,
            buckets: vec![Bucket::default(); BUCKETS],
            user_names: users
                .map(|user| workload.users.name(user).to_owned())
                .collect(),
            queue_names: Vec::new(),
            user_by_account: BTreeMap::new(),
        }
    }

    pub(super) fn set_user(&mut self, account: usize, user: usize) {
        self.user_by_account.insert(account, user);
    }

    pub(super) fn sample(
        &mut self,
        moment: Moment,
        cpu: CpuUse,
        held: impl Iterator<Item = (usize, Share)>,
        total: Share,
    ) {
        let index = self.bucket_index(moment);
        let bucket = &mut self.buckets[index];
        bucket.samples += 1;
        bucket.cpu_used += millionths(u128::from(cpu.used), u128::from(cpu.capacity));
        for (account, share) in held.filter(|(_, share)| *share > 0) {
            let user = self.user_by_account[&account];
            *bucket.held.entry(user).or_default() += millionths(share, total);
        }
    }

    /// Adds a sample of the queues.
    pub(super) fn sample_queues(
        &mut self,
        moment: Moment,
        held: impl Iterator<Item = (usize, Share)>,
        total: Share,
    ) {
        let index = self.bucket_index(moment);
        let bucket = &mut self.buckets[index];
        for (queue, share) in held.filter(|(_, share)| *share > 0) {
            *bucket.by_queue.entry(queue).or_default() += millionths(share, total);
        }
    }

    /// Returns the index of the bucket of a moment.
    fn bucket_index(&self, moment: Moment) -> usize {
        let span = u128::from((self.last - self.first).max(1));
        let index = u128::from(moment - self.first) * BUCKETS as u128 / span;
        usize::try_from(index).unwrap_or(BUCKETS).min(BUCKETS - 1)
    }
}

fn millionths(amount: u128, total: u128) -> u64 {
    let millionths = amount
        .saturating_mul(u128::from(WHOLE_SHARE))
        .checked_div(total);
    millionths
        .and_then(|millionths| u64::try_from(millionths).ok())
        .unwrap_or(0)
}
