//! Second places: container-manager requests a place for a process of a service before the first
//! one is given up.
//!
//! To the planner a request is a piece of work of its own, so the usual rules apply to its place.
//! Its grant becomes an allocation of the process, and names its predecessor. While the predecessor
//! holds its place, the planner counts the successor under the request. Later it counts the
//! successor under the process. The process therefore never has one place too many or too few.
//! While a request replaces an ended process, the process itself has no demand. It has demand again
//! as soon as the request is withdrawn.

mod published;

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
const PREFIX: &str = "req_";

#[derive(Debug, Default)]
pub(crate) struct SecondPlaces {
    /// Requests that are in the snapshot.
    requested: BTreeSet<WorkId>,
    /// Processes that had a request at the last refresh.
    touched: BTreeSet<WorkId>,
    /// Ended processes that a request replaces.
    held_back: BTreeSet<WorkId>,
    /// Failed processes that got a place and that job-converter has not processed yet.
    revived: BTreeSet<WorkId>,
    /// Waiting requests, each with reason and text. A new text with the same reason is ignored.
    waits: BTreeMap<WorkId, (Reason, String)>,
    waits_changed: bool,
    /// Tasks of applications that are to take the places of placeholders.
    pub replacing: BTreeSet<WorkId>,
    /// True once the grants of earlier terms to failed processes have been processed.
    resumed: bool,
    /// Published entries.
    processors: BTreeMap<String, ProcessorEntry>,
    closed: BTreeMap<String, ClosedEntry>,
    /// Nodes of containers that have no allocation and have not ended.
    orphans: BTreeMap<AllocationId, NodeName>,
}

impl SecondPlaces {
    pub async fn load(tx: &mut PgConnection) -> Result<Self, sqlx::Error> {
        Ok(Self {
            processors: store::entries::load_by_key(&mut *tx, PROCESSORS).await?,
            closed: store::entries::load_by_key(tx, CLOSED).await?,
            ..Self::default()
        })
    }

    /// Returns true while the process itself has no demand.
    pub fn suspends_demand_of(&self, work: &WorkId) -> bool {
        self.held_back.contains(work)
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
    pub fn revives(&self, work: &WorkId) -> bool {
        self.revived.contains(work)
    }
}

/// Returns true if the requested node is not on the list of the work and the request does not force
/// it.
fn is_left_out(request: &RequestEntry, demand: &DemandEntry) -> bool {
    let listed = |host: &NodeName| demand.machines.is_empty() || demand.machines.contains(host);
    !request.force && request.host.as_ref().is_some_and(|host| !listed(host))
}

/// Returns true if this work is a request.
pub fn owns(work: &WorkId) -> bool {
    work.as_str().starts_with(PREFIX)
}

impl Ledger {
    pub(crate) fn absorb_requests(
        &mut self,
        update: Update<RequestEntry>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let changes = self.followed.absorb_requests(update, moment.monotonic_ms);
        batch.followed(REQUESTS, self.followed.requests().cursor());
        self.timing.request_round_if(!changes.is_empty());
        for change in changes {
            if let Change::Removed { before, .. } = change {
                self.request_withdrawn(&before, moment, batch);
            }
        }
    }

    /// Vacates the granted place of a withdrawn request, unless the process has no other place.
    fn request_withdrawn(
        &mut self,
        request: &RequestEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(held) = self.allocation_for_request(request) else {
            return;
        };
        if self.predecessor_holds(held) {
            let order = LeaveOrder {
                allocation: held.entry.id.clone(),
                reason: VacateReason::Moved,
                detail: "the place is no longer needed: its predecessor stays".to_owned(),
                purge: false,
            };
            self.vacate(order, moment, batch);
        }
    }

    fn allocation_for_request(&self, request: &RequestEntry) -> Option<&AllocationRecord> {
        let mut held = self.allocations.of_work(&request.work);
        held.find(|held| {
            let entry = &held.entry;
            let answers = entry.request.as_deref() == Some(request.id.as_str());
            answers && entry.holds() && entry.vacate.is_none()
        })
    }

    /// Returns true if the predecessor was ordered to leave by other means and already has its
    /// successor. A second successor would be too many.
    fn is_superseded(&self, request: &RequestEntry) -> bool {
        let mut held = self.allocations.of_work(&request.work);
        request.predecessor.is_some()
            && held.any(|held| {
                let entry = &held.entry;
                let takes_over = entry.predecessor == request.predecessor;
                takes_over && entry.request.is_none() && entry.holds() && entry.vacate.is_none()
            })
    }

    /// Returns true while the predecessor holds its own place.
    fn predecessor_holds(&self, held: &AllocationRecord) -> bool {
        let entry = &held.entry;
        entry.request.is_some()
            && entry
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id))
    }

    /// Converts an allocation to the input of the planner. It counts under the request while the
    /// predecessor holds.
    pub(crate) fn planner_allocation(&self, held: &AllocationRecord) -> snapshot::Allocation {
        let mut seen = translate::allocation(held);
        if self.predecessor_holds(held)
            && let Some(request) = held.entry.request.as_deref()
            && let Ok(work) = WorkId::new(request)
        {
            seen.work = work;
        }
        seen
    }

    /// Returns the request that a grant answers.
    pub(crate) fn request_behind(&self, work: &WorkId) -> Option<RequestEntry> {
        owns(work).then(|| self.followed.requests().get(work.as_str()).cloned())?
    }

    /// Marks an end as part of a move while a place is requested, so that the end does not count as
    /// a failure.
    pub(crate) fn mark_moved(&self, held: &mut AllocationRecord, moment: &Moment) {
        let id = &held.entry.id;
        let moved = self
            .followed
            .requests()
            .iter()
            .find(|(_, request)| request.predecessor.as_ref() == Some(id));
        if let Some((request, _)) = moved {
            held.entry.vacate.get_or_insert(Vacate {
                reason: VacateReason::Moved,
                detail: format!("it is moved ({request})"),
                since: moment.now,
                purge: false,
            });
        }
    }

    /// Updates requests, the demand of their processes and the granted places in the snapshot.
    pub(crate) fn refresh_requests(&mut self) {
        let open: Vec<RequestEntry> = self
            .followed
            .requests()
            .iter()
            .map(|(_, it)| it.clone())
            .collect();
        let mut wanted: BTreeMap<WorkId, snapshot::Demand> = BTreeMap::new();
        let mut touched: BTreeSet<WorkId> = BTreeSet::new();
        let mut held_back: BTreeSet<WorkId> = BTreeSet::new();
        for request in &open {
            touched.insert(request.work.clone());
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
            if is_left_out(request, demand) {
                continue;
            }
            let predecessor_holds_place = request
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id));
            if predecessor_holds_place || self.allocation_for_request(request).is_none() {
                wanted.insert(id, self.request_demand(request, demand));
            }
            if !predecessor_holds_place && self.allocation_for_request(request).is_none() {
                held_back.insert(request.work.clone());
            }
        }
        self.replace_requests(wanted);
        self.second_places.held_back = held_back;
        if !std::mem::replace(&mut self.second_places.resumed, true) {
            // A place that was granted to a failed process survives a restart.
            let given = self.allocations.values().filter(|held| {
                let entry = &held.entry;
                entry.request.is_some() && entry.holds() && entry.vacate.is_none()
            });
            touched.extend(given.map(|held| held.entry.work.clone()));
        }
        let before = std::mem::replace(&mut self.second_places.touched, touched.clone());
        let revived = self.second_places.revived.clone();
        let all: BTreeSet<&WorkId> = before.iter().chain(&touched).chain(&revived).collect();
        for work in all {
            self.refresh_process(work);
        }
    }

    /// Replaces the demand of requests in the snapshot.
    fn replace_requests(&mut self, wanted: BTreeMap<WorkId, snapshot::Demand>) {
        let over: Vec<WorkId> = self.second_places.requested.iter().cloned().collect();
        for id in over.iter().filter(|id| !wanted.contains_key(*id)) {
            self.snapshot.remove_demand(id);
            self.verdicts.cancel(id);
            self.second_places.waits.remove(id);
        }
        self.second_places.requested = wanted.keys().cloned().collect();
        for (id, demand) in wanted {
            if self.snapshot.demand.get(&id) != Some(&demand) {
                self.snapshot.set_demand(id, demand);
            }
        }
    }

    fn refresh_process(&mut self, work: &WorkId) {
        let ids = self.allocations.ids_of_work(work);
        let mut answered = false;
        for id in ids {
            let Some(held) = self.allocations.get(&id).filter(|it| it.entry.holds()) else {
                continue;
            };
            answered |= held.entry.request.is_some() && held.entry.vacate.is_none();
            let seen = self.planner_allocation(held);
            if self.snapshot.allocations.get(&id) != Some(&seen) {
                self.snapshot.set_allocation(&id, Some(seen));
            }
        }
        let demand = self.followed.demand().get(work.as_str());
        let processor = demand.and_then(|demand| demand.processor.as_ref());
        if answered && processor.is_some_and(|it| it.failed) {
            self.second_places.revived.insert(work.clone());
        } else {
            self.second_places.revived.remove(work);
        }
        self.refresh_demand(work.as_str());
    }

    fn request_demand(&self, request: &RequestEntry, entry: &DemandEntry) -> snapshot::Demand {
        let mut avoids = self.followed.avoids(&request.work);
        avoids.extend(request.exclude.iter().cloned());
        avoids.extend(self.hosts_of_partners(entry));
        let mut demand = translate::demand(entry, avoids);
        demand.max_processes = 1;
        demand.remaining_tasks = 1;
        // The preferred node of the process does not matter here.
        demand.machines = match &request.host {
            Some(host) => BTreeSet::from([host.clone()]),
            None => entry.machines.iter().cloned().collect(),
        };
        // The request joins the group of its partners, so that they avoid its node too. Its
        // predecessor is in that group, but must not exclude the request from its node or domain.
        let own = request.predecessor.as_ref();
        let own = own.and_then(|id| self.allocations.get(id));
        let is_near = |held: &AllocationRecord| {
            let apart = entry.apart.as_ref();
            request.host.as_ref() == Some(&held.entry.node)
                || apart.is_some_and(|apart| apart.by_label.is_some())
        };
        if own.is_some_and(is_near) {
            demand.apart = None;
        }
        demand
    }

    /// Returns nodes with processes that this one must avoid, and nodes in the same domains.
    fn hosts_of_partners(&self, entry: &DemandEntry) -> BTreeSet<NodeName> {
        let Some(apart) = &entry.apart else {
            return BTreeSet::new();
        };
        let mut hosts = BTreeSet::new();
        for (_, other) in self.followed.demand().iter() {
            let same = other
                .apart
                .as_ref()
                .is_some_and(|it| it.group == apart.group);
            if !same || other.work == entry.work {
                continue;
            }
            let held = self.allocations.of_work(&other.work);
            let held = held.filter(|held| held.entry.holds());
            hosts.extend(held.map(|held| held.entry.node.clone()));
        }
        let Some(label) = &apart.by_label else {
            return hosts;
        };
        let domain = |node: &str| self.followed.nodes().get(node)?.labels.get(label).cloned();
        let taken: BTreeSet<String> = hosts.iter().filter_map(|it| domain(it.as_str())).collect();
        let alike = self.followed.nodes().iter().filter(|(_, node)| {
            let own = node.labels.get(label);
            own.is_some_and(|own| taken.contains(own))
        });
        hosts.extend(alike.map(|(_, node)| node.node.clone()));
        hosts
    }
}
