//! Requests of container-manager for the successor of a process of a service, before the process
//! itself leaves.
//!
//! To the planner a request is a piece of work of its own, so the usual rules apply to it. Its
//! grant becomes an allocation of the process, and names its predecessor. While the predecessor
//! holds its space, the planner counts the successor as part of the request. Later it counts the
//! successor as part of the process. The process therefore never has one allocation too many or too
//! few. While a request replaces an ended process, the process itself has no demand. It has demand
//! again as soon as the request is withdrawn.

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
    /// Requests that are in the snapshot.
    in_snapshot: BTreeSet<WorkId>,
    /// Processes that had a request at the last refresh.
    with_request: BTreeSet<WorkId>,
    /// Ended processes that a request replaces.
    suspended: BTreeSet<WorkId>,
    /// Failed processes that got an allocation and that job-converter has not processed yet.
    revived: BTreeSet<WorkId>,
    /// Waiting requests, each with reason and text. A new text with the same reason is ignored.
    waits: BTreeMap<WorkId, (Reason, String)>,
    waits_changed: bool,
    /// Tasks of applications that are to replace placeholders.
    pub replacement_tasks: BTreeSet<WorkId>,
    /// True once the grants of earlier terms to failed processes have been processed.
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
            processors: store::entries::load_by_key(&mut *tx, PROCESSORS).await?,
            closed: store::entries::load_by_key(tx, CLOSED).await?,
            ..Self::default()
        })
    }

    /// Returns true while the process itself has no demand.
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

    /// Returns true if the process is wanted although its demand has failed.
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

/// Returns true if this work is a request.
pub fn is_request(work: &WorkId) -> bool {
    work.as_str().starts_with(ID_PREFIX)
}

impl Ledger {
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

    /// Vacates the allocation of a withdrawn request, unless the process has no other allocation.
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

    fn allocation_for_request(&self, request: &RequestEntry) -> Option<&AllocationRecord> {
        let mut records = self.allocations.of_work(&request.work);
        records.find(|record| {
            let entry = &record.entry;
            let is_granted = entry.request.as_deref() == Some(request.id.as_str());
            is_granted && entry.holds() && entry.vacate.is_none()
        })
    }

    /// Returns true if the predecessor was ordered to leave by other means and already has its
    /// successor. A second successor would be too many.
    fn is_superseded(&self, request: &RequestEntry) -> bool {
        let mut records = self.allocations.of_work(&request.work);
        request.predecessor.is_some()
            && records.any(|record| {
                let entry = &record.entry;
                let is_successor = entry.predecessor == request.predecessor;
                is_successor && entry.request.is_none() && entry.holds() && entry.vacate.is_none()
            })
    }

    /// Returns true while the predecessor holds its space.
    fn predecessor_holds(&self, record: &AllocationRecord) -> bool {
        let entry = &record.entry;
        entry.request.is_some()
            && entry
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id))
    }

    /// Converts an allocation to the input of the planner. It counts as part of the request
    /// while the predecessor holds its space.
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

    /// Updates requests, the demand of their processes and the granted allocations in the snapshot.
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
            // An allocation that was granted to a failed process survives a restart.
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
            self.refresh_process(work);
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

    fn refresh_process(&mut self, work: &WorkId) {
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

    fn request_demand(&self, request: &RequestEntry, entry: &DemandEntry) -> snapshot::Demand {
        let mut avoids = self.followed.avoided_nodes(&request.work);
        avoids.extend(request.exclude.iter().cloned());
        avoids.extend(self.nodes_of_partners(entry));
        let mut demand = translate::demand(entry, avoids);
        demand.max_processes = 1;
        demand.remaining_tasks = 1;
        // The preferred node of the process does not matter here.
        demand.node_list = match &request.host {
            Some(host) => BTreeSet::from([host.clone()]),
            None => entry.machines.iter().cloned().collect(),
        };
        // The request joins the group of its partners, so that they avoid its node too. Its
        // predecessor is in that group, but must not exclude the request from its node or domain.
        let predecessor = request.predecessor.as_ref();
        let predecessor = predecessor.and_then(|id| self.allocations.get(id));
        let is_near = |record: &AllocationRecord| {
            let apart = entry.apart.as_ref();
            request.host.as_ref() == Some(&record.entry.node)
                || apart.is_some_and(|apart| apart.by_label.is_some())
        };
        if predecessor.is_some_and(is_near) {
            demand.anti_affinity = None;
        }
        demand
    }

    /// Returns nodes with processes that this one must avoid, and nodes in the same domains.
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
