//! The planner of real fleets as a policy of the simulation. This is the only file that uses the
//! types of the planner, except for [`crate::packing::planned`].
//!
//! The snapshot stays between rounds, and only a delta changes it. Preemption takes no time here,
//! so a round that preempts is followed at once by the round that grants the space.

mod judge;
mod policies;
mod queueing;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_capacity::Rounds;
use hayward_rm_scheduler_domain::{
    SnapshotDelta,
    budget::HourlyPreemptions,
    check,
    plan::{Grant, Plan},
    snapshot::{self, Snapshot, queues::Queued},
};
use hayward_rm_scheduler_policy::{Fault, Identity, Rules, faults};
use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};

use queueing::Queueing;

use super::{Sharing, SimulatedFleet, Unsound};
use crate::{
    case::Case,
    measure::{Moment, Refused},
    trace::{Job, Node},
};

const MIB: u64 = 1 << 20;
/// Memory in MiB that is assumed for a node that reports none.
const PLENTY: u64 = 1 << 50;
/// Maximum number of rounds at one moment: one that preempts, one that grants, and some for their
/// consequences.
const ROUNDS: usize = 6;
/// Maximum number of rounds at one moment with queues, which clear a node for one process at a
/// time.
const ROUNDS_OF_QUEUES: usize = 64;

/// Why a policy document cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error("{}", listed(.0))]
    Faults(Vec<Fault>),
    #[error(
        "no FAIR_SHARE class serves class {class:?} of the trace: name one so, or mark a default"
    )]
    NoClass { class: String },
    #[error("no pool of the policy has queues, so none can be the queue {0:?}")]
    NoQueues(String),
    #[error(
        "job {job} wants a share of each of {gpus} gpus, and a process has a share of one only"
    )]
    SharesOfMany { job: String, gpus: u64 },
    #[error(transparent)]
    Unsound(#[from] Unsound),
}

pub struct Production {
    planner: Rounds,
    snapshot: Snapshot,
    /// Changes since the snapshot of the last round.
    news: SnapshotDelta,
    node_index: BTreeMap<NodeName, usize>,
    /// The process of each allocation, in the order of the snapshot.
    processes: BTreeMap<AllocationId, usize>,
    /// Allocations that each job holds.
    held: BTreeMap<usize, BTreeSet<AllocationId>>,
    /// Start time of the first process of each job.
    first: BTreeMap<usize, Moment>,
    work_index: BTreeMap<WorkId, usize>,
    known: usize,
    serial: u64,
    /// Whether entitlements can grow with time alone.
    grows_with_time: bool,
    /// Whether the progress of jobs limits their entitlement.
    minds_progress: bool,
    /// Processes preempted in the last hour (B5).
    hour: HourlyPreemptions,
    /// Queue request by job. Empty if no pool has queues.
    queue_requests: Vec<Option<Box<Queued>>>,
    queueing: Queueing,
    /// Jobs submitted since the last round that are not in a queue yet.
    fresh: Vec<usize>,
}

impl Production {
    pub fn new(case: &Case, policy: &Policy) -> Result<Self, BadPolicy> {
        Self::with_queue(case, policy, None)
    }

    /// Makes the planner follow the current entitlement. Fragmented space is divided by size.
    /// Remainders are not carried over, because repaying them takes from others now. No policy has
    /// these settings.
    #[must_use]
    pub fn by_current_entitlement(mut self) -> Self {
        let settings = &mut self.snapshot.tunables.settings;
        settings.holes_among_rivals = true;
        settings.carry_remainders = false;
        self
    }

    /// Creates a planner. Jobs that name no queue request `queue`.
    pub fn with_queue(
        case: &Case,
        policy: &Policy,
        queue: Option<&str>,
    ) -> Result<Self, BadPolicy> {
        let wrong = faults(policy);
        if !wrong.is_empty() {
            return Err(BadPolicy::Faults(wrong));
        }
        let rules = Rules::new(policy);
        let mut snapshot = Snapshot::empty();
        rules.apply_to(&mut snapshot);
        if let Some(queue) = queue.filter(|_| rules.queues.is_empty()) {
            return Err(BadPolicy::NoQueues(queue.to_owned()));
        }
        judge::gpus(case)?;
        let queue_requests = case.jobs.iter();
        let queue_requests =
            queue_requests.map(|job| queueing::queue_request(case, &rules, job, queue));
        let queue_requests = queue_requests.collect::<Result<Vec<_>, _>>()?;
        let mut node_index = BTreeMap::new();
        for (at, node) in case.nodes.iter().enumerate() {
            let name = node_name(at, node);
            let known = Identity {
                name: &node.id,
                address: None,
                declared: Some(&node.pool),
            };
            let pool = rules.pool_of(known).unwrap_or(&node.pool);
            let mut entry = node_of(node, pool);
            entry.capacity = rules.capacity(&entry.capacity);
            snapshot.nodes.insert(name.clone(), entry);
            node_index.insert(name, at);
        }
        Ok(Self {
            planner: Rounds::without_explanations(),
            news: SnapshotDelta::everything(),
            grows_with_time: policy.tunables.initialization_cap > 0
                || policy.tunables.expand_by_doubling,
            minds_progress: policy.tunables.initialization_cap > 0
                || policy.tunables.expand_by_doubling
                || policy.tunables.use_prediction,
            node_index,
            processes: BTreeMap::new(),
            held: BTreeMap::new(),
            first: BTreeMap::new(),
            work_index: BTreeMap::new(),
            known: 0,
            serial: 0,
            hour: HourlyPreemptions::default(),
            queue_requests,
            queueing: Queueing::new(&snapshot),
            fresh: Vec::new(),
            snapshot,
        })
    }

    /// Applies ends, arrivals and the progress of jobs since the last round to the snapshot.
    fn absorb(&mut self, fleet: &mut SimulatedFleet) {
        for job in fleet.drain_ended() {
            let work = work_id(job);
            self.snapshot.demand.remove(&work);
            self.work_index.remove(&work);
            self.news.work.insert(work, None);
            self.first.remove(&job);
            for id in self.held.remove(&job).unwrap_or_default() {
                self.snapshot.allocations.remove(&id);
                self.processes.remove(&id);
                self.news.allocations.insert(id, None);
            }
        }
        for job in self.known..fleet.submitted() {
            // A job without work ended when it was submitted.
            if fleet.is_unfinished(job) {
                let demand = self.demand_of(fleet, job);
                if demand.queued.is_some() {
                    self.fresh.push(job);
                }
                let added = Some(demand.clone());
                self.news.work.insert(work_id(job), added);
                self.snapshot.demand.insert(work_id(job), demand);
                self.work_index.insert(work_id(job), job);
            }
        }
        self.known = fleet.submitted();
        self.snapshot.now = moment(fleet.now());
        if self.hour.expire_minutes(self.snapshot.now) {
            self.snapshot.preempted_quanta = self.hour.preempted_quanta().clone();
        }
        if self.minds_progress {
            self.note_progress(fleet);
        }
    }

    fn note_progress(&mut self, fleet: &SimulatedFleet) {
        for job in fleet.unfinished() {
            let item = fleet.item_ms(job);
            let started = self.first.get(&job).copied();
            let known = started.is_some_and(|at| at + item <= fleet.now());
            let work = work_id(job);
            let Some(demand) = self.snapshot.demand.get_mut(&work) else {
                continue;
            };
            // The work can be divided at will, so every process finds an item until the end.
            let items = fleet.left(job).div_ceil(item).max(demand.max_processes);
            let now = (items, known.then_some(item));
            if now != (demand.remaining_tasks, demand.task_ms) {
                (demand.remaining_tasks, demand.task_ms) = now;
                self.news.work.insert(work, Some(demand.clone()));
            }
        }
    }

    fn demand_of(&self, fleet: &SimulatedFleet, job: usize) -> snapshot::Demand {
        let it = fleet.job(job);
        let name = fleet.case.workload.classes.name(it.class);
        snapshot::Demand {
            kind: WorkKind::Job,
            user: user_name(fleet.case, it),
            class: self
                .snapshot
                .classes
                .contains_key(name)
                .then(|| name.to_owned()),
            submitted_at: moment(fleet.now()),
            size: size_of(it),
            max_processes: it.tasks,
            remaining_tasks: it.tasks,
            threads: 1,
            task_ms: None,
            node_list: BTreeSet::new(),
            avoids: BTreeSet::new(),
            service: None,
            anti_affinity: None,
            managed: false,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: self.queue_requests[job].clone(),
        }
    }

    fn apply(&mut self, fleet: &mut SimulatedFleet, plan: &Plan) {
        if self.is_budgeted() {
            self.hour.record_receipts(&self.snapshot, &plan.receipts);
            self.snapshot.preempted_quanta = self.hour.preempted_quanta().clone();
        }
        for vacate in &plan.vacates {
            let gone = self.snapshot.allocations.remove(&vacate.allocation);
            let gone = gone.expect("a plan vacates only what is there");
            let job = self.work_index[&gone.work];
            let process = self.processes.remove(&vacate.allocation);
            let id = vacate.allocation.clone();
            self.news.allocations.insert(id, None);
            fleet.evict(process.expect("what is held is known"));
            if let Some(held) = self.held.get_mut(&job) {
                held.remove(&vacate.allocation);
            }
        }
        for grant in &plan.grants {
            self.grant(fleet, grant);
        }
    }

    /// Checks the plan before it is applied. A real fleet makes the same checks.
    fn check_queues(
        &mut self,
        fleet: &mut SimulatedFleet,
        news: &SnapshotDelta,
        plan: &Plan,
    ) -> Result<(), Unsound> {
        let round = self.snapshot.round;
        let unsound = |violations| Unsound::Plan { round, violations };
        check(&self.snapshot, plan).map_err(unsound)?;
        self.settle_fresh(fleet)?;
        let happened = *news != SnapshotDelta::default() || !plan.is_empty();
        let reservations = &plan.carried.queues;
        self.queueing
            .record_round(fleet.now(), happened, reservations);
        Ok(())
    }

    /// Moves submitted jobs to the queue that the round chose, or records their refusal.
    fn settle_fresh(&mut self, fleet: &mut SimulatedFleet) -> Result<(), Unsound> {
        for job in std::mem::take(&mut self.fresh) {
            let work = work_id(job);
            let Some(verdict) = self.planner.verdict(&work) else {
                let round = self.snapshot.round;
                return Err(Unsound::Unsaid { round, work });
            };
            if let Some(refused) = queueing::refused(&verdict) {
                self.snapshot.demand.remove(&work);
                self.work_index.remove(&work);
                self.news.work.insert(work, None);
                fleet.refuse(job, refused);
            } else if let Some(queue) = &verdict.class {
                fleet.enters(job, queue);
            }
        }
        Ok(())
    }

    fn grant(&mut self, fleet: &mut SimulatedFleet, grant: &Grant) {
        let job = self.work_index[&grant.work];
        let gpus = grant.gpus.iter();
        let gpus = gpus.filter_map(|gpu| usize::try_from(*gpu).ok()).collect();
        let process = fleet.start_on(job, self.node_index[&grant.node], gpus);
        self.first.entry(job).or_insert_with(|| fleet.now());
        self.serial += 1;
        let id = AllocationId::new(format!("alc_{:012}", self.serial)).expect("a good name");
        self.held.entry(job).or_default().insert(id.clone());
        self.processes.insert(id.clone(), process);
        let now = moment(fleet.now());
        let allocation = snapshot::Allocation {
            running: true,
            running_since: Some(now),
            item_ms: Some(fleet.item_ms(job)),
            ..grant.to_allocation(now)
        };
        let added = Some(allocation.clone());
        self.news.allocations.insert(id.clone(), added);
        self.snapshot.allocations.insert(id, allocation);
    }

    fn is_budgeted(&self) -> bool {
        let settings = &self.snapshot.tunables.settings;
        let pool = settings.preemption_pool_percent_per_hour;
        pool.or(settings.preemption_user_percent_per_hour).is_some()
    }

    /// Returns the next time at which a job has shown how long an item of its work takes.
    fn wakes(&self, fleet: &SimulatedFleet) -> Option<Moment> {
        if !self.grows_with_time {
            return None;
        }
        let shown = |(job, at): (&usize, &Moment)| at + fleet.item_ms(*job);
        self.first
            .iter()
            .map(shown)
            .filter(|at| *at > fleet.now())
            .min()
    }
}

impl Sharing for Production {
    /// Runs one more round, which gives a verdict on all waiting jobs. Earlier rounds gave none.
    fn why_waiting(&self, jobs: &[usize]) -> Vec<(usize, Refused)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let mut planner = Rounds::default();
        planner.decide(&self.snapshot, &SnapshotDelta::everything());
        let why = |job: &usize| {
            let verdict = planner.verdict(&work_id(*job))?;
            Some((*job, queueing::why(&verdict)))
        };
        jobs.iter().filter_map(why).collect()
    }

    fn round(&mut self, fleet: &mut SimulatedFleet) -> Result<Option<Moment>, Unsound> {
        self.absorb(fleet);
        let mut quiet = false;
        let rounds = if self.queueing.exist() {
            ROUNDS_OF_QUEUES
        } else {
            ROUNDS
        };
        for _ in 0..rounds {
            self.snapshot.round += 1;
            let news = std::mem::take(&mut self.news);
            let plan = self.planner.decide(&self.snapshot, &news).plan;
            if self.queueing.exist() {
                self.check_queues(fleet, &news, &plan)?;
            }
            quiet = plan.is_empty();
            self.apply(fleet, &plan);
            self.snapshot.carried = plan.carried;
            if plan.vacates.is_empty() {
                break;
            }
        }
        let next = if quiet || !self.grows_with_time {
            self.wakes(fleet)
        } else {
            Some(fleet.now() + 1)
        };
        // At that time there is preemption budget again for waiting jobs.
        let ends = self
            .hour
            .next_expiry()
            .map(|end| end.ms_since(Timestamp::default()));
        let waits = self.planner.waits_for_time();
        let queues = self.queueing.wakes(waits);
        Ok(next.into_iter().chain(ends).chain(queues).min())
    }
}

fn listed(faults: &[Fault]) -> String {
    let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
    format!("the policy has faults: {}", all.join("; "))
}

fn node_of(node: &Node, pool: &str) -> snapshot::Node {
    let memory = if node.memory_mib == 0 {
        PLENTY
    } else {
        node.memory_mib * MIB
    };
    snapshot::Node {
        pool: pool.to_owned(),
        capacity: Size {
            memory_bytes: memory,
            cpu_milli: node.cpu_milli,
            gpu_milli: node.gpu_count * 1000,
            extras: BTreeMap::new(),
        },
        takes_work: true,
        lost: false,
        offline: false,
        block: None,
        labels: BTreeMap::new(),
    }
}

fn size_of(job: &Job) -> Size {
    Size {
        memory_bytes: job.need.memory_mib * MIB,
        cpu_milli: job.need.cpu_milli,
        gpu_milli: job.need.gpu_milli * job.need.gpu_count,
        extras: BTreeMap::new(),
    }
}

/// Names sort in the order of the file, so that ties between nodes do too.
fn node_name(at: usize, node: &Node) -> NodeName {
    NodeName::new(format!("{at:06}-{}", node.id))
        .or_else(|_| NodeName::new(format!("{at:06}")))
        .expect("digits are a good name")
}

/// Ids sort in the order of submission.
fn work_id(job: usize) -> WorkId {
    WorkId::new(format!("job_{job:09}")).expect("digits are a good name")
}

fn user_name(case: &Case, job: &Job) -> UserName {
    UserName::new(case.workload.users.name(job.user))
        .or_else(|_| UserName::new(format!("user-{}", job.user)))
        .expect("digits are a good name")
}

fn moment(at: Moment) -> Timestamp {
    Timestamp::default().plus_ms(at)
}

#[cfg(test)]
mod tests;
