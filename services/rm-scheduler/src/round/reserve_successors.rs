//! Reserves a successor before its predecessor is ordered to leave.
//!
//! A round is planned as if these processes were leaving already. A process with a granted
//! successor gets its order to leave in the same commit, so none leaves without a successor. All
//! other processes stay as they were, and only the reason of the failure is recorded.
//! container-manager starts a successor when the end of its predecessor is proven.

use std::collections::BTreeSet;

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::evidence::BlockerReason;
use hayward_rm_scheduler_api::{AllocationState, VacateReason};
use hayward_rm_scheduler_domain::evacuation::{Leaver, found};
use hayward_rm_scheduler_domain::{Plan, Reason, Verdict};
use hayward_vocabulary::{AllocationId, NodeName, Role, WorkId, WorkKind};

use crate::model::{AllocationRecord, LeaveOrder};
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

impl Ledger {
    /// Returns the facts that decide how a process leaves.
    pub(super) fn leaver(&self, held: &AllocationRecord, time_is_over: bool) -> Leaver {
        let entry = &held.entry;
        let demand = self.followed.demand().get(entry.work.as_str());
        let processor = demand.filter(|demand| demand.processor.is_some());
        let is_requested = |id: &AllocationId| {
            let mut requests = self.followed.requests().iter();
            requests.any(|(_, request)| request.predecessor.as_ref() == Some(id))
        };
        Leaver {
            process_of_a_service: processor.is_some() && entry.kind == WorkKind::Service,
            time_is_over,
            taken_over: processor.is_some_and(|demand| self.has_running_standby(held, demand)),
            moved_by_order: processor.is_some() && is_requested(&entry.id),
            awaits_its_start: entry
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id)),
        }
    }

    /// Returns true if a standby of this process runs on another node and stays there.
    fn has_running_standby(&self, held: &AllocationRecord, demand: &DemandEntry) -> bool {
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
        let mut places = standbys.flat_map(|(_, it)| self.allocations.of_work(&it.work));
        places.any(|it| {
            let entry = &it.entry;
            let runs = entry.state == AllocationState::Running && entry.vacate.is_none();
            runs && entry.node != held.entry.node && self.is_open(&entry.node)
        })
    }

    fn has_standbys(&self, work: &WorkId) -> bool {
        let demand = self.followed.demand().get(work.as_str());
        let processor = demand.and_then(|it| it.processor.as_ref().filter(|_| it.apart.is_some()));
        processor.is_some_and(|it| it.role == Role::Active)
    }

    fn is_open(&self, node: &NodeName) -> bool {
        let node = self.snapshot.nodes.get(node);
        node.is_some_and(|it| it.takes_work && !it.offline && it.block.is_none())
    }

    /// Marks these processes as leaving in the snapshot, for the planner only.
    pub(super) fn show_seekers_as_leaving(&mut self) {
        let sought: Vec<AllocationId> = self.successors.sought.iter().map(id_of).collect();
        for id in sought {
            let Some(held) = self.allocations.get(&id) else {
                continue;
            };
            let work = held.entry.work.clone();
            let mut seen = self.planner_allocation(held);
            seen.leaving = true;
            self.snapshot.set_allocation(&id, Some(seen));
            // An active process with standbys is bound to its node until it is ordered to leave.
            let pinned = self.followed.demand().get(work.as_str());
            if let Some(pinned) = pinned.filter(|it| it.host.is_some()) {
                let free = DemandEntry {
                    host: None,
                    ..pinned.clone()
                };
                let demand = translate::demand(&free, self.followed.avoids(&work));
                self.snapshot.set_demand(work, demand);
            }
        }
    }

    /// Orders processes with a successor to leave, and restores the others. Returns the orders.
    pub(super) fn vacate_with_successors(
        &mut self,
        plan: &mut Plan,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<LeaveOrder> {
        let sought = std::mem::take(&mut self.successors.sought);
        let mut withheld = std::mem::take(&mut self.successors.withheld);
        let work_of = |order: &LeaveOrder| {
            let held = self.allocations.get(&order.allocation);
            held.map(|held| held.entry.work.clone())
        };
        let sought: Vec<(LeaveOrder, WorkId)> = sought
            .into_iter()
            .filter_map(|order| work_of(&order).map(|work| (order, work)))
            .collect();
        let works: Vec<WorkId> = sought.iter().map(|(_, work)| work.clone()).collect();
        let found = found(&works, &plan.grants);
        let mut ordered = Vec::new();
        for ((mut order, work), found) in sought.into_iter().zip(found) {
            if found {
                if self.has_standbys(&work) {
                    // The order arrives before the successor does. With any other reason,
                    // job-converter would begin a failover.
                    order.reason = VacateReason::Moved;
                }
                self.successors.tried.remove(&order.allocation);
                self.evacuations.mark_successor_reserved(&order.allocation);
                let predecessors = &mut self.successors.predecessors;
                predecessors.insert(work.clone(), order.allocation.clone());
                self.vacate(order.clone(), moment, batch);
                ordered.push(order);
            } else {
                let before = withheld.remove(&work);
                let verdict = plan.verdicts.remove(&work).or(before);
                self.keep_in_place(&order.allocation, &work, verdict);
            }
            self.refresh_demand(work.as_str());
        }
        for (work, verdict) in withheld {
            if self.followed.demand().get(work.as_str()).is_some() {
                plan.verdicts.entry(work).or_insert(verdict);
            }
        }
        self.retry_others();
        ordered
    }

    /// Undoes the attempt for a process without a successor.
    fn keep_in_place(&mut self, id: &AllocationId, work: &WorkId, verdict: Option<Box<Verdict>>) {
        let waits = verdict.as_ref().filter(|it| it.reason != Reason::Satisfied);
        let why = waits.map(|it| it.detail.clone());
        let why = why.unwrap_or_else(|| "none in this round".to_owned());
        if let Some(verdict) = verdict {
            self.successors.withheld.insert(work.clone(), verdict);
        }
        let ordered = format!("its next place has to be found first: {why}");
        let held_back = &mut self.evacuations.held_back;
        held_back.insert(id.clone(), (BlockerReason::NoPlace, ordered));
        // An external planner answers in a later round. That round has to make the same attempt.
        let round = if self.awaits_external_planner(work) {
            self.successors.last_attempt(id)
        } else {
            self.timing.round()
        };
        self.successors.tried.insert(id.clone(), (round, why));
        if let Some(held) = self.allocations.get(id) {
            let seen = self.planner_allocation(held);
            self.snapshot.set_allocation(id, Some(seen));
        }
    }

    /// Requests a round if a failed attempt leaves its disruption limit to another process of the
    /// group.
    fn retry_others(&mut self) {
        let allocations = &self.allocations;
        let stays = |id: &AllocationId| {
            let held = allocations.get(id).filter(|it| it.entry.holds());
            held.is_some_and(|it| it.entry.vacate.is_none())
        };
        let seeking = &mut self.successors;
        seeking.tried.retain(|id, _| stays(id));
        let groups = seeking
            .tried
            .iter()
            .filter(|(_, it)| it.0 == self.timing.round());
        let groups = groups.filter_map(|(id, _)| allocations.get(id));
        let groups: BTreeSet<WorkId> = groups.map(|it| it.entry.work.whole()).collect();
        let mut waiting = seeking.waiting.iter();
        let untried = |(id, group): &(AllocationId, WorkId)| {
            groups.contains(group) && !seeking.tried.contains_key(id)
        };
        self.timing.request_round_if(waiting.any(untried));
    }

    /// Returns the process whose end a new process of this work has to wait for.
    pub(super) fn predecessor_of_work(&self, work: &WorkId) -> Option<AllocationId> {
        let found = self.successors.predecessors.get(work);
        let awaited = || self.evacuations.awaited(work);
        let before = || self.last_exclusive(work);
        found.or_else(awaited).cloned().or_else(before)
    }

    /// Returns the oldest process of exclusive work that has not ended, even if it was not ordered
    /// to leave (I4).
    fn last_exclusive(&self, work: &WorkId) -> Option<AllocationId> {
        let demand = self.followed.demand().get(work.as_str())?;
        let alone = demand.processor.is_some() && demand.when_unreachable.is_exclusive();
        if !alone {
            return None;
        }
        let held = self.allocations.of_work(work);
        let holding = held.filter(|held| held.entry.holds());
        let first = holding.min_by_key(|held| held.entry.incarnation)?;
        Some(first.entry.id.clone())
    }
}

fn id_of(order: &LeaveOrder) -> AllocationId {
    order.allocation.clone()
}
