//! The working set of rm-scheduler: the state of one term of leadership, and the changes that keep
//! its parts consistent. The committer calls the working set through [`crate::dispatch`].
//!
//! The snapshot that a round plans from is updated entry by entry, and each change is recorded. A
//! round therefore neither translates nor reads the whole fleet. Followed publications are not
//! stored as rows. A new term reads the publications from its neighbours again, and plans nothing
//! before each neighbour has answered.

pub mod allocations;
pub mod carry_over;
pub mod evacuations;
pub mod external_planners;
pub mod failure_evidence;
pub mod fairness_ledger;
mod fleet_copy;
pub mod followed_publications;
pub mod nodes_on_trial;
pub mod orchestrator_allocations;
pub mod placeholder_exchange;
pub(crate) mod planning;
pub mod preemption_spending;
mod processes_on_nodes;
mod queues;
pub mod receipts;
pub mod round_timing;
pub mod successor_requests;
pub mod successor_search;
mod text_change_limit;
pub mod verdicts;
pub mod work_on_lost_nodes;
pub mod worker_pools;

use std::sync::Arc;

use hayward_publication::Batch;
use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_api::{ALLOCATIONS, VERDICTS};
use hayward_rm_scheduler_domain::snapshot::Allocation;
use hayward_rm_scheduler_domain::{budget::HourlyPreemptions, fleet_invariants};
use hayward_rm_scheduler_policy::Rules;
use hayward_vocabulary::{AllocationId, WorkId};

use crate::context::Context;
use crate::model::AllocationRecord;
use crate::store::Rows;
use crate::tracked_snapshot::TrackedSnapshot;

use allocations::Allocations;
use carry_over::CarryOver;
use evacuations::Evacuations;
use external_planners::ExternalPlanners;
use failure_evidence::FailureEvidence;
use fairness_ledger::Usage;
use followed_publications::FollowedPublications;
use nodes_on_trial::NodesOnTrial;
use planning::Planning;
use receipts::Receipts;
use round_timing::RoundTiming;
use successor_requests::SuccessorRequests;
use successor_search::SuccessorSearch;
use verdicts::PublishedVerdicts;
use work_on_lost_nodes::UnreachableWork;
use worker_pools::WorkerPools;

pub use followed_publications::JOB_CONVERTER;

/// All state of one term of leadership.
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    pub(crate) policy: PolicyInForce,
    pub(crate) followed: FollowedPublications,
    pub(crate) allocations: Allocations,
    /// Input of the next round.
    pub(crate) snapshot: TrackedSnapshot,
    pub(crate) planning: Planning,
    pub(crate) timing: RoundTiming,
    pub(crate) carry_over: CarryOver,
    pub(crate) usage: Usage,
    /// Quanta preempted within the last hour, by minute, pool and user.
    pub(crate) preempted_last_hour: HourlyPreemptions,
    pub(crate) verdicts: PublishedVerdicts,
    pub(crate) receipts: Receipts,
    pub(crate) failure_evidence: FailureEvidence,
    pub(crate) evacuations: Evacuations,
    pub(crate) successors: SuccessorSearch,
    pub(crate) successor_requests: SuccessorRequests,
    pub(crate) unreachable: UnreachableWork,
    pub(crate) nodes_on_trial: NodesOnTrial,
    pub(crate) worker_pools: WorkerPools,
    pub(crate) external_planners: ExternalPlanners,
    /// State of the invariant checks from one check to the next.
    pub(crate) invariant_memory: fleet_invariants::Memory,
}

/// The policy as published, and as rules for the planner.
#[derive(Default)]
pub(crate) struct PolicyInForce {
    view: PolicyView,
    rules: Arc<Rules>,
}

impl PolicyInForce {
    pub fn view(&self) -> &PolicyView {
        &self.view
    }

    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }
}

impl Ledger {
    /// Sets an allocation in memory, in the snapshot, in the rows and in the publication
    /// `allocations`.
    pub(crate) fn set_allocation(&mut self, record: AllocationRecord, batch: &mut Batch<Rows>) {
        let id = record.entry.id.clone();
        let holds = record.entry.holds();
        let after = holds.then(|| self.planner_allocation(&record));
        let before = self.snapshot.set_allocation(&id, after.clone());
        self.snapshot.expose_to_checks(&id, &record.entry.node);
        self.evacuations.update_marked(&record.entry);
        // A start only changes the order of preemption, so it does not request a round.
        let without_start = |allocation: Option<Allocation>| {
            allocation.map(|allocation| Allocation {
                running: false,
                running_since: None,
                ..allocation
            })
        };
        let changed = without_start(after) != without_start(before);
        self.timing.request_round_if(changed);
        batch.publish(ALLOCATIONS, "", id.as_str(), &record.entry);
        self.worker_pools.record_change(&record.entry);
        batch.rows.allocations.insert(id, record.clone());
        self.allocations.insert(record);
    }

    /// Adds the loaded allocations to the snapshot.
    pub(crate) fn index_loaded_allocations(&mut self) {
        for record in self.allocations.values() {
            self.evacuations.update_marked(&record.entry);
        }
        let holding = self.allocations.values().filter(|it| it.entry.holds());
        for record in holding.cloned().collect::<Vec<_>>() {
            let allocation = self.planner_allocation(&record);
            let entry = &record.entry;
            self.snapshot.set_allocation(&entry.id, Some(allocation));
            self.snapshot.expose_to_checks(&entry.id, &entry.node);
        }
    }

    /// Removes an ended allocation if job-converter no longer needs it: its work is withdrawn, or
    /// the work lists the allocation as settled.
    pub(crate) fn remove_if_settled(&mut self, id: &AllocationId, batch: &mut Batch<Rows>) {
        let Some(record) = self.allocations.get(id) else {
            return;
        };
        let demand = self.followed.demand();
        let entry = demand.get(record.entry.work.as_str());
        let settled = entry.is_none_or(|entry| entry.settled.contains(id));
        if record.entry.holds() || !settled || !demand.has_update() {
            return;
        }
        let work = record.entry.work.clone();
        self.allocations.remove(id);
        self.update_orphan(id);
        batch.withdraw(ALLOCATIONS, "", id.as_str());
        batch.rows.allocations.remove(id);
        batch.rows.removed_allocations.insert(id.clone());
        self.forget_work_if_gone(&work, batch);
    }

    /// Drops the incarnation of work that is withdrawn and has no allocation left.
    pub(crate) fn forget_work_if_gone(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        let demanded = self.followed.demand().get(work.as_str()).is_some();
        if demanded || self.worker_pools.wants(work) || self.allocations.has_any(work) {
            return;
        }
        if self.allocations.forget_incarnation(work) {
            batch.rows.incarnations.remove(work);
            batch.rows.removed_incarnations.insert(work.clone());
        }
    }

    pub(crate) fn next_incarnation(&mut self, work: &WorkId, batch: &mut Batch<Rows>) -> u64 {
        let next = self.allocations.next_incarnation(work);
        batch.rows.incarnations.insert(work.clone(), next);
        batch.rows.removed_incarnations.remove(work);
        next
    }

    /// Removes the verdict of a piece of work from memory and from the publication.
    pub(crate) fn withdraw_verdict(&mut self, work: &WorkId, batch: &mut Batch<Rows>) {
        if self.verdicts.remove(work) {
            batch.withdraw(VERDICTS, "", work.as_str());
        }
    }

    /// Brings a policy into force.
    pub(crate) fn set_policy(&mut self, view: PolicyView) {
        let rules = Arc::new(Rules::new(&view.policy));
        let changed = self.snapshot_with_rules(&rules);
        self.policy.rules = rules;
        self.snapshot.replace_all(|snapshot| *snapshot = changed);
        self.apply_planner_policy();
        self.policy.view = view;
        self.timing.request_round();
    }
}
