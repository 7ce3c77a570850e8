//! Reserves the successor of a process of a service before the process is ordered to leave.
//!
//! The round is planned as if the processes that are to be moved were leaving already. A process
//! with a granted successor gets its order to leave in the same commit, so no process leaves
//! without a successor. Every other process stays as it was, and the reason why no successor was
//! found is recorded. container-manager starts a successor when the end of its predecessor is
//! proven.

use std::collections::BTreeSet;

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::node_publications::BlockerReason;
use hayward_rm_scheduler_api::{AllocationState, VacateReason};
use hayward_rm_scheduler_domain::evacuation::{LeavingProcess, match_grants};
use hayward_rm_scheduler_domain::{Plan, Reason, Verdict};
use hayward_vocabulary::{AllocationId, NodeName, Role, WorkId, WorkKind};

use crate::model::{AllocationRecord, LeaveOrder};
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;
use crate::working_set::successor_search::FailedAttempt;

impl Ledger {
    /// Returns the facts that decide how a process leaves.
    pub(super) fn leaving_process(
        &self,
        record: &AllocationRecord,
        deadline_passed: bool,
    ) -> LeavingProcess {
        let entry = &record.entry;
        let demand = self.followed.demand().get(entry.work.as_str());
        let processor = demand.filter(|demand| demand.processor.is_some());
        let is_requested = |id: &AllocationId| {
            let mut requests = self.followed.requests().iter();
            requests.any(|(_, request)| request.predecessor.as_ref() == Some(id))
        };
        LeavingProcess {
            is_service_process: processor.is_some() && entry.kind == WorkKind::Service,
            deadline_passed,
            standby_takes_over: processor
                .is_some_and(|demand| self.has_running_standby(record, demand)),
            move_ordered: processor.is_some() && is_requested(&entry.id),
            awaits_predecessor: entry
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id)),
        }
    }

    /// Returns true if a standby of this process runs on another node and stays there.
    fn has_running_standby(&self, record: &AllocationRecord, demand: &DemandEntry) -> bool {
        if demand.apart.is_none() {
            return false;
        }
        let is_standby = |it: &DemandEntry| {
            let role = it.processor.as_ref().map(|it| &it.role);
            matches!(role, Some(Role::Standby { of, .. }) if *of == demand.work)
        };
        let standbys = self
            .followed
            .demand()
            .iter()
            .filter(|(_, it)| is_standby(it));
        let mut processes = standbys.flat_map(|(_, it)| self.allocations.of_work(&it.work));
        processes.any(|it| {
            let entry = &it.entry;
            let runs = entry.state == AllocationState::Running && entry.vacate.is_none();
            runs && entry.node != record.entry.node && self.is_open(&entry.node)
        })
    }

    /// Returns true if the work is an active process that has standbys.
    fn has_standbys(&self, work: &WorkId) -> bool {
        let demand = self.followed.demand().get(work.as_str());
        let processor = demand.and_then(|it| it.processor.as_ref().filter(|_| it.apart.is_some()));
        processor.is_some_and(|it| it.role == Role::Active)
    }

    fn is_open(&self, node: &NodeName) -> bool {
        let node = self.snapshot.nodes.get(node);
        node.is_some_and(|it| it.takes_work && !it.offline && it.block.is_none())
    }

    /// Marks the processes that need a successor as leaving in the snapshot, for the planner only.
    pub(super) fn mark_waiting_as_leaving(&mut self) {
        let orders = self.successors.waiting_orders.iter();
        let ids: Vec<AllocationId> = orders.map(allocation_of).collect();
        for id in ids {
            let Some(record) = self.allocations.get(&id) else {
                continue;
            };
            let work = record.entry.work.clone();
            let mut allocation = self.planner_allocation(record);
            allocation.leaving = true;
            self.snapshot.set_allocation(&id, Some(allocation));
            // The demand of an active process with standbys names its node until the process is
            // ordered to leave. The planner must be free to choose another node.
            let pinned = self.followed.demand().get(work.as_str());
            if let Some(pinned) = pinned.filter(|it| it.host.is_some()) {
                let unpinned = DemandEntry {
                    host: None,
                    ..pinned.clone()
                };
                let demand = translate::demand(
                    &unpinned,
                    self.followed.avoided_nodes(&work, &unpinned.user),
                );
                self.snapshot.set_demand(work, demand);
            }
        }
    }

    /// Orders each process with a granted successor to leave, and restores each process without one
    /// in the snapshot. Returns the orders.
    pub(super) fn vacate_with_successors(
        &mut self,
        plan: &mut Plan,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<LeaveOrder> {
        let waiting_orders = std::mem::take(&mut self.successors.waiting_orders);
        let mut withheld_verdicts = std::mem::take(&mut self.successors.withheld_verdicts);
        let work_of = |order: &LeaveOrder| {
            let record = self.allocations.get(&order.allocation);
            record.map(|record| record.entry.work.clone())
        };
        let waiting_orders: Vec<(LeaveOrder, WorkId)> = waiting_orders
            .into_iter()
            .filter_map(|order| work_of(&order).map(|work| (order, work)))
            .collect();
        let works: Vec<WorkId> = waiting_orders
            .iter()
            .map(|(_, work)| work.clone())
            .collect();
        let has_successor = match_grants(&works, &plan.grants);
        let mut ordered = Vec::new();
        for ((mut order, work), has_successor) in waiting_orders.into_iter().zip(has_successor) {
            if has_successor {
                if self.has_standbys(&work) {
                    // job-converter receives this order before the successor runs. With any reason
                    // other than `Moved`, it would begin a failover to a standby.
                    order.reason = VacateReason::Moved;
                }
                self.successors.failed_attempts.remove(&order.allocation);
                self.evacuations.mark_successor_reserved(&order.allocation);
                let predecessors = &mut self.successors.predecessors;
                predecessors.insert(work.clone(), order.allocation.clone());
                self.vacate(order.clone(), moment, batch);
                ordered.push(order);
            } else {
                let withheld = withheld_verdicts.remove(&work);
                let verdict = plan.verdicts.remove(&work).or(withheld);
                self.restore_in_place(&order.allocation, &work, verdict);
            }
            self.refresh_demand(work.as_str());
        }
        for (work, verdict) in withheld_verdicts {
            if self.followed.demand().get(work.as_str()).is_some() {
                plan.verdicts.entry(work).or_insert(verdict);
            }
        }
        self.request_round_for_limited();
        ordered
    }

    /// Restores a process without a successor in the snapshot, and records why none was found.
    fn restore_in_place(
        &mut self,
        id: &AllocationId,
        work: &WorkId,
        verdict: Option<Box<Verdict>>,
    ) {
        let waits = verdict.as_ref().filter(|it| it.reason != Reason::Satisfied);
        let reason = waits.map(|it| it.detail.clone());
        let reason = reason.unwrap_or_else(|| "none in this round".to_owned());
        if let Some(verdict) = verdict {
            self.successors
                .withheld_verdicts
                .insert(work.clone(), verdict);
        }
        let detail = format!("its next place has to be found first: {reason}");
        let held_back = &mut self.evacuations.held_back;
        held_back.insert(id.clone(), (BlockerReason::NoPlace, detail));
        // An external planner responds in a later round, which must make the same attempt. The
        // number of the last attempt therefore stays, and so does the order of the processes.
        let round = if self.awaits_external_planner(work) {
            self.successors.last_attempt(id)
        } else {
            self.timing.round()
        };
        self.successors
            .failed_attempts
            .insert(id.clone(), FailedAttempt { round, reason });
        if let Some(record) = self.allocations.get(id) {
            let allocation = self.planner_allocation(record);
            self.snapshot.set_allocation(id, Some(allocation));
        }
    }

    /// Requests a round if an attempt failed in this round, and the disruption limit holds back
    /// another process of the same job or service that was not tried yet.
    fn request_round_for_limited(&mut self) {
        let allocations = &self.allocations;
        let stays_in_place = |id: &AllocationId| {
            let record = allocations.get(id).filter(|it| it.entry.holds());
            record.is_some_and(|it| it.entry.vacate.is_none())
        };
        let search = &mut self.successors;
        search.failed_attempts.retain(|id, _| stays_in_place(id));
        let groups = search
            .failed_attempts
            .iter()
            .filter(|(_, attempt)| attempt.round == self.timing.round());
        let groups = groups.filter_map(|(id, _)| allocations.get(id));
        let groups: BTreeSet<WorkId> = groups.map(|it| it.entry.work.parent()).collect();
        let mut held_back = search.limited.iter();
        let has_no_attempt = |(id, group): &(AllocationId, WorkId)| {
            groups.contains(group) && !search.failed_attempts.contains_key(id)
        };
        self.timing.request_round_if(held_back.any(has_no_attempt));
    }

    /// Returns the process that must have ended before a new process of this work starts.
    pub(super) fn predecessor_of_work(&self, work: &WorkId) -> Option<AllocationId> {
        let predecessor = self.successors.predecessors.get(work);
        let awaited = || self.evacuations.awaited_predecessor(work);
        let exclusive = || self.oldest_exclusive(work);
        predecessor.or_else(awaited).cloned().or_else(exclusive)
    }

    /// Returns the oldest process that has not ended, if the work is exclusive. The process counts
    /// even if it was not ordered to leave (I4).
    fn oldest_exclusive(&self, work: &WorkId) -> Option<AllocationId> {
        let demand = self.followed.demand().get(work.as_str())?;
        let is_exclusive = demand.processor.is_some() && demand.when_unreachable.is_exclusive();
        if !is_exclusive {
            return None;
        }
        let records = self.allocations.of_work(work);
        let holding = records.filter(|record| record.entry.holds());
        let first = holding.min_by_key(|record| record.entry.incarnation)?;
        Some(first.entry.id.clone())
    }
}

fn allocation_of(order: &LeaveOrder) -> AllocationId {
    order.allocation.clone()
}
