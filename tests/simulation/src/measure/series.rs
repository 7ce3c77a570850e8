//! Shares over time, in few enough buckets for a chart.

use std::collections::BTreeMap;

use super::Moment;
use crate::{share::Share, trace::Workload};

/// Number of buckets in the window.
const BUCKETS: usize = 240;
/// A whole share. Shares are stored in millionths.
const UNIT: u64 = 1_000_000;

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

#[derive(Debug, Clone)]
pub struct Series {
    pub first: Moment,
    pub last: Moment,
    pub buckets: Vec<Bucket>,
    pub user_names: Vec<String>,
    /// Names of the queues. Empty if there are no queues.
    pub queue_names: Vec<String>,
    user_of: BTreeMap<usize, usize>,
}

impl Series {
    pub(super) fn new(workload: &Workload, first: Moment, last: Moment) -> Self {
        let users = 0..workload.users.len();
        Self {
            first,
            last,
            buckets: vec![Bucket::default(); BUCKETS],
            user_names: users.map(|at| workload.users.name(at).to_owned()).collect(),
            queue_names: Vec::new(),
            user_of: BTreeMap::new(),
        }
    }

    pub(super) fn belongs(&mut self, account: usize, user: usize) {
        self.user_of.insert(account, user);
    }

    pub(super) fn sample(
        &mut self,
        at: Moment,
        cpu: CpuUse,
        held: impl Iterator<Item = (usize, Share)>,
        whole: Share,
    ) {
        let place = self.place(at);
        let bucket = &mut self.buckets[place];
        bucket.samples += 1;
        bucket.cpu_used += millionths(u128::from(cpu.used), u128::from(cpu.capacity));
        for (account, share) in held.filter(|(_, share)| *share > 0) {
            let user = self.user_of[&account];
            *bucket.held.entry(user).or_default() += millionths(share, whole);
        }
    }

    /// Adds a sample of the queues.
    pub(super) fn sample_queues(
        &mut self,
        at: Moment,
        held: impl Iterator<Item = (usize, Share)>,
        whole: Share,
    ) {
        let place = self.place(at);
        let bucket = &mut self.buckets[place];
        for (queue, share) in held.filter(|(_, share)| *share > 0) {
            *bucket.by_queue.entry(queue).or_default() += millionths(share, whole);
        }
    }

    /// Returns the index of the bucket of a moment.
    fn place(&self, at: Moment) -> usize {
        let span = u128::from((self.last - self.first).max(1));
        let passed = u128::from(at - self.first) * BUCKETS as u128 / span;
        usize::try_from(passed).unwrap_or(BUCKETS).min(BUCKETS - 1)
    }
}

fn millionths(amount: u128, total: u128) -> u64 {
    let part = amount.saturating_mul(u128::from(UNIT)).checked_div(total);
    part.and_then(|part| u64::try_from(part).ok()).unwrap_or(0)
}
