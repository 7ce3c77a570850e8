//! Fluid fair shares, rounded to whole processes as late as possible. This models a fair scheduler
//! with preemption for comparison.
//!
//! First the cluster is divided among users by max-min. Then the part of each user is divided among
//! the jobs of the user and rounded down. The remainder goes first to jobs that would otherwise
//! lose a process. Last, jobs below their entitlement grow into free space or preempt the overage
//! of other jobs.

use std::collections::{BTreeMap, BTreeSet};

use super::{MalleablePolicy, SimulatedFleet, SimulationError};
use crate::{
    fair_shares::{Claim, Member, Share, divide_by_class_and_member, divide_by_max_min},
    measure::{Fairness, Moment, WeightedClass},
};

#[derive(Debug)]
pub struct Fluid {
    fairness: Fairness,
    /// Number of processes by which a user must be below the fair share to preempt for a job that
    /// already runs.
    min_deficit: u64,
}

impl Fluid {
    pub fn new(fairness: Fairness, min_deficit: u64) -> Self {
        Self {
            fairness,
            min_deficit: min_deficit.max(1),
        }
    }
}

impl MalleablePolicy for Fluid {
    fn round(&mut self, fleet: &mut SimulatedFleet) -> Result<Option<Moment>, SimulationError> {
        let mut round = Round::new(fleet, &self.fairness, self.min_deficit);
        round.divide();
        round.grow_jobs();
        Ok(None)
    }
}

/// A user, or a user within a class.
#[derive(Default)]
struct Account {
    class: WeightedClass,
    /// Indices of the entitlements of the jobs.
    jobs: Vec<usize>,
    /// Share that all tasks of the jobs would hold at once.
    demand: Share,
    fair_share: Share,
    /// Part of the fair share that no whole process of a job uses.
    remainder: Share,
    /// Share of the running processes.
    held: Share,
    /// Sum of the entitlements of the jobs in processes.
    entitled_processes: u64,
}

/// The entitlement of a job, and the processes that it holds.
struct Entitlement {
    job: usize,
    account: usize,
    /// Share of one process.
    process_share: Share,
    /// Number of processes that run.
    held: u64,
    /// Number of processes that the job should have.
    entitled: u64,
    /// Whether no node can take another process in this round, even with preemption.
    is_blocked: bool,
}

/// Processes to preempt, each with the index of the entitlement that it belongs to.
type Victims = Vec<(usize, usize)>;

struct Round<'w, 'a> {
    fleet: &'w mut SimulatedFleet<'a>,
    min_deficit: u64,
    accounts: Vec<Account>,
    /// Entitlements in order of submission.
    entitlements: Vec<Entitlement>,
}

impl<'w, 'a> Round<'w, 'a> {
    fn new(fleet: &'w mut SimulatedFleet<'a>, fairness: &Fairness, min_deficit: u64) -> Self {
        let mut account_index: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut accounts: Vec<Account> = Vec::new();
        let mut entitlements = Vec::new();
        for job in fleet.unfinished() {
            let spec = fleet.job(job);
            let class = fairness.weighted_class(fleet.case.workload, spec);
            let account = *account_index
                .entry((class.index, spec.user))
                .or_insert_with(|| {
                    accounts.push(Account {
                        class,
                        ..Account::default()
                    });
                    accounts.len() - 1
                });
            let (process_share, held) = (
                fleet.scale.dominant_share(&spec.request),
                fleet.process_count(job),
            );
            accounts[account].jobs.push(entitlements.len());
            accounts[account].demand += process_share * Share::from(spec.tasks);
            accounts[account].held += process_share * Share::from(held);
            entitlements.push(Entitlement {
                job,
                account,
                process_share,
                held,
                entitled: 0,
                is_blocked: false,
            });
        }
        Self {
            fleet,
            min_deficit,
            accounts,
            entitlements,
        }
    }

    fn tasks(&self, index: usize) -> u64 {
        self.fleet.job(self.entitlements[index].job).tasks
    }

    /// Computes the fair share of each account and the entitlement of each job.
    fn divide(&mut self) {
        let member = |account: &Account| Member {
            class: account.class.index,
            class_weight: account.class.weight,
            demand: account.demand,
        };
        let members: Vec<Member> = self.accounts.iter().map(member).collect();
        let shares = divide_by_class_and_member(self.fleet.scale.total, &members);
        for (account, share) in shares.into_iter().enumerate() {
            self.accounts[account].fair_share = share;
            self.divide_among_jobs(account, share);
        }
        let distributed: Share = self
            .entitlements
            .iter()
            .map(|entitlement| entitlement.process_share * Share::from(entitlement.entitled))
            .sum();
        self.distribute_remainder(self.fleet.scale.total.saturating_sub(distributed));
    }

    fn divide_among_jobs(&mut self, account: usize, share: Share) {
        let jobs = std::mem::take(&mut self.accounts[account].jobs);
        let claim = |index: &usize| Claim {
            weight: 1,
            demand: self.entitlements[*index].process_share * Share::from(self.tasks(*index)),
        };
        let claims: Vec<Claim> = jobs.iter().map(claim).collect();
        let mut remainder = share;
        for (index, share) in jobs.iter().zip(divide_by_max_min(share, &claims)) {
            let entitlement = &mut self.entitlements[*index];
            entitlement.entitled =
                u64::try_from(share / entitlement.process_share).unwrap_or(u64::MAX);
            remainder -= entitlement.process_share * Share::from(entitlement.entitled);
        }
        // Jobs that would lose a process come first, then jobs that would have none.
        let mut queue = jobs.clone();
        queue.sort_by_key(|index| {
            let entitlement = &self.entitlements[*index];
            (
                entitlement.held <= entitlement.entitled,
                entitlement.entitled > 0,
                entitlement.job,
            )
        });
        for index in queue {
            self.add_entitled_process(index, &mut remainder);
        }
        self.accounts[account].remainder = remainder;
        self.accounts[account].entitled_processes = jobs
            .iter()
            .map(|index| self.entitlements[*index].entitled)
            .sum();
        self.accounts[account].jobs = jobs;
    }

    fn add_entitled_process(&mut self, index: usize, remainder: &mut Share) {
        let has_more_tasks = self.entitlements[index].entitled < self.tasks(index);
        let entitlement = &mut self.entitlements[index];
        if has_more_tasks && entitlement.process_share <= *remainder {
            entitlement.entitled += 1;
            *remainder -= entitlement.process_share;
        }
    }

    /// Divides the remainder that is too small for a whole process of any single user.
    fn distribute_remainder(&mut self, mut remainder: Share) {
        let mut queue: Vec<usize> = (0..self.entitlements.len()).collect();
        queue.sort_by_key(|index| {
            let entitlement = &self.entitlements[*index];
            let account = &self.accounts[entitlement.account];
            let would_lose_process = entitlement.held > entitlement.entitled;
            (
                !would_lose_process,
                account.entitled_processes > 0,
                std::cmp::Reverse(account.remainder),
                entitlement.job,
            )
        });
        for index in queue {
            self.add_entitled_process(index, &mut remainder);
        }
    }

    /// Returns how well an account is served. The account with the lowest value goes first.
    fn service_level(&self, account: usize) -> Share {
        let account = &self.accounts[account];
        // The shift keeps 32 binary places of the quotient.
        (account.held << 32) / account.fair_share.max(1)
    }

    /// Starts processes until no account has a job that can grow.
    fn grow_jobs(&mut self) {
        let mut queue: BTreeSet<(Share, usize)> = (0..self.accounts.len())
            .map(|account| (self.service_level(account), account))
            .collect();
        while let Some((_, account)) = queue.pop_first() {
            if self.grow_account(account) {
                queue.insert((self.service_level(account), account));
            }
        }
    }

    /// Adds a process to the oldest job of the account that is below its entitlement and can grow.
    fn grow_account(&mut self, account: usize) -> bool {
        let jobs = std::mem::take(&mut self.accounts[account].jobs);
        let grown = jobs.iter().any(|index| {
            let entitlement = &self.entitlements[*index];
            entitlement.held < entitlement.entitled
                && !entitlement.is_blocked
                && self.start_process(*index)
        });
        self.accounts[account].jobs = jobs;
        grown
    }

    fn start_process(&mut self, index: usize) -> bool {
        let request = &self.fleet.job(self.entitlements[index].job).request;
        let Some(node) = self
            .fleet
            .find_tightest_node(request)
            .or_else(|| self.preempt_for(index))
        else {
            self.entitlements[index].is_blocked = true;
            return false;
        };
        let entitlement = &mut self.entitlements[index];
        self.fleet.start(entitlement.job, node);
        entitlement.held += 1;
        self.accounts[entitlement.account].held += entitlement.process_share;
        true
    }

    /// Preempts overage of other jobs on the node where the least work is lost. Returns the node.
    fn preempt_for(&mut self, index: usize) -> Option<usize> {
        let entitlement = &self.entitlements[index];
        let account = &self.accounts[entitlement.account];
        let deficit = account.fair_share.saturating_sub(account.held) / entitlement.process_share;
        if entitlement.held > 0 && deficit < Share::from(self.min_deficit) && self.min_deficit > 1 {
            return None;
        }
        let (node, victims) = self.find_cheapest_victims(entitlement.job)?;
        for (victim, process) in victims {
            self.fleet.preempt(process);
            let entitlement = &mut self.entitlements[victim];
            entitlement.held -= 1;
            self.accounts[entitlement.account].held -= entitlement.process_share;
        }
        Some(node)
    }

    /// Returns the node where preemption costs least, and the processes to preempt there.
    fn find_cheapest_victims(&self, job: usize) -> Option<(usize, Victims)> {
        let request = &self.fleet.job(job).request;
        let mut candidates_by_node: BTreeMap<usize, Vec<(u64, usize, usize)>> = BTreeMap::new();
        for (index, entitlement) in self
            .entitlements
            .iter()
            .enumerate()
            .filter(|(_, entitlement)| entitlement.held > entitlement.entitled)
        {
            for process in self.fleet.running(entitlement.job) {
                let node = self.fleet.process(*process).node;
                let loss = self.fleet.lost_ms_if_preempted(*process);
                candidates_by_node
                    .entry(node)
                    .or_default()
                    .push((loss, *process, index));
            }
        }
        // On each node, the processes that lose least are added until the new process would fit.
        let mut best: Option<(u64, usize, Victims)> = None;
        for (node, mut candidates) in candidates_by_node {
            candidates.sort_unstable();
            let mut preempted_by_entitlement: BTreeMap<usize, u64> = BTreeMap::new();
            let (mut cost, mut preempted, mut victims) = (0, Vec::new(), Vec::new());
            for (loss, process, index) in candidates {
                let surplus = self.entitlements[index].held - self.entitlements[index].entitled;
                let preempted_count = preempted_by_entitlement.entry(index).or_default();
                if *preempted_count == surplus {
                    continue;
                }
                *preempted_count += 1;
                cost += loss;
                preempted.push(process);
                victims.push((index, process));
                if best.as_ref().is_some_and(|(least, ..)| *least <= cost) {
                    break;
                }
                if self.fleet.would_fit(node, request, &preempted) {
                    best = Some((cost, node, victims));
                    break;
                }
            }
        }
        best.map(|(_, node, victims)| (node, victims))
    }
}
