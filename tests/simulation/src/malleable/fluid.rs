//! Fluid fair shares, rounded to whole processes as late as possible. This models a fair scheduler
//! with preemption for comparison.
//!
//! First the cluster is divided among users by max-min. Then the part of each user is divided among
//! the jobs of the user and rounded down. The remainder goes first to jobs that would otherwise
//! lose a process. Last, jobs below their entitlement grow into free space or preempt the overage
//! of other jobs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Sharing, SimulatedFleet, Unsound};
use crate::{
    measure::{Fairness, Moment},
    share::{Claim, Member, Share, max_min, two_levels},
};

#[derive(Debug)]
pub struct Fluid {
    fairness: Fairness,
    /// Number of processes by which a user must be below the fair share to preempt for a job that
    /// already runs.
    patience: u64,
}

impl Fluid {
    pub fn new(fairness: Fairness, patience: u64) -> Self {
        Self {
            fairness,
            patience: patience.max(1),
        }
    }
}

impl Sharing for Fluid {
    fn round(&mut self, fleet: &mut SimulatedFleet) -> Result<Option<Moment>, Unsound> {
        let mut round = Round::open(fleet, &self.fairness, self.patience);
        round.divide();
        round.grow();
        Ok(None)
    }
}

/// A user, or a user within a class.
#[derive(Default)]
struct Account {
    class: (usize, u64),
    jobs: Vec<usize>,
    demand: Share,
    fair: Share,
    remainder: Share,
    held: Share,
    /// Sum of the entitlements of its jobs in processes.
    counted: u64,
}

/// The entitlement of a job.
struct Due {
    job: usize,
    account: usize,
    weight: Share,
    held: u64,
    count: u64,
    /// Whether no node can take another process in this round, even with preemption.
    stuck: bool,
}

/// Processes to preempt, each with the index of the entitlement that it belongs to.
type Victims = Vec<(usize, usize)>;

struct Round<'w, 'a> {
    fleet: &'w mut SimulatedFleet<'a>,
    patience: u64,
    accounts: Vec<Account>,
    /// Entitlements in order of submission.
    dues: Vec<Due>,
}

impl<'w, 'a> Round<'w, 'a> {
    fn open(fleet: &'w mut SimulatedFleet<'a>, fairness: &Fairness, patience: u64) -> Self {
        let mut known: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut accounts: Vec<Account> = Vec::new();
        let mut dues = Vec::new();
        for job in fleet.unfinished() {
            let it = fleet.job(job);
            let class = fairness.class_of(fleet.case.workload, it);
            let account = *known.entry((class.0, it.user)).or_insert_with(|| {
                accounts.push(Account {
                    class,
                    ..Account::default()
                });
                accounts.len() - 1
            });
            let (weight, held) = (fleet.whole.weight(&it.need), fleet.held(job));
            accounts[account].jobs.push(dues.len());
            accounts[account].demand += weight * Share::from(it.tasks);
            accounts[account].held += weight * Share::from(held);
            dues.push(Due {
                job,
                account,
                weight,
                held,
                count: 0,
                stuck: false,
            });
        }
        Self {
            fleet,
            patience,
            accounts,
            dues,
        }
    }

    fn tasks(&self, due: usize) -> u64 {
        self.fleet.job(self.dues[due].job).tasks
    }

    fn divide(&mut self) {
        let member = |account: &Account| Member {
            class: account.class.0,
            class_weight: account.class.1,
            demand: account.demand,
        };
        let members: Vec<Member> = self.accounts.iter().map(member).collect();
        let parts = two_levels(self.fleet.whole.parts, &members);
        for (at, part) in parts.into_iter().enumerate() {
            self.accounts[at].fair = part;
            self.divide_part(at, part);
        }
        let given: Share = self
            .dues
            .iter()
            .map(|due| due.weight * Share::from(due.count))
            .sum();
        self.give_rest(self.fleet.whole.parts.saturating_sub(given));
    }

    fn divide_part(&mut self, account: usize, part: Share) {
        let jobs = std::mem::take(&mut self.accounts[account].jobs);
        let claim = |at: &usize| Claim {
            weight: 1,
            demand: self.dues[*at].weight * Share::from(self.tasks(*at)),
        };
        let claims: Vec<Claim> = jobs.iter().map(claim).collect();
        let mut left = part;
        for (at, share) in jobs.iter().zip(max_min(part, &claims)) {
            let due = &mut self.dues[*at];
            due.count = u64::try_from(share / due.weight).unwrap_or(u64::MAX);
            left -= due.weight * Share::from(due.count);
        }
        let mut queue = jobs.clone();
        queue.sort_by_key(|at| {
            let due = &self.dues[*at];
            (due.held <= due.count, due.count > 0, due.job)
        });
        for at in queue {
            self.give_one(at, &mut left);
        }
        self.accounts[account].remainder = left;
        self.accounts[account].counted = jobs.iter().map(|at| self.dues[*at].count).sum();
        self.accounts[account].jobs = jobs;
    }

    fn give_one(&mut self, at: usize, left: &mut Share) {
        let more = self.dues[at].count < self.tasks(at);
        let due = &mut self.dues[at];
        if more && due.weight <= *left {
            due.count += 1;
            *left -= due.weight;
        }
    }

    /// Divides the remainder that is too small for a whole process of any single user.
    fn give_rest(&mut self, mut left: Share) {
        let mut queue: Vec<usize> = (0..self.dues.len()).collect();
        queue.sort_by_key(|at| {
            let due = &self.dues[*at];
            let account = &self.accounts[due.account];
            let loses = due.held > due.count;
            (
                !loses,
                account.counted > 0,
                std::cmp::Reverse(account.remainder),
                due.job,
            )
        });
        for at in queue {
            self.give_one(at, &mut left);
        }
    }

    /// Returns how well an account is served. The account with the lowest value goes first.
    fn served(&self, account: usize) -> Share {
        let account = &self.accounts[account];
        (account.held << 32) / account.fair.max(1)
    }

    fn grow(&mut self) {
        let mut queue: BTreeSet<(Share, usize)> = (0..self.accounts.len())
            .map(|account| (self.served(account), account))
            .collect();
        while let Some((_, account)) = queue.pop_first() {
            if self.grow_one(account) {
                queue.insert((self.served(account), account));
            }
        }
    }

    /// Adds a process to the oldest job of the account that is below its entitlement and can grow.
    fn grow_one(&mut self, account: usize) -> bool {
        let jobs = std::mem::take(&mut self.accounts[account].jobs);
        let grown = jobs.iter().any(|at| {
            let due = &self.dues[*at];
            due.held < due.count && !due.stuck && self.start_one(*at)
        });
        self.accounts[account].jobs = jobs;
        grown
    }

    fn start_one(&mut self, at: usize) -> bool {
        let need = &self.fleet.job(self.dues[at].job).need;
        let Some(node) = self.fleet.tightest(need).or_else(|| self.preempt_for(at)) else {
            self.dues[at].stuck = true;
            return false;
        };
        let due = &mut self.dues[at];
        self.fleet.start(due.job, node);
        due.held += 1;
        self.accounts[due.account].held += due.weight;
        true
    }

    /// Preempts overage of other jobs on the node where the least work is lost. Returns the node.
    fn preempt_for(&mut self, at: usize) -> Option<usize> {
        let due = &self.dues[at];
        let account = &self.accounts[due.account];
        let short = account.fair.saturating_sub(account.held) / due.weight;
        if due.held > 0 && short < Share::from(self.patience) && self.patience > 1 {
            return None;
        }
        let (node, victims) = self.cheapest(due.job)?;
        for (victim, process) in victims {
            self.fleet.evict(process);
            let due = &mut self.dues[victim];
            due.held -= 1;
            self.accounts[due.account].held -= due.weight;
        }
        Some(node)
    }

    /// Returns the node where preemption costs least, and the processes to preempt there.
    fn cheapest(&self, job: usize) -> Option<(usize, Victims)> {
        let need = &self.fleet.job(job).need;
        let mut nodes: BTreeMap<usize, Vec<(u64, usize, usize)>> = BTreeMap::new();
        for (at, due) in self
            .dues
            .iter()
            .enumerate()
            .filter(|(_, due)| due.held > due.count)
        {
            for process in self.fleet.running(due.job) {
                let node = self.fleet.process(*process).node;
                let loss = self.fleet.loss(*process);
                nodes.entry(node).or_default().push((loss, *process, at));
            }
        }
        let mut best: Option<(u64, usize, Victims)> = None;
        for (node, mut candidates) in nodes {
            candidates.sort_unstable();
            let mut taken: BTreeMap<usize, u64> = BTreeMap::new();
            let (mut cost, mut gone, mut victims) = (0, Vec::new(), Vec::new());
            for (loss, process, at) in candidates {
                let surplus = self.dues[at].held - self.dues[at].count;
                let so_far = taken.entry(at).or_default();
                if *so_far == surplus {
                    continue;
                }
                *so_far += 1;
                cost += loss;
                gone.push(process);
                victims.push((at, process));
                if best.as_ref().is_some_and(|(least, ..)| *least <= cost) {
                    break;
                }
                if self.fleet.would_fit(node, need, &gone) {
                    best = Some((cost, node, victims));
                    break;
                }
            }
        }
        best.map(|(_, node, victims)| (node, victims))
    }
}
