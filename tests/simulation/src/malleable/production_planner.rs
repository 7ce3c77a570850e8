//! The planner of real fleets as a policy of the simulation. Only this module and
//! [`crate::packing::planner_inflation`] use the types of the planner.
//!
//! The snapshot stays between rounds, and only a delta changes it. Preemption takes no time here,
//! so a round that preempts is followed at once by the round that grants the space.

mod policies;
mod queueing;
mod validate;

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

use queueing::QueueTimer;

use super::{MalleablePolicy, SimulatedFleet, SimulationError};
use crate::{
    case::Case,
    measure::{Moment, UnservedReason},
    trace::{Job, Node},
};

const MIB: u64 = 1 << 20;
/// Memory in MiB that is assumed for a node whose memory is not known.
const UNKNOWN_MEMORY_MIB: u64 = 1 << 50;
/// Maximum number of rounds at one moment: one that preempts, one that grants, and some for their
/// consequences.
const MAX_ROUNDS: usize = 6;
/// Maximum number of rounds at one moment with queues, which clear a node for one process at a
/// time.
const MAX_ROUNDS_WITH_QUEUES: usize = 64;

/// Why a policy document cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{}", join_faults(.0))]
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
    FractionsOfManyGpus { job: String, gpus: u64 },
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

pub struct ProductionPlanner {
    planner: Rounds,
    snapshot: Snapshot,
    /// Changes since the snapshot of the last round.
    delta: SnapshotDelta,
    node_index: BTreeMap<NodeName, usize>,
    /// The process of each allocation, in the order of the snapshot.
    process_by_allocation: BTreeMap<AllocationId, usize>,
    /// Allocations that each job holds.
    allocations_by_job: BTreeMap<usize, BTreeSet<AllocationId>>,
    /// Start time of the first process of each job.
    first_starts: BTreeMap<usize, Moment>,
    work_index: BTreeMap<WorkId, usize>,
    /// Jobs with a lower index are in the snapshot or were refused.
    next_new_job: usize,
    last_allocation_number: u64,
    /// Whether entitlements can grow with time alone.
    grows_with_time: bool,
    /// Whether the progress of jobs limits their entitlement.
    uses_progress: bool,
    /// Processes preempted in the last hour (B5).
    hourly_preemptions: HourlyPreemptions,
    /// Queue request by job. Empty if no pool has queues.
    queue_requests: Vec<Option<Box<Queued>>>,
    queue_timer: QueueTimer,
    /// Jobs submitted since the last round that are not in a queue yet.
    unqueued_jobs: Vec<usize>,
}

impl ProductionPlanner {
    pub fn new(case: &Case, policy: &Policy) -> Result<Self, PolicyError> {
        Self::with_queue(case, policy, None)
    }

    /// Makes the planner follow the current entitlement only. Fragmented space is divided by size.
    /// A remainder of an earlier round is not repaid, because that would take space from other
    /// users now. No policy document has these two settings.
    #[must_use]
    pub fn with_current_entitlement(mut self) -> Self {
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
    ) -> Result<Self, PolicyError> {
        let faults = faults(policy);
        if !faults.is_empty() {
            return Err(PolicyError::Faults(faults));
        }
        let rules = Rules::new(policy);
        let mut snapshot = Snapshot::empty();
        rules.apply_to(&mut snapshot);
        if let Some(queue) = queue.filter(|_| rules.queues.is_empty()) {
            return Err(PolicyError::NoQueues(queue.to_owned()));
        }
        validate::check_gpus(case)?;
        let queue_requests = case
            .jobs
            .iter()
            .map(|job| queueing::queue_request(case, &rules, job, queue));
        let queue_requests = queue_requests.collect::<Result<Vec<_>, _>>()?;
        let mut node_index = BTreeMap::new();
        for (index, node) in case.nodes.iter().enumerate() {
            let name = node_name(index, node);
            let identity = Identity {
                name: &node.id,
                address: None,
                declared: Some(&node.pool),
            };
            let pool = rules.pool_of(identity).unwrap_or(&node.pool);
            let mut entry = snapshot_node(node, pool);
            entry.capacity = rules.capacity(&entry.capacity);
            snapshot.nodes.insert(name.clone(), entry);
            node_index.insert(name, index);
        }
        Ok(Self {
            planner: Rounds::without_explanations(),
            delta: SnapshotDelta::everything(),
            grows_with_time: policy.tunables.initialization_cap > 0
                || policy.tunables.expand_by_doubling,
            uses_progress: policy.tunables.initialization_cap > 0
                || policy.tunables.expand_by_doubling
                || policy.tunables.use_prediction,
            node_index,
            process_by_allocation: BTreeMap::new(),
            allocations_by_job: BTreeMap::new(),
            first_starts: BTreeMap::new(),
            work_index: BTreeMap::new(),
            next_new_job: 0,
            last_allocation_number: 0,
            hourly_preemptions: HourlyPreemptions::default(),
            queue_requests,
            queue_timer: QueueTimer::new(&snapshot),
            unqueued_jobs: Vec::new(),
            snapshot,
        })
    }

    /// Applies ends, arrivals and the progress of jobs since the last round to the snapshot.
    fn update_snapshot(&mut self, fleet: &mut SimulatedFleet) {
        for job in fleet.drain_ended() {
            let work = work_id(job);
            self.snapshot.demand.remove(&work);
            self.work_index.remove(&work);
            self.delta.work.insert(work, None);
            self.first_starts.remove(&job);
            for id in self.allocations_by_job.remove(&job).unwrap_or_default() {
                self.snapshot.allocations.remove(&id);
                self.process_by_allocation.remove(&id);
                self.delta.allocations.insert(id, None);
            }
        }
        for job in self.next_new_job..fleet.submitted() {
            // A job without work ended when it was submitted.
            if fleet.is_unfinished(job) {
                let demand = self.snapshot_demand(fleet, job);
                if demand.queued.is_some() {
                    self.unqueued_jobs.push(job);
                }
                let added = Some(demand.clone());
                self.delta.work.insert(work_id(job), added);
                self.snapshot.demand.insert(work_id(job), demand);
                self.work_index.insert(work_id(job), job);
            }
        }
        self.next_new_job = fleet.submitted();
        self.snapshot.now = to_timestamp(fleet.now());
        if self.hourly_preemptions.expire_minutes(self.snapshot.now) {
            self.snapshot.preempted_quanta = self.hourly_preemptions.preempted_quanta().clone();
        }
        if self.uses_progress {
            self.update_progress(fleet);
        }
    }

    /// Updates the remaining tasks of all jobs, and the length of a task once one has ended. To the
    /// planner each item of a job's work is a task.
    fn update_progress(&mut self, fleet: &SimulatedFleet) {
        for job in fleet.unfinished() {
            let item_ms = fleet.item_ms(job);
            let first_start = self.first_starts.get(&job).copied();
            let is_item_known = first_start.is_some_and(|start| start + item_ms <= fleet.now());
            let work = work_id(job);
            let Some(demand) = self.snapshot.demand.get_mut(&work) else {
                continue;
            };
            // The work can be divided at will, so every process finds an item until the end.
            let items = fleet
                .remaining_work(job)
                .div_ceil(item_ms)
                .max(demand.max_processes);
            let progress = (items, is_item_known.then_some(item_ms));
            if progress != (demand.remaining_tasks, demand.task_ms) {
                (demand.remaining_tasks, demand.task_ms) = progress;
                self.delta.work.insert(work, Some(demand.clone()));
            }
        }
    }

    fn snapshot_demand(&self, fleet: &SimulatedFleet, job: usize) -> snapshot::Demand {
        let spec = fleet.job(job);
        let name = fleet.case.workload.classes.name(spec.class);
        snapshot::Demand {
            kind: WorkKind::Job,
            user: user_name(fleet.case, spec),
            class: self
                .snapshot
                .classes
                .contains_key(name)
                .then(|| name.to_owned()),
            submitted_at: to_timestamp(fleet.now()),
            size: task_size(spec),
            max_processes: spec.tasks,
            remaining_tasks: spec.tasks,
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

    /// Applies the plan to the fleet and to the snapshot.
    fn apply(&mut self, fleet: &mut SimulatedFleet, plan: &Plan) {
        if self.is_budgeted() {
            self.hourly_preemptions
                .record_receipts(&self.snapshot, &plan.receipts);
            self.snapshot.preempted_quanta = self.hourly_preemptions.preempted_quanta().clone();
        }
        for vacate in &plan.vacates {
            let removed = self.snapshot.allocations.remove(&vacate.allocation);
            let removed = removed.expect("a plan vacates only known allocations");
            let job = self.work_index[&removed.work];
            let process = self.process_by_allocation.remove(&vacate.allocation);
            let id = vacate.allocation.clone();
            self.delta.allocations.insert(id, None);
            fleet.preempt(process.expect("each allocation has a process"));
            if let Some(allocations) = self.allocations_by_job.get_mut(&job) {
                allocations.remove(&vacate.allocation);
            }
        }
        for grant in &plan.grants {
            self.grant(fleet, grant);
        }
    }

    /// Accepts the plan of a round with queues before the plan is applied. A plan that breaks a
    /// rule is an error, as in a real fleet. Assigns submitted jobs to their queues, and updates
    /// the timer.
    fn accept_plan(
        &mut self,
        fleet: &mut SimulatedFleet,
        delta: &SnapshotDelta,
        plan: &Plan,
    ) -> Result<(), SimulationError> {
        let round = self.snapshot.round;
        let invalid_plan = |violations| SimulationError::InvalidPlan { round, violations };
        check(&self.snapshot, plan).map_err(invalid_plan)?;
        self.assign_queues(fleet)?;
        let had_events = *delta != SnapshotDelta::default() || !plan.is_empty();
        let reservations = &plan.carried.queues;
        self.queue_timer
            .record_round(fleet.now(), had_events, reservations);
        Ok(())
    }

    /// Moves submitted jobs to the queue that the round chose, or records their refusal.
    fn assign_queues(&mut self, fleet: &mut SimulatedFleet) -> Result<(), SimulationError> {
        for job in std::mem::take(&mut self.unqueued_jobs) {
            let work = work_id(job);
            let Some(verdict) = self.planner.verdict(&work) else {
                let round = self.snapshot.round;
                return Err(SimulationError::MissingVerdict { round, work });
            };
            if let Some(refusal) = queueing::refusal(&verdict) {
                self.snapshot.demand.remove(&work);
                self.work_index.remove(&work);
                self.delta.work.insert(work, None);
                fleet.refuse(job, refusal);
            } else if let Some(queue) = &verdict.class {
                fleet.record_queue(job, queue);
            }
        }
        Ok(())
    }

    fn grant(&mut self, fleet: &mut SimulatedFleet, grant: &Grant) {
        let job = self.work_index[&grant.work];
        let gpus = grant.gpus.iter();
        let gpus = gpus.filter_map(|gpu| usize::try_from(*gpu).ok()).collect();
        let process = fleet.start_on_gpus(job, self.node_index[&grant.node], gpus);
        self.first_starts.entry(job).or_insert_with(|| fleet.now());
        self.last_allocation_number += 1;
        let id = AllocationId::new(format!("alc_{:012}", self.last_allocation_number))
            .expect("a valid name");
        self.allocations_by_job
            .entry(job)
            .or_default()
            .insert(id.clone());
        self.process_by_allocation.insert(id.clone(), process);
        let now = to_timestamp(fleet.now());
        let allocation = snapshot::Allocation {
            running: true,
            running_since: Some(now),
            item_ms: Some(fleet.item_ms(job)),
            ..grant.to_allocation(now)
        };
        let added = Some(allocation.clone());
        self.delta.allocations.insert(id.clone(), added);
        self.snapshot.allocations.insert(id, allocation);
    }

    /// Returns whether the policy limits the preempted quanta per hour.
    fn is_budgeted(&self) -> bool {
        let settings = &self.snapshot.tunables.settings;
        let pool = settings.preemption_pool_percent_per_hour;
        pool.or(settings.preemption_user_percent_per_hour).is_some()
    }

    /// Returns the next time at which the first item of a job ends. From then on the run time of
    /// the items of the job is known.
    fn next_wakeup(&self, fleet: &SimulatedFleet) -> Option<Moment> {
        if !self.grows_with_time {
            return None;
        }
        let item_known_at = |(job, start): (&usize, &Moment)| start + fleet.item_ms(*job);
        self.first_starts
            .iter()
            .map(item_known_at)
            .filter(|moment| *moment > fleet.now())
            .min()
    }
}

impl MalleablePolicy for ProductionPlanner {
    /// Runs one more round with explanations, which gives a verdict on all waiting jobs. Earlier
    /// rounds explained nothing.
    fn why_waiting(&self, jobs: &[usize]) -> Vec<(usize, UnservedReason)> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let mut planner = Rounds::default();
        planner.decide(&self.snapshot, &SnapshotDelta::everything());
        let reason = |job: &usize| {
            let verdict = planner.verdict(&work_id(*job))?;
            Some((*job, queueing::unserved_reason(&verdict)))
        };
        jobs.iter().filter_map(reason).collect()
    }

    fn round(&mut self, fleet: &mut SimulatedFleet) -> Result<Option<Moment>, SimulationError> {
        self.update_snapshot(fleet);
        let mut is_plan_empty = false;
        let rounds = if self.queue_timer.has_queues() {
            MAX_ROUNDS_WITH_QUEUES
        } else {
            MAX_ROUNDS
        };
        for _ in 0..rounds {
            self.snapshot.round += 1;
            let delta = std::mem::take(&mut self.delta);
            let plan = self.planner.decide(&self.snapshot, &delta).plan;
            if self.queue_timer.has_queues() {
                self.accept_plan(fleet, &delta, &plan)?;
            }
            is_plan_empty = plan.is_empty();
            self.apply(fleet, &plan);
            self.snapshot.carried = plan.carried;
            if plan.vacates.is_empty() {
                break;
            }
        }
        let next = if is_plan_empty || !self.grows_with_time {
            self.next_wakeup(fleet)
        } else {
            Some(fleet.now() + 1)
        };
        // At that time there is preemption budget again for waiting jobs.
        let budget_end = self
            .hourly_preemptions
            .next_expiry()
            .map(|end| end.ms_since(Timestamp::default()));
        let has_waiting_work = self.planner.waits_for_time();
        let queue_wakeup = self.queue_timer.next_wakeup(has_waiting_work);
        Ok(next.into_iter().chain(budget_end).chain(queue_wakeup).min())
    }
}

fn join_faults(faults: &[Fault]) -> String {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    format!("the policy has faults: {}", texts.join("; "))
}

fn snapshot_node(node: &Node, pool: &str) -> snapshot::Node {
    let memory = if node.memory_mib == 0 {
        UNKNOWN_MEMORY_MIB
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

fn task_size(job: &Job) -> Size {
    Size {
        memory_bytes: job.request.memory_mib * MIB,
        cpu_milli: job.request.cpu_milli,
        gpu_milli: job.request.gpu_milli * job.request.gpu_count,
        extras: BTreeMap::new(),
    }
}

/// Returns a name that sorts in the order of the file, so that ties between nodes are decided in
/// this order too.
fn node_name(index: usize, node: &Node) -> NodeName {
    NodeName::new(format!("{index:06}-{}", node.id))
        .or_else(|_| NodeName::new(format!("{index:06}")))
        .expect("digits are a valid name")
}

/// Returns an id that sorts in the order of submission.
fn work_id(job: usize) -> WorkId {
    WorkId::new(format!("job_{job:09}")).expect("digits are a valid name")
}

fn user_name(case: &Case, job: &Job) -> UserName {
    UserName::new(case.workload.users.name(job.user))
        .or_else(|_| UserName::new(format!("user-{}", job.user)))
        .expect("digits are a valid name")
}

fn to_timestamp(moment: Moment) -> Timestamp {
    Timestamp::default().plus_ms(moment)
}

#[cfg(test)]
mod tests;
