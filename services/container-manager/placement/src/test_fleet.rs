//! A pretend fleet for tests: hosts with room, a scheduler that serves requests and everyday
//! demand, and nodes that do what they are told, each step when the test says so.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

use crate::environment::{Stand, StandState, World, conflict};
use crate::model::{Order, Refusal, Rules, Submitted};
use crate::placement::Placement;
use crate::placements::Machine;
use crate::status::{Destination, Phase, Queued, Reason, Status};

pub const RULES: Rules = Rules {
    request_timeout_ms: 5_000,
    stop_timeout_ms: 60_000,
};
pub const DEPLOYMENT: &str = "dep_1";

#[derive(Debug, Clone)]
pub struct Place {
    pub work: WorkId,
    pub host: NodeName,
    pub state: StandState,
    pub request: Option<String>,
    pub ran: bool,
    pub ended: bool,
}

#[derive(Default)]
pub struct Fleet {
    pub now_ms: i64,
    pub epoch: u64,
    pub dead: BTreeSet<String>,
    pub processors: BTreeMap<WorkId, Processor>,
    pub room: BTreeMap<NodeName, usize>,
    pub places: BTreeMap<AllocationId, Place>,
    pub closed: BTreeSet<NodeName>,
    /// What the owner has listed, for all processors.
    pub machines: Vec<NodeName>,
    pub last: BTreeMap<WorkId, NodeName>,
    pub stops: Vec<AllocationId>,
    /// Why requests wait, as the scheduler says.
    pub why: Option<String>,
    /// A healthy process was told to stop while nothing was held for it.
    pub bare_stops: usize,
}

pub struct Trial {
    pub machine: Machine,
    pub fleet: Fleet,
    /// Orders are given with force.
    pub force: bool,
    next: usize,
}

pub fn work(id: &str) -> WorkId {
    WorkId::new(format!("svc_1.{id}")).unwrap()
}

pub fn host(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn to(word: &str) -> Destination {
    Destination::try_from(word.to_owned()).unwrap()
}

impl Fleet {
    fn of(&self, work: &WorkId) -> impl Iterator<Item = (&AllocationId, &Place)> {
        let all = self.places.iter();
        all.filter(move |(_, it)| it.work == *work && !it.ended)
    }

    fn used(&self, host: &NodeName) -> usize {
        let all = self.places.values();
        all.filter(|it| it.host == *host && !it.ended).count()
    }

    pub fn fits(&self, host: &NodeName) -> bool {
        let room = self.room.get(host).copied().unwrap_or(0);
        !self.closed.contains(host) && self.used(host) < room
    }
}

impl World for Fleet {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms)
    }
    fn epoch(&self) -> u64 {
        self.epoch
    }
    fn is_live(&self, deployment: &str) -> bool {
        deployment == DEPLOYMENT && !self.dead.contains(deployment)
    }
    fn processor(&self, work: &WorkId) -> Option<(Processor, UserName)> {
        let processor = self.processors.get(work)?;
        Some((processor.clone(), "ann".parse().unwrap()))
    }
    fn processors(&self, _: &str) -> Vec<(WorkId, Role)> {
        let all = self.processors.iter();
        all.map(|(work, it)| (work.clone(), it.role.clone()))
            .collect()
    }
    fn is_pool_worker(&self, work: &WorkId) -> bool {
        work.as_str().starts_with("wp_")
    }
    fn stands(&self, work: &WorkId) -> Vec<Stand> {
        let stand = |(id, it): (&AllocationId, &Place)| Stand {
            allocation: id.clone(),
            host: it.host.clone(),
            state: it.state,
            reason: None,
        };
        self.of(work).map(stand).collect()
    }
    fn granted(&self, work: &WorkId, request: &str) -> Option<Stand> {
        let mut all = self.of(work);
        let (id, it) = all.find(|(_, it)| it.request.as_deref() == Some(request))?;
        Some(Stand {
            allocation: id.clone(),
            host: it.host.clone(),
            state: it.state,
            reason: None,
        })
    }
    fn waits(&self, _: &str) -> Option<String> {
        self.why.clone()
    }
    fn has_run(&self, allocation: &AllocationId) -> bool {
        self.places.get(allocation).is_some_and(|it| it.ran)
    }
    fn last_host(&self, work: &WorkId) -> Option<NodeName> {
        self.last.get(work).cloned()
    }
    fn machines(&self, _: &WorkId) -> Vec<NodeName> {
        self.machines.clone()
    }
    fn closed(&self, host: &NodeName, _: &WorkId) -> Option<String> {
        let closed = self.closed.contains(host);
        closed.then(|| "it is blocked".to_owned())
    }
    fn stop(&mut self, allocation: &AllocationId) {
        let work = self.places[allocation].work.clone();
        let held = |(_, it): (&AllocationId, &Place)| it.state == StandState::Held;
        let bare = !self.of(&work).any(held);
        self.bare_stops += usize::from(bare);
        self.stops.push(allocation.clone());
        self.places.get_mut(allocation).unwrap().state = StandState::Stopping;
    }
    fn launch(&mut self, allocation: &AllocationId) {
        let place = self.places.get_mut(allocation).unwrap();
        assert_eq!(place.state, StandState::Held);
        place.state = StandState::Pending;
    }
    fn release(&mut self, allocation: &AllocationId) {
        let place = self.places.get_mut(allocation).unwrap();
        assert_eq!(place.state, StandState::Held);
        place.ended = true;
    }
}

impl Trial {
    pub fn new() -> Self {
        Self {
            machine: Machine::default(),
            fleet: Fleet::default(),
            force: false,
            next: 0,
        }
    }

    /// Four roomy hosts, with affinity: 0 on `a`, its standby 0-0 on `b`, 1 on `c`; `d` is free.
    pub fn usual() -> Self {
        let mut trial = Self::new();
        for name in ["a", "b", "c", "d"] {
            trial.fleet.room.insert(host(name), 4);
        }
        trial.active("0");
        trial.standby("0", 0);
        trial.active("1");
        trial.runs("0", "a");
        trial.runs("0-0", "b");
        trial.runs("1", "c");
        trial
    }

    pub fn active(&mut self, id: &str) {
        self.processor(id, Role::Active);
    }

    pub fn standby(&mut self, of: &str, replica: u32) {
        let role = Role::Standby {
            of: work(of),
            replica,
        };
        self.processor(&format!("{of}-{replica}"), role);
    }

    fn processor(&mut self, id: &str, role: Role) {
        let processor = Processor {
            deployment: DEPLOYMENT.to_owned(),
            role,
            host_affinity: true,
            failed: false,
        };
        self.fleet.processors.insert(work(id), processor);
    }

    pub fn affinity(&mut self, on: bool) {
        for processor in self.fleet.processors.values_mut() {
            processor.host_affinity = on;
        }
    }

    pub fn failed(&mut self, id: &str, failed: bool) {
        self.fleet.processors.get_mut(&work(id)).unwrap().failed = failed;
    }

    pub fn runs(&mut self, id: &str, on: &str) -> AllocationId {
        let place = self.place(&work(id), &host(on), None);
        self.comes_up(&place);
        place
    }

    fn place(&mut self, work: &WorkId, on: &NodeName, request: Option<String>) -> AllocationId {
        self.next += 1;
        let id = AllocationId::new(format!("alc_{}", self.next)).unwrap();
        let state = match request {
            Some(_) => StandState::Held,
            None => StandState::Pending,
        };
        let place = Place {
            work: work.clone(),
            host: on.clone(),
            state,
            request,
            ran: false,
            ended: false,
        };
        self.fleet.places.insert(id.clone(), place);
        id
    }

    pub fn comes_up(&mut self, id: &AllocationId) {
        let place = self.fleet.places.get_mut(id).unwrap();
        assert!(!place.ended && place.state == StandState::Pending);
        (place.state, place.ran) = (StandState::Running, true);
        let (work, host) = (place.work.clone(), place.host.clone());
        self.fleet.last.insert(work.clone(), host);
        self.fleet.processors.get_mut(&work).unwrap().failed = false;
    }

    pub fn ends(&mut self, id: &AllocationId) {
        self.fleet.places.get_mut(id).unwrap().ended = true;
    }

    pub fn order(&mut self, uuid: &str, id: &str, word: &str) {
        self.submit(uuid, id, word, None).unwrap();
        self.tick();
    }

    pub fn submit(
        &mut self,
        uuid: &str,
        id: &str,
        word: &str,
        expiry_ms: Option<u64>,
    ) -> Result<Submitted, Refusal> {
        let order = self.an_order(uuid, id, word, expiry_ms);
        self.machine.submit(order, &self.fleet)
    }

    pub fn an_order(&self, uuid: &str, id: &str, word: &str, expiry_ms: Option<u64>) -> Order {
        Order {
            uuid: uuid.to_owned(),
            deployment_id: DEPLOYMENT.to_owned(),
            processor_id: if id.contains('_') {
                WorkId::new(id).unwrap()
            } else {
                work(id)
            },
            destination_host: to(word),
            request_expiry_ms: expiry_ms,
            force: self.force,
            timestamp: self.fleet.now(),
            user: "ann".parse().unwrap(),
            requested_by: "ann".to_owned(),
            reject_if_busy: false,
        }
    }

    pub fn tick(&mut self) {
        self.machine.advance(&RULES, &mut self.fleet);
        self.take_back();
    }

    pub fn pass(&mut self, ms: i64) {
        self.fleet.now_ms += ms;
        self.tick();
    }

    /// A new manager on the same rows.
    pub fn restart(&mut self) {
        let rows: Vec<Placement> = self.machine.iter().cloned().collect();
        self.machine = Machine::loaded(rows);
        self.fleet.epoch += 1;
        self.machine.restarted(&mut self.fleet);
        self.tick();
    }

    /// The scheduler takes back what was granted for a request that is withdrawn; where nothing
    /// else is left of the process it starts there.
    fn take_back(&mut self) {
        let open: BTreeSet<String> = self.requests().into_keys().collect();
        let held = self.fleet.places.iter().filter(|(_, it)| {
            let wanted = it.request.as_ref().is_some_and(|id| open.contains(id));
            !it.ended && it.state == StandState::Held && !wanted
        });
        let held: Vec<(AllocationId, WorkId)> =
            held.map(|(id, it)| (id.clone(), it.work.clone())).collect();
        for (id, work) in held {
            let other = self.fleet.of(&work).any(|(other, _)| *other != id);
            let place = self.fleet.places.get_mut(&id).unwrap();
            if other {
                place.ended = true;
            } else {
                place.state = StandState::Pending;
            }
        }
    }

    /// Open requests by id: for which processor.
    pub fn requests(&self) -> BTreeMap<String, WorkId> {
        let open = self.machine.open().filter_map(Placement::request);
        open.map(|request| (request.id, request.work)).collect()
    }

    /// The scheduler grants what it can of what is asked for.
    pub fn serve(&mut self) -> Vec<AllocationId> {
        let open: Vec<_> = self.machine.open().filter_map(Placement::request).collect();
        let mut granted = Vec::new();
        for request in open {
            if self.fleet.granted(&request.work, &request.id).is_some() {
                continue;
            }
            let good = |host: &&NodeName| {
                let wanted = request.host.as_ref().is_none_or(|it| it == *host);
                wanted && !request.exclude.contains(host) && self.fleet.fits(host)
            };
            let found = self.fleet.room.keys().find(good).cloned();
            if let Some(host) = found {
                granted.push(self.place(&request.work, &host, Some(request.id)));
            }
        }
        granted
    }

    /// The one grant there is to make, on this host whatever was asked for.
    pub fn grant_on(&mut self, name: &str) -> AllocationId {
        let (id, work) = self.requests().into_iter().next().unwrap();
        let place = self.place(&work, &host(name), Some(id));
        self.tick();
        place
    }

    /// Everyday demand: a processor of which nothing is up, and no request stands in for, is
    /// started where it was, or anywhere.
    pub fn everyday(&mut self) {
        for work in self.asking() {
            let open = |host: &NodeName, fleet: &Fleet| {
                fleet.fits(host) && conflict(fleet, &work, host).is_none()
            };
            let last = self.fleet.last.get(&work).cloned();
            let last = last
                .filter(|it| self.fleet.processors[&work].host_affinity && open(it, &self.fleet));
            let any = || {
                self.fleet
                    .room
                    .keys()
                    .find(|it| open(it, &self.fleet))
                    .cloned()
            };
            if let Some(host) = last.or_else(any) {
                self.place(&work, &host, None);
            }
        }
    }

    /// Processors whose everyday demand stands open (P1).
    pub fn asking(&self) -> Vec<WorkId> {
        let requests: BTreeSet<WorkId> = self.requests().into_values().collect();
        let asks = |(work, it): &(&WorkId, &Processor)| {
            !it.failed && self.fleet.of(work).next().is_none() && !requests.contains(*work)
        };
        let all = self.fleet.processors.iter().filter(asks);
        all.map(|(work, _)| work.clone()).collect()
    }

    /// Nodes do what they were told.
    pub fn nodes_act(&mut self) {
        let told: Vec<(AllocationId, StandState)> = self
            .fleet
            .places
            .iter()
            .filter(|(_, it)| !it.ended)
            .map(|(id, it)| (id.clone(), it.state))
            .collect();
        for (id, state) in told {
            match state {
                StandState::Pending => self.comes_up(&id),
                StandState::Stopping => self.ends(&id),
                StandState::Held | StandState::Running => {}
            }
        }
        self.tick();
    }

    /// Everybody does their part until nothing moves any more.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            self.serve();
            self.tick();
            self.nodes_act();
            self.everyday();
            self.nodes_act();
        }
    }

    pub fn notes(&mut self) -> Vec<crate::events::Note> {
        self.machine.take_notes()
    }

    pub fn at(&self, uuid: &str) -> &Placement {
        self.machine.get(uuid).unwrap()
    }

    pub fn status(&self, uuid: &str) -> (Status, Option<Reason>) {
        let it = self.at(uuid);
        (it.status_code, it.reason_code)
    }

    pub fn phase(&self, uuid: &str) -> Option<Phase> {
        self.at(uuid).phase
    }

    pub fn waits(&self, uuid: &str) -> Option<Queued> {
        self.at(uuid).queued_because
    }

    /// Where it runs.
    pub fn is_on(&self, id: &str) -> Option<String> {
        let work = work(id);
        let mut all = self.fleet.of(&work);
        let found = all.find(|(_, it)| it.state == StandState::Running)?;
        Some(found.1.host.to_string())
    }

    pub fn standing(&self, id: &str) -> AllocationId {
        let work = work(id);
        let mut all = self.fleet.of(&work);
        let found = all.find(|(_, it)| it.state != StandState::Held);
        found.unwrap().0.clone()
    }
}
