//! Requests of container-manager for the successor of a process of a service. A request is made
//! before the process leaves, or after the process has ended.
//!
//! The work of the process and the request are two pieces of work for the planner. The grant of a
//! request becomes an allocation of the work, with the process as its predecessor. While the
//! predecessor holds its space, the planner counts the successor as part of the request. Later the
//! planner counts the successor as part of the work. The work therefore never has one allocation
//! too many or too few. While a request replaces an ended process, the work itself has no demand.
//! The demand returns as soon as the request is withdrawn.

mod publications;

use std::collections::{BTreeMap, BTreeSet};

use hayward_container_manager_api::{REQUESTS, RequestEntry};
use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Change, Moment, Update};
use hayward_rm_scheduler_api::{
    CLOSED, ClosedEntry, PROCESSORS, ProcessorEntry, Vacate, VacateReason,
};
use hayward_rm_scheduler_domain::{Reason, Verdict, snapshot};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use sqlx::PgConnection;

use crate::model::{AllocationRecord, LeaveOrder};
use crate::store::{self, Rows};
use crate::translate;
use crate::working_set::Ledger;

/// Prefix of the ids of requests.
const ID_PREFIX: &str = "req_";

#[derive(Debug, Default)]
pub(crate) struct SuccessorRequests {
    /// Requests that are in the snapshot, by their ids.
    in_snapshot: BTreeSet<WorkId>,
    /// Works that had a request at the last refresh.
    with_request: BTreeSet<WorkId>,
    /// Works without demand, because a request replaces their ended process.
    suspended: BTreeSet<WorkId>,
    /// Works that job-converter still lists as failed, although a request got them a new
    /// allocation.
    revived: BTreeSet<WorkId>,
    /// Waiting requests, each with reason and text. The text changes only together with the reason.
    waits: BTreeMap<WorkId, (Reason, String)>,
    /// True if `waits` differ from the published ones.
    waits_changed: bool,
    /// Tasks of applications that are to replace placeholders.
    pub replacement_tasks: BTreeSet<WorkId>,
    /// True once the allocations of requests of earlier terms have been processed.
    resumed: bool,
    /// Published entries.
    processors: BTreeMap<String, ProcessorEntry>,
    closed: BTreeMap<String, ClosedEntry>,
    /// Nodes of containers that have no allocation and have not ended.
    orphans: BTreeMap<AllocationId, NodeName>,
}

impl SuccessorRequests {
    pub async fn load(tx: &mut PgConnection) -> Result<Self, sqlx::Error> {
        Ok(Self {
            processors: store::published_entries::load_by_key(&mut *tx, PROCESSORS).await?,
            closed: store::published_entries::load_by_key(tx, CLOSED).await?,
            ..Self::default()
        })
    }

    /// Returns true while the work has no demand, because a request replaces its ended process.
    pub fn suspends_demand_of(&self, work: &WorkId) -> bool {
        self.suspended.contains(work)
    }

    /// Records the verdict on a request.
    pub fn record_verdict(&mut self, request: WorkId, verdict: &Verdict) {
        let known = self.waits.get(&request).map(|(reason, _)| *reason);
        let now = Some(verdict.reason).filter(|reason| *reason != Reason::Satisfied);
        if known == now {
            return;
        }
        self.waits_changed = true;
        match now {
            Some(reason) => {
                let wait = (reason, verdict.detail.clone());
                self.waits.insert(request, wait);
            }
            None => drop(self.waits.remove(&request)),
        }
    }

    /// Returns true if the work has a new allocation although job-converter still lists it as
    /// failed.
    pub fn is_revived(&self, work: &WorkId) -> bool {
        self.revived.contains(work)
    }
}

/// Returns true if the requested node is not on the list of the work and the request does not force
/// it.
fn is_host_refused(request: &RequestEntry, demand: &DemandEntry) -> bool {
    let is_listed = |host: &NodeName| demand.machines.is_empty() || demand.machines.contains(host);
    !request.force && request.host.as_ref().is_some_and(|host| !is_listed(host))
}

/// Returns true if this id is the id of a request.
pub fn is_request(work: &WorkId) -> bool {
    work.as_str().starts_with(ID_PREFIX)
}

impl Ledger {
    /// Applies changes of `requests`, a publication of container-manager.
    pub(crate) fn absorb_requests(
        &mut self,
        update: Update<RequestEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.followed.absorb_requests(update, moment.monotonic_ms);
        batch.record_position(REQUESTS, self.followed.requests().cursor());
        self.timing.request_round_if(!changes.is_empty());
        for change in changes {
            if let Change::Removed { before, .. } = change {
                self.handle_withdrawn_request(&before, moment, batch);
            }
        }
    }

    /// Vacates the allocation of a withdrawn request if the predecessor still holds its space.
    /// Otherwise the allocation is the only one of the work, and stays.
    fn handle_withdrawn_request(
        &mut self,
        request: &RequestEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(record) = self.allocation_for_request(request) else {
            return;
        };
        if self.predecessor_holds(record) {
            let order = LeaveOrder {
                allocation: record.entry.id.clone(),
                reason: VacateReason::Moved,
                detail: "the place is no longer needed: its predecessor stays".to_owned(),
                purge: false,
            };
            self.vacate(order, moment, batch);
        }
    }

    /// Returns the allocation that a request got, unless it has ended or was ordered to leave.
    fn allocation_for_request(&self, request: &RequestEntry) -> Option<&AllocationRecord> {
        let mut records = self.allocations.of_work(&request.work);
        records.find(|record| {
            let entry = &record.entry;
            let is_granted = entry.request.as_deref() == Some(request.id.as_str());
            is_granted && entry.holds() && entry.vacate.is_none()
        })
    }

    /// Returns true if the predecessor already has a successor that no request asked for. A second
    /// successor would be too many.
    fn is_superseded(&self, request: &RequestEntry) -> bool {
        let mut records = self.allocations.of_work(&request.work);
        request.predecessor.is_some()
            && records.any(|record| {
                let entry = &record.entry;
                let is_successor = entry.predecessor == request.predecessor;
                is_successor && entry.request.is_none() && entry.holds() && entry.vacate.is_none()
            })
    }

    /// Returns true if the allocation was requested and its predecessor still holds space.
    fn predecessor_holds(&self, record: &AllocationRecord) -> bool {
        let entry = &record.entry;
        entry.request.is_some()
            && entry
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id))
    }

    /// Converts an allocation to the input of the planner. A requested successor belongs to the
    /// request while its predecessor holds space.
    pub(crate) fn planner_allocation(&self, record: &AllocationRecord) -> snapshot::Allocation {
        let mut allocation = translate::allocation(record);
        if self.predecessor_holds(record)
            && let Some(request) = record.entry.request.as_deref()
            && let Ok(work) = WorkId::new(request)
        {
            allocation.work = work;
        }
        allocation
    }

    /// Returns the request that a grant fulfils.
    pub(crate) fn request_for_grant(&self, work: &WorkId) -> Option<RequestEntry> {
        is_request(work).then(|| self.followed.requests().get(work.as_str()).cloned())?
    }

    /// Marks an end as part of a move while a successor is requested, so that the end does not
    /// count as a failure.
    pub(crate) fn mark_moved(&self, record: &mut AllocationRecord, moment: &Moment) {
        let id = &record.entry.id;
        let request = self
            .followed
            .requests()
            .iter()
            .find(|(_, request)| request.predecessor.as_ref() == Some(id));
        if let Some((request, _)) = request {
            record.entry.vacate.get_or_insert(Vacate {
                reason: VacateReason::Moved,
                detail: format!("it is moved ({request})"),
                since: moment.now,
                purge: false,
            });
        }
    }

    /// Updates the snapshot: the requests, the demand of their works, and the granted allocations.
    pub(crate) fn refresh_requests(&mut self) {
        let requests: Vec<RequestEntry> = self
            .followed
            .requests()
            .iter()
            .map(|(_, it)| it.clone())
            .collect();
        let mut wanted: BTreeMap<WorkId, snapshot::Demand> = BTreeMap::new();
        let mut with_request: BTreeSet<WorkId> = BTreeSet::new();
        let mut suspended: BTreeSet<WorkId> = BTreeSet::new();
        for request in &requests {
            with_request.insert(request.work.clone());
            if self.is_superseded(request) {
                continue;
            }
            let (Some(demand), Ok(id)) = (
                self.followed.demand().get(request.work.as_str()),
                WorkId::new(request.id.clone()),
            ) else {
                continue;
            };
            // The list of nodes may have changed since the request. A node that is not on it is not
            // granted.
            if is_host_refused(request, demand) {
                continue;
            }
            let predecessor_holds_space = request
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id));
            if predecessor_holds_space || self.allocation_for_request(request).is_none() {
                wanted.insert(id, self.request_demand(request, demand));
            }
            if !predecessor_holds_space && self.allocation_for_request(request).is_none() {
                suspended.insert(request.work.clone());
            }
        }
        self.replace_requests(wanted);
        self.successor_requests.suspended = suspended;
        if !std::mem::replace(&mut self.successor_requests.resumed, true) {
            // Requested allocations of an earlier term may belong to works that are listed as
            // failed.
            let granted = self.allocations.values().filter(|record| {
                let entry = &record.entry;
                entry.request.is_some() && entry.holds() && entry.vacate.is_none()
            });
            with_request.extend(granted.map(|record| record.entry.work.clone()));
        }
        let before = std::mem::replace(
            &mut self.successor_requests.with_request,
            with_request.clone(),
        );
        let revived = self.successor_requests.revived.clone();
        let all: BTreeSet<&WorkId> = before.iter().chain(&with_request).chain(&revived).collect();
        for work in all {
            self.refresh_work(work);
        }
    }

    /// Replaces the demand of requests in the snapshot.
    fn replace_requests(&mut self, wanted: BTreeMap<WorkId, snapshot::Demand>) {
        let known: Vec<WorkId> = self
            .successor_requests
            .in_snapshot
            .iter()
            .cloned()
            .collect();
        for id in known.iter().filter(|id| !wanted.contains_key(*id)) {
            self.snapshot.remove_demand(id);
            self.verdicts.cancel(id);
            self.successor_requests.waits.remove(id);
        }
        self.successor_requests.in_snapshot = wanted.keys().cloned().collect();
        for (id, demand) in wanted {
            if self.snapshot.demand.get(&id) != Some(&demand) {
                self.snapshot.set_demand(id, demand);
            }
        }
    }

    /// Updates the allocations and the demand of one work in the snapshot.
    fn refresh_work(&mut self, work: &WorkId) {
        let ids = self.allocations.ids_of_work(work);
        let mut is_granted = false;
        for id in ids {
            let Some(record) = self.allocations.get(&id).filter(|it| it.entry.holds()) else {
                continue;
            };
            is_granted |= record.entry.request.is_some() && record.entry.vacate.is_none();
            let allocation = self.planner_allocation(record);
            if self.snapshot.allocations.get(&id) != Some(&allocation) {
                self.snapshot.set_allocation(&id, Some(allocation));
            }
        }
        let demand = self.followed.demand().get(work.as_str());
        let processor = demand.and_then(|demand| demand.processor.as_ref());
        if is_granted && processor.is_some_and(|it| it.failed) {
            self.successor_requests.revived.insert(work.clone());
        } else {
            self.successor_requests.revived.remove(work);
        }
        self.refresh_demand(work.as_str());
    }

    /// Returns the demand of a request. `entry` is the demand of the work.
    fn request_demand(&self, request: &RequestEntry, entry: &DemandEntry) -> snapshot::Demand {
        let mut avoids = self.followed.avoided_nodes(&request.work, &entry.user);
        avoids.extend(request.exclude.iter().cloned());
        avoids.extend(self.nodes_of_partners(entry));
        let mut demand = translate::demand(entry, avoids);
        demand.max_processes = 1;
        demand.remaining_tasks = 1;
        // The node that the work is bound to does not count for a request.
        demand.node_list = match &request.host {
            Some(host) => BTreeSet::from([host.clone()]),
            None => entry.machines.iter().cloned().collect(),
        };
        // The request is in the anti-affinity group of the work, so that its partners avoid the
        // node of the request. The predecessor is in this group too. The request leaves the group
        // if the predecessor would exclude it from the requested node, or from the domain of a
        // label.
        let predecessor = request.predecessor.as_ref();
        let predecessor = predecessor.and_then(|id| self.allocations.get(id));
        let would_exclude = |record: &AllocationRecord| {
            let apart = entry.apart.as_ref();
            request.host.as_ref() == Some(&record.entry.node)
                || apart.is_some_and(|apart| apart.by_label.is_some())
        };
        if predecessor.is_some_and(would_exclude) {
            demand.anti_affinity = None;
        }
        demand
    }

    /// Returns the nodes with other processes of the anti-affinity group, and the nodes in the same
    /// domains. A domain is all nodes with the same value of a label.
    fn nodes_of_partners(&self, entry: &DemandEntry) -> BTreeSet<NodeName> {
        let Some(apart) = &entry.apart else {
            return BTreeSet::new();
        };
        let mut hosts = BTreeSet::new();
        for (_, other) in self.followed.demand().iter() {
            let same_group = other
                .apart
                .as_ref()
                .is_some_and(|it| it.group == apart.group);
            if !same_group || other.work == entry.work {
                continue;
            }
            let records = self.allocations.of_work(&other.work);
            let holding = records.filter(|record| record.entry.holds());
            hosts.extend(holding.map(|record| record.entry.node.clone()));
        }
        let Some(label) = &apart.by_label else {
            return hosts;
        };
        let domain = |node: &str| self.followed.nodes().get(node)?.labels.get(label).cloned();
        let taken_domains: BTreeSet<String> =
            hosts.iter().filter_map(|it| domain(it.as_str())).collect();
        let same_domain = self.followed.nodes().iter().filter(|(_, node)| {
            let own = node.labels.get(label);
            own.is_some_and(|own| taken_domains.contains(own))
        });
        hosts.extend(same_domain.map(|(_, node)| node.node.clone()));
        hosts
    }
}
