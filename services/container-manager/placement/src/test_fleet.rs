//! A simulated fleet for tests: hosts with capacity, a scheduler that serves requests and demand,
//! and nodes that obey. The test triggers each step.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

use crate::environment::{Environment, LiveContainer, LiveState, conflict};
use crate::model::{PlacementRequest, Refusal, Rules, Submitted};
use crate::placement::Placement;
use crate::placements::Placements;
use crate::status::{Destination, Phase, QueueReason, Reason, Status};

pub const RULES: Rules = Rules {
    request_timeout_ms: 5_000,
    stop_timeout_ms: 60_000,
};
pub const DEPLOYMENT: &str = "dep_1";

#[derive(Debug, Clone)]
pub struct TestContainer {
    pub work: WorkId,
    pub host: NodeName,
    pub state: LiveState,
    pub request: Option<String>,
    pub ran: bool,
    pub ended: bool,
}

#[derive(Default)]
pub struct TestEnvironment {
    pub now_ms: i64,
    pub epoch: u64,
    pub ended_deployments: BTreeSet<String>,
    pub processors: BTreeMap<WorkId, Processor>,
    pub capacity: BTreeMap<NodeName, usize>,
    pub containers: BTreeMap<AllocationId, TestContainer>,
    pub closed: BTreeSet<NodeName>,
    /// The `machines` of all processors; empty if any host will do.
    pub machines: Vec<NodeName>,
    pub last_hosts: BTreeMap<WorkId, NodeName>,
    pub stops: Vec<AllocationId>,
    /// Why requests wait, according to the scheduler.
    pub wait_reason: Option<String>,
    /// Stops of a healthy process that had no reserved successor.
    pub unreserved_stops: usize,
}

pub struct TestFleet {
    pub placements: Placements,
    pub env: TestEnvironment,
    /// Requests are submitted with `force`.
    pub force: bool,
    next: usize,
}

pub fn work(id: &str) -> WorkId {
    WorkId::new(format!("svc_1.{id}")).unwrap()
}

pub fn host(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn destination(text: &str) -> Destination {
    Destination::try_from(text.to_owned()).unwrap()
}

impl TestEnvironment {
    fn live(&self, work: &WorkId) -> impl Iterator<Item = (&AllocationId, &TestContainer)> {
        let all = self.containers.iter();
        all.filter(move |(_, it)| it.work == *work && !it.ended)
    }

    fn used(&self, host: &NodeName) -> usize {
        let all = self.containers.values();
        all.filter(|it| it.host == *host && !it.ended).count()
    }

    pub fn fits(&self, host: &NodeName) -> bool {
        let capacity = self.capacity.get(host).copied().unwrap_or(0);
        !self.closed.contains(host) && self.used(host) < capacity
    }
}

impl Environment for TestEnvironment {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms)
    }
    fn epoch(&self) -> u64 {
        self.epoch
    }
    fn is_live(&self, deployment: &str) -> bool {
        deployment == DEPLOYMENT && !self.ended_deployments.contains(deployment)
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
    fn live_containers(&self, work: &WorkId) -> Vec<LiveContainer> {
        let container = |(id, it): (&AllocationId, &TestContainer)| LiveContainer {
            allocation: id.clone(),
            host: it.host.clone(),
            state: it.state,
            reason: None,
        };
        self.live(work).map(container).collect()
    }
    fn granted(&self, work: &WorkId, request: &str) -> Option<LiveContainer> {
        let mut all = self.live(work);
        let (id, it) = all.find(|(_, it)| it.request.as_deref() == Some(request))?;
        Some(LiveContainer {
            allocation: id.clone(),
            host: it.host.clone(),
            state: it.state,
            reason: None,
        })
    }
    fn wait_reason(&self, _: &str) -> Option<String> {
        self.wait_reason.clone()
    }
    fn has_run(&self, allocation: &AllocationId) -> bool {
        self.containers.get(allocation).is_some_and(|it| it.ran)
    }
    fn last_host(&self, work: &WorkId) -> Option<NodeName> {
        self.last_hosts.get(work).cloned()
    }
    fn listed_hosts(&self, _: &WorkId) -> Vec<NodeName> {
        self.machines.clone()
    }
    fn closed_reason(&self, host: &NodeName, _: &WorkId) -> Option<String> {
        let closed = self.closed.contains(host);
        closed.then(|| "it is blocked".to_owned())
    }
    fn stop(&mut self, allocation: &AllocationId) {
        let work = self.containers[allocation].work.clone();
        let held = |(_, it): (&AllocationId, &TestContainer)| it.state == LiveState::Held;
        let bare = !self.live(&work).any(held);
        self.unreserved_stops += usize::from(bare);
        self.stops.push(allocation.clone());
        self.containers.get_mut(allocation).unwrap().state = LiveState::Stopping;
    }
    fn launch(&mut self, allocation: &AllocationId) {
        let container = self.containers.get_mut(allocation).unwrap();
        assert_eq!(container.state, LiveState::Held);
        container.state = LiveState::Pending;
    }
    fn release(&mut self, allocation: &AllocationId) {
        let container = self.containers.get_mut(allocation).unwrap();
        assert_eq!(container.state, LiveState::Held);
        container.ended = true;
    }
}

impl TestFleet {
    pub fn new() -> Self {
        Self {
            placements: Placements::default(),
            env: TestEnvironment::default(),
            force: false,
            next: 0,
        }
    }

    /// Four hosts with capacity 4 and affinity: 0 on `a`, its standby 0-0 on `b`, 1 on `c`; `d` is
    /// free.
    pub fn standard() -> Self {
        let mut fleet = Self::new();
        for name in ["a", "b", "c", "d"] {
            fleet.env.capacity.insert(host(name), 4);
        }
        fleet.active("0");
        fleet.standby("0", 0);
        fleet.active("1");
        fleet.runs("0", "a");
        fleet.runs("0-0", "b");
        fleet.runs("1", "c");
        fleet
    }

    pub fn active(&mut self, id: &str) {
        self.processor(id, Role::Active);
    }

    pub fn standby(&mut self, active: &str, replica: u32) {
        let role = Role::Standby {
            of: work(active),
            replica,
        };
        self.processor(&format!("{active}-{replica}"), role);
    }

    fn processor(&mut self, id: &str, role: Role) {
        let processor = Processor {
            deployment: DEPLOYMENT.to_owned(),
            role,
            host_affinity: true,
            failed: false,
        };
        self.env.processors.insert(work(id), processor);
    }

    pub fn affinity(&mut self, on: bool) {
        for processor in self.env.processors.values_mut() {
            processor.host_affinity = on;
        }
    }

    pub fn failed(&mut self, id: &str, failed: bool) {
        self.env.processors.get_mut(&work(id)).unwrap().failed = failed;
    }

    pub fn runs(&mut self, id: &str, on: &str) -> AllocationId {
        let container = self.add_container(&work(id), &host(on), None);
        self.start(&container);
        container
    }

    fn add_container(
        &mut self,
        work: &WorkId,
        on: &NodeName,
        request: Option<String>,
    ) -> AllocationId {
        self.next += 1;
        let id = AllocationId::new(format!("alc_{}", self.next)).unwrap();
        let state = match request {
            Some(_) => LiveState::Held,
            None => LiveState::Pending,
        };
        let container = TestContainer {
            work: work.clone(),
            host: on.clone(),
            state,
            request,
            ran: false,
            ended: false,
        };
        self.env.containers.insert(id.clone(), container);
        id
    }

    pub fn start(&mut self, id: &AllocationId) {
        let container = self.env.containers.get_mut(id).unwrap();
        assert!(!container.ended && container.state == LiveState::Pending);
        (container.state, container.ran) = (LiveState::Running, true);
        let (work, host) = (container.work.clone(), container.host.clone());
        self.env.last_hosts.insert(work.clone(), host);
        self.env.processors.get_mut(&work).unwrap().failed = false;
    }

    pub fn end(&mut self, id: &AllocationId) {
        self.env.containers.get_mut(id).unwrap().ended = true;
    }

    pub fn request(&mut self, uuid: &str, id: &str, to: &str) {
        self.submit(uuid, id, to, None).unwrap();
        self.tick();
    }

    pub fn submit(
        &mut self,
        uuid: &str,
        id: &str,
        to: &str,
        expiry_ms: Option<u64>,
    ) -> Result<Submitted, Refusal> {
        let request = self.new_request(uuid, id, to, expiry_ms);
        self.placements.submit(request, &self.env)
    }

    pub fn new_request(
        &self,
        uuid: &str,
        id: &str,
        to: &str,
        expiry_ms: Option<u64>,
    ) -> PlacementRequest {
        PlacementRequest {
            uuid: uuid.to_owned(),
            deployment_id: DEPLOYMENT.to_owned(),
            processor_id: if id.contains('_') {
                WorkId::new(id).unwrap()
            } else {
                work(id)
            },
            destination_host: destination(to),
            request_expiry_ms: expiry_ms,
            force: self.force,
            timestamp: self.env.now(),
            user: "ann".parse().unwrap(),
            requested_by: "ann".to_owned(),
            reject_if_busy: false,
        }
    }

    pub fn tick(&mut self) {
        self.placements.advance(&RULES, &mut self.env);
        self.take_back();
    }

    pub fn advance_ms(&mut self, ms: i64) {
        self.env.now_ms += ms;
        self.tick();
    }

    /// Restarts the manager from its rows.
    pub fn restart(&mut self) {
        let rows: Vec<Placement> = self.placements.iter().cloned().collect();
        self.placements = Placements::loaded(rows);
        self.env.epoch += 1;
        self.placements.resume(&mut self.env);
        self.tick();
    }

    /// The scheduler releases grants of withdrawn requests. If the process has no other container,
    /// the grant is started instead.
    fn take_back(&mut self) {
        let open: BTreeSet<String> = self.requests().into_keys().collect();
        let held = self.env.containers.iter().filter(|(_, it)| {
            let wanted = it.request.as_ref().is_some_and(|id| open.contains(id));
            !it.ended && it.state == LiveState::Held && !wanted
        });
        let held: Vec<(AllocationId, WorkId)> =
            held.map(|(id, it)| (id.clone(), it.work.clone())).collect();
        for (id, work) in held {
            let other = self.env.live(&work).any(|(other, _)| *other != id);
            let container = self.env.containers.get_mut(&id).unwrap();
            if other {
                container.ended = true;
            } else {
                container.state = LiveState::Pending;
            }
        }
    }

    /// Processors of open requests, by request id.
    pub fn requests(&self) -> BTreeMap<String, WorkId> {
        let open = self.placements.open().filter_map(Placement::request);
        open.map(|request| (request.id, request.work)).collect()
    }

    /// The scheduler grants the requests that fit.
    pub fn serve(&mut self) -> Vec<AllocationId> {
        let open: Vec<_> = self
            .placements
            .open()
            .filter_map(Placement::request)
            .collect();
        let mut granted = Vec::new();
        for request in open {
            if self.env.granted(&request.work, &request.id).is_some() {
                continue;
            }
            let good = |host: &&NodeName| {
                let wanted = request.host.as_ref().is_none_or(|it| it == *host);
                wanted && !request.exclude.contains(host) && self.env.fits(host)
            };
            let found = self.env.capacity.keys().find(good).cloned();
            if let Some(host) = found {
                granted.push(self.add_container(&request.work, &host, Some(request.id)));
            }
        }
        granted
    }

    /// Grants the only open request on this host, whatever it asks for.
    pub fn grant_on(&mut self, name: &str) -> AllocationId {
        let (id, work) = self.requests().into_iter().next().unwrap();
        let container = self.add_container(&work, &host(name), Some(id));
        self.tick();
        container
    }

    /// Starts processors that are down and have no request, on their last host or any other.
    pub fn serve_demand(&mut self) {
        for work in self.demand() {
            let open = |host: &NodeName, env: &TestEnvironment| {
                env.fits(host) && conflict(env, &work, host).is_none()
            };
            let last = self.env.last_hosts.get(&work).cloned();
            let last =
                last.filter(|it| self.env.processors[&work].host_affinity && open(it, &self.env));
            let any = || {
                self.env
                    .capacity
                    .keys()
                    .find(|it| open(it, &self.env))
                    .cloned()
            };
            if let Some(host) = last.or_else(any) {
                self.add_container(&work, &host, None);
            }
        }
    }

    /// Processors whose permanent demand is not met (P1).
    pub fn demand(&self) -> Vec<WorkId> {
        let requests: BTreeSet<WorkId> = self.requests().into_values().collect();
        let has_demand = |(work, it): &(&WorkId, &Processor)| {
            !it.failed && self.env.live(work).next().is_none() && !requests.contains(*work)
        };
        let all = self.env.processors.iter().filter(has_demand);
        all.map(|(work, _)| work.clone()).collect()
    }

    /// Nodes carry out their orders.
    pub fn run_nodes(&mut self) {
        let ordered: Vec<(AllocationId, LiveState)> = self
            .env
            .containers
            .iter()
            .filter(|(_, it)| !it.ended)
            .map(|(id, it)| (id.clone(), it.state))
            .collect();
        for (id, state) in ordered {
            match state {
                LiveState::Pending => self.start(&id),
                LiveState::Stopping => self.end(&id),
                LiveState::Held | LiveState::Running => {}
            }
        }
        self.tick();
    }

    /// Scheduler and nodes act until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            self.serve();
            self.tick();
            self.run_nodes();
            self.serve_demand();
            self.run_nodes();
        }
    }

    pub fn take_events(&mut self) -> Vec<crate::events::PlacementEvent> {
        self.placements.take_events()
    }

    pub fn at(&self, uuid: &str) -> &Placement {
        self.placements.get(uuid).unwrap()
    }

    pub fn status(&self, uuid: &str) -> (Status, Option<Reason>) {
        let it = self.at(uuid);
        (it.status_code, it.reason_code)
    }

    pub fn phase(&self, uuid: &str) -> Option<Phase> {
        self.at(uuid).phase
    }

    pub fn queue_reason(&self, uuid: &str) -> Option<QueueReason> {
        self.at(uuid).queued_because
    }

    /// The host on which it runs.
    pub fn host_of(&self, id: &str) -> Option<String> {
        let work = work(id);
        let mut all = self.env.live(&work);
        let found = all.find(|(_, it)| it.state == LiveState::Running)?;
        Some(found.1.host.to_string())
    }

    pub fn current(&self, id: &str) -> AllocationId {
        let work = work(id);
        let mut all = self.env.live(&work);
        let found = all.find(|(_, it)| it.state != LiveState::Held);
        found.unwrap().0.clone()
    }
}
