//! Second places for processes of services, asked for by container-manager before the first is
//! given up (container placement, 3.3), and what container-manager has to know for it.
//!
//! A request is a piece of work of its own to the planner, so that a place is found, counted and
//! kept by the same rules as any other; what is granted for it is an allocation of the process
//! itself, named as the successor of another. To the planner it belongs to the request while that
//! other one holds, and to the process from then on. So the process never has one too many, and
//! never none that it is due: while a request stands in for a process that has ended, the process
//! asks for nothing itself, and as soon as the request is withdrawn it does again (P1).

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

use crate::absorb::translate;
use crate::model::{AllocationRecord, LeaveOrder};
use crate::store::{self, Rows};
use crate::working_set::Ledger;

/// How ids of requests begin.
const PREFIX: &str = "req_";

#[derive(Debug, Default)]
pub(crate) struct SecondPlaces {
    /// Works in the snapshot that are requests.
    requested: BTreeSet<WorkId>,
    /// Processes that a request was open for when this was last looked at.
    touched: BTreeSet<WorkId>,
    /// Processes that have ended, and a request stands in for them.
    held_back: BTreeSet<WorkId>,
    /// Processes that had failed and were given a place: job-converter has not heard of it yet.
    revived: BTreeSet<WorkId>,
    /// Requests that wait, and why; said again when the reason is another, not with each number.
    waits: BTreeMap<WorkId, (Reason, String)>,
    waits_changed: bool,
    /// Tasks of applications that are to take the places of placeholders.
    pub replacing: BTreeSet<WorkId>,
    /// What earlier terms gave to processes that had failed was looked at.
    resumed: bool,
    /// As published.
    processors: BTreeMap<String, ProcessorEntry>,
    closed: BTreeMap<String, ClosedEntry>,
    /// Containers that have not ended and whose allocation is gone, with their nodes.
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

    /// The process asks for nothing itself for now.
    pub fn suspends_demand_of(&self, work: &WorkId) -> bool {
        self.held_back.contains(work)
    }

    /// Takes note of what the planner says of a request.
    pub fn record_verdict(&mut self, request: WorkId, verdict: &Verdict) {
        let known = self.waits.get(&request).map(|(reason, _)| *reason);
        let now = Some(verdict.reason).filter(|reason| *reason != Reason::Satisfied);
        if known == now {
            return;
        }
        self.waits_changed = true;
        match now {
            Some(reason) => {
                let wait = (reason, verdict.detail.to_string());
                self.waits.insert(request, wait);
            }
            None => drop(self.waits.remove(&request)),
        }
    }

    /// The process is wanted, whatever its demand says.
    pub fn revives(&self, work: &WorkId) -> bool {
        self.revived.contains(work)
    }
}

/// A host narrows the list of machines, and replaces it by force alone.
fn is_left_out(request: &RequestEntry, demand: &DemandEntry) -> bool {
    let listed = |host: &NodeName| demand.machines.is_empty() || demand.machines.contains(host);
    !request.force && request.host.as_ref().is_some_and(|host| !listed(host))
}

/// The work is a request, and nobody's demand.
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

    /// What was granted for it is given back, unless the process has nothing else any more.
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
                detail: "the place is not wanted any more: its predecessor stays".to_owned(),
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

    /// What it was to replace was told to leave beside it, and its next place is there: a second
    /// one would be one too many.
    fn is_superseded(&self, request: &RequestEntry) -> bool {
        let mut held = self.allocations.of_work(&request.work);
        request.predecessor.is_some()
            && held.any(|held| {
                let entry = &held.entry;
                let takes_over = entry.predecessor == request.predecessor;
                takes_over && entry.request.is_none() && entry.holds() && entry.vacate.is_none()
            })
    }

    /// Its predecessor holds its own place still.
    fn predecessor_holds(&self, held: &AllocationRecord) -> bool {
        let entry = &held.entry;
        entry.request.is_some()
            && entry
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id))
    }

    /// An allocation as the planner sees it.
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

    /// The request, and the demand of the process it is for, that a grant of the planner answers.
    pub(crate) fn request_behind(&self, work: &WorkId) -> Option<RequestEntry> {
        owns(work).then(|| self.followed.requests().get(work.as_str()).cloned())?
    }

    /// An end while a place is asked for in its stead is part of a move, however it came about: it
    /// is nobody's failure (9).
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

    /// Brings requests, the demand of what they are for, and what was granted for them in the
    /// snapshot up to what is known of them.
    pub(crate) fn refresh_requests(&mut self) {
        let open: Vec<RequestEntry> = self
            .followed
            .requests()
            .iter()
            .map(|(_, it)| it.clone())
            .collect();
        let mut asked: BTreeMap<WorkId, snapshot::Demand> = BTreeMap::new();
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
            // Its list was changed since the order was taken: what it leaves out is not granted.
            if is_left_out(request, demand) {
                continue;
            }
            let stands = request
                .predecessor
                .as_ref()
                .is_some_and(|id| self.allocations.holds(id));
            if stands || self.allocation_for_request(request).is_none() {
                asked.insert(id, self.request_demand(request, demand));
            }
            if !stands && self.allocation_for_request(request).is_none() {
                held_back.insert(request.work.clone());
            }
        }
        let over: Vec<WorkId> = self.second_places.requested.iter().cloned().collect();
        for id in over.iter().filter(|id| !asked.contains_key(*id)) {
            self.snapshot.remove_demand(id);
            self.verdicts.cancel(id);
            self.second_places.waits.remove(id);
        }
        self.second_places.requested = asked.keys().cloned().collect();
        for (id, demand) in asked {
            if self.snapshot.demand.get(&id) != Some(&demand) {
                self.snapshot.set_demand(id, demand);
            }
        }
        self.second_places.held_back = held_back;
        if !std::mem::replace(&mut self.second_places.resumed, true) {
            // What was given to a process that had failed keeps its place through a restart.
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
        // Where it would be started on any day does not matter now.
        demand.machines = match &request.host {
            Some(host) => BTreeSet::from([host.clone()]),
            None => entry.machines.iter().cloned().collect(),
        };
        // Its partners' places are avoided already. So that partners avoid this one too, it is of
        // their group; but where its own predecessor stands, it must not be kept apart from that.
        let own = request.predecessor.as_ref();
        let own = own.and_then(|id| self.allocations.get(id));
        let beside = |held: &AllocationRecord| {
            let apart = entry.apart.as_ref();
            request.host.as_ref() == Some(&held.entry.node)
                || apart.is_some_and(|apart| apart.by_label.is_some())
        };
        if own.is_some_and(beside) {
            demand.apart = None;
        }
        demand
    }

    /// Nodes that others it must keep apart from hold anything on, and those like them (11.1).
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
