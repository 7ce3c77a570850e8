//! A simulated fleet for the tests of placement actions: hosts with capacity, a scheduler that
//! grants requests and demand, and nodes that carry out orders. The test triggers each step.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Processor, Role, Timestamp, UserName, WorkId};

use crate::TimeLimits;
use crate::container_access::{Environment, LiveContainer, LiveState, conflicting_partner};
use crate::destination::Destination;
use crate::placement::Placement;
use crate::placements::Placements;
use crate::status::{Phase, QueueReason, Reason, Status};
use crate::submission::{PlacementRequest, Refusal, Submitted};

pub const LIMITS: TimeLimits = TimeLimits {
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
    pub has_run: bool,
    pub ended: bool,
}

#[derive(Default)]
pub struct TestEnvironment {
    pub now_ms: i64,
    pub epoch: u64,
    pub ended_deployments: BTreeSet<String>,
    pub processors: BTreeMap<WorkId, Processor>,
    /// Maximum number of containers by host.
    pub capacity: BTreeMap<NodeName, usize>,
    pub containers: BTreeMap<AllocationId, TestContainer>,
    pub closed_hosts: BTreeSet<NodeName>,
    /// The `machines` of all processors; empty if every host is allowed.
    pub machines: Vec<NodeName>,
    pub last_hosts: BTreeMap<WorkId, NodeName>,
    /// Containers that were ordered to stop, in the order of the orders.
    pub stops: Vec<AllocationId>,
    /// Reason that the scheduler gives for every waiting request.
    pub wait_reason: Option<String>,
    /// Number of stops of a process that had no reserved successor.
    pub unreserved_stops: usize,
}

pub struct TestFleet {
    pub placements: Placements,
    pub env: TestEnvironment,
    /// Value of `force` in submitted requests.
    pub force: bool,
    /// Number in the id of the newest container.
    last_container: usize,
}

pub fn work(id: &str) -> WorkId {
    WorkId::new(format!("svc_1.{id}")).unwrap()
}

pub fn host(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn parse_destination(text: &str) -> Destination {
    Destination::try_from(text.to_owned()).unwrap()
}

impl TestEnvironment {
    fn iter_live(&self, work: &WorkId) -> impl Iterator<Item = (&AllocationId, &TestContainer)> {
        let containers = self.containers.iter();
        containers.filter(move |(_, it)| it.work == *work && !it.ended)
    }

    fn used_capacity(&self, host: &NodeName) -> usize {
        let containers = self.containers.values();
        containers
            .filter(|it| it.host == *host && !it.ended)
            .count()
    }

    /// Returns whether the host is open and has free capacity.
    pub fn has_capacity(&self, host: &NodeName) -> bool {
        let capacity = self.capacity.get(host).copied().unwrap_or(0);
        !self.closed_hosts.contains(host) && self.used_capacity(host) < capacity
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
        let processors = self.processors.iter();
        processors
            .map(|(work, it)| (work.clone(), it.role.clone()))
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
        self.iter_live(work).map(container).collect()
    }
    fn find_granted(&self, work: &WorkId, request: &str) -> Option<LiveContainer> {
        let mut live = self.iter_live(work);
        let (id, it) = live.find(|(_, it)| it.request.as_deref() == Some(request))?;
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
        self.containers.get(allocation).is_some_and(|it| it.has_run)
    }
    fn last_host(&self, work: &WorkId) -> Option<NodeName> {
        self.last_hosts.get(work).cloned()
    }
    fn listed_hosts(&self, _: &WorkId) -> Vec<NodeName> {
        self.machines.clone()
    }
    fn closed_reason(&self, host: &NodeName, _: &WorkId) -> Option<String> {
        let is_closed = self.closed_hosts.contains(host);
        is_closed.then(|| "it is blocked".to_owned())
    }
    fn stop(&mut self, allocation: &AllocationId) {
        let work = self.containers[allocation].work.clone();
        let is_held = |(_, it): (&AllocationId, &TestContainer)| it.state == LiveState::Held;
        let is_unreserved = !self.iter_live(&work).any(is_held);
        self.unreserved_stops += usize::from(is_unreserved);
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
            last_container: 0,
        }
    }

    /// Creates four hosts with capacity 4. Processor 0 runs on `a`, its standby 0-0 on `b`, and
    /// processor 1 on `c`. All have host affinity. `d` is free.
    pub fn standard() -> Self {
        let mut fleet = Self::new();
        for name in ["a", "b", "c", "d"] {
            fleet.env.capacity.insert(host(name), 4);
        }
        fleet.add_active("0");
        fleet.add_standby("0", 0);
        fleet.add_active("1");
        fleet.add_running("0", "a");
        fleet.add_running("0-0", "b");
        fleet.add_running("1", "c");
        fleet
    }

    pub fn add_active(&mut self, id: &str) {
        self.add_processor(id, Role::Active);
    }

    pub fn add_standby(&mut self, active: &str, replica: u32) {
        let role = Role::Standby {
            of: work(active),
            replica,
        };
        self.add_processor(&format!("{active}-{replica}"), role);
    }

    fn add_processor(&mut self, id: &str, role: Role) {
        let processor = Processor {
            deployment: DEPLOYMENT.to_owned(),
            role,
            host_affinity: true,
            failed: false,
        };
        self.env.processors.insert(work(id), processor);
    }

    pub fn set_host_affinity(&mut self, has_affinity: bool) {
        for processor in self.env.processors.values_mut() {
            processor.host_affinity = has_affinity;
        }
    }

    pub fn set_failed(&mut self, id: &str, failed: bool) {
        self.env.processors.get_mut(&work(id)).unwrap().failed = failed;
    }

    pub fn add_running(&mut self, id: &str, name: &str) -> AllocationId {
        let container = self.add_container(&work(id), &host(name), None);
        self.start_container(&container);
        container
    }

    fn add_container(
        &mut self,
        work: &WorkId,
        host: &NodeName,
        request: Option<String>,
    ) -> AllocationId {
        self.last_container += 1;
        let id = AllocationId::new(format!("alc_{}", self.last_container)).unwrap();
        let state = match request {
            Some(_) => LiveState::Held,
            None => LiveState::Pending,
        };
        let container = TestContainer {
            work: work.clone(),
            host: host.clone(),
            state,
            request,
            has_run: false,
            ended: false,
        };
        self.env.containers.insert(id.clone(), container);
        id
    }

    pub fn start_container(&mut self, id: &AllocationId) {
        let container = self.env.containers.get_mut(id).unwrap();
        assert!(!container.ended && container.state == LiveState::Pending);
        container.state = LiveState::Running;
        container.has_run = true;
        let (work, host) = (container.work.clone(), container.host.clone());
        self.env.last_hosts.insert(work.clone(), host);
        self.env.processors.get_mut(&work).unwrap().failed = false;
    }

    pub fn end_container(&mut self, id: &AllocationId) {
        self.env.containers.get_mut(id).unwrap().ended = true;
    }

    /// Submits a request and advances all actions.
    pub fn request(&mut self, uuid: &str, id: &str, destination: &str) {
        self.submit(uuid, id, destination, None).unwrap();
        self.advance();
    }

    pub fn submit(
        &mut self,
        uuid: &str,
        id: &str,
        destination: &str,
        expiry_ms: Option<u64>,
    ) -> Result<Submitted, Refusal> {
        let request = self.new_request(uuid, id, destination, expiry_ms);
        self.placements.submit(request, &self.env)
    }

    pub fn new_request(
        &self,
        uuid: &str,
        id: &str,
        destination: &str,
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
            destination_host: parse_destination(destination),
            request_expiry_ms: expiry_ms,
            force: self.force,
            timestamp: self.env.now(),
            user: "ann".parse().unwrap(),
            requested_by: "ann".to_owned(),
            reject_if_busy: false,
        }
    }

    pub fn advance(&mut self) {
        self.placements.advance(&LIMITS, &mut self.env);
        self.release_withdrawn_grants();
    }

    pub fn advance_ms(&mut self, ms: i64) {
        self.env.now_ms += ms;
        self.advance();
    }

    /// Restarts container-manager from its rows.
    pub fn restart(&mut self) {
        let rows: Vec<Placement> = self.placements.iter().cloned().collect();
        self.placements = Placements::from_rows(rows);
        self.env.epoch += 1;
        self.placements.resume(&mut self.env);
        self.advance();
    }

    /// Releases the containers of withdrawn requests, as the scheduler does. If the process has no
    /// other container, the container is started instead.
    fn release_withdrawn_grants(&mut self) {
        let open: BTreeSet<String> = self.requests().into_keys().collect();
        let held = self.env.containers.iter().filter(|(_, it)| {
            let is_requested = it.request.as_ref().is_some_and(|id| open.contains(id));
            !it.ended && it.state == LiveState::Held && !is_requested
        });
        let held: Vec<(AllocationId, WorkId)> =
            held.map(|(id, it)| (id.clone(), it.work.clone())).collect();
        for (id, work) in held {
            let has_other = self.env.iter_live(&work).any(|(other, _)| *other != id);
            let container = self.env.containers.get_mut(&id).unwrap();
            if has_other {
                container.ended = true;
            } else {
                container.state = LiveState::Pending;
            }
        }
    }

    /// Returns the processors of open requests, by request id.
    pub fn requests(&self) -> BTreeMap<String, WorkId> {
        let open = self.placements.open().filter_map(Placement::request);
        open.map(|request| (request.id, request.work)).collect()
    }

    /// Grants the requests that fit, as the scheduler does.
    pub fn grant_requests(&mut self) -> Vec<AllocationId> {
        let open: Vec<_> = self
            .placements
            .open()
            .filter_map(Placement::request)
            .collect();
        let mut granted = Vec::new();
        for request in open {
            if self.env.find_granted(&request.work, &request.id).is_some() {
                continue;
            }
            let is_suitable = |host: &&NodeName| {
                let is_requested = request.host.as_ref().is_none_or(|it| it == *host);
                is_requested && !request.exclude.contains(host) && self.env.has_capacity(host)
            };
            let host = self.env.capacity.keys().find(is_suitable).cloned();
            if let Some(host) = host {
                granted.push(self.add_container(&request.work, &host, Some(request.id)));
            }
        }
        granted
    }

    /// Grants the only open request on this host, even if it requests another host.
    pub fn grant_on(&mut self, name: &str) -> AllocationId {
        let (id, work) = self.requests().into_iter().next().unwrap();
        let container = self.add_container(&work, &host(name), Some(id));
        self.advance();
        container
    }

    /// Starts each processor that is down and has no request, on its last host or any other host.
    pub fn grant_demand(&mut self) {
        for work in self.demand() {
            let is_usable = |host: &NodeName, env: &TestEnvironment| {
                env.has_capacity(host) && conflicting_partner(env, &work, host).is_none()
            };
            let last_host = self.env.last_hosts.get(&work).cloned();
            let last_host = last_host
                .filter(|it| self.env.processors[&work].host_affinity && is_usable(it, &self.env));
            let first_usable = || {
                self.env
                    .capacity
                    .keys()
                    .find(|it| is_usable(it, &self.env))
                    .cloned()
            };
            if let Some(host) = last_host.or_else(first_usable) {
                self.add_container(&work, &host, None);
            }
        }
    }

    /// Returns the processors that are down, have not failed and have no open request (P1).
    pub fn demand(&self) -> Vec<WorkId> {
        let requests: BTreeSet<WorkId> = self.requests().into_values().collect();
        let has_demand = |(work, it): &(&WorkId, &Processor)| {
            !it.failed && self.env.iter_live(work).next().is_none() && !requests.contains(*work)
        };
        let processors = self.env.processors.iter().filter(has_demand);
        processors.map(|(work, _)| work.clone()).collect()
    }

    /// Carries out the orders of all nodes.
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
                LiveState::Pending => self.start_container(&id),
                LiveState::Stopping => self.end_container(&id),
                LiveState::Held | LiveState::Running => {}
            }
        }
        self.advance();
    }

    /// Lets the scheduler and the nodes act until nothing changes.
    pub fn run_until_settled(&mut self) {
        for _ in 0..20 {
            self.grant_requests();
            self.advance();
            self.run_nodes();
            self.grant_demand();
            self.run_nodes();
        }
    }

    pub fn take_events(&mut self) -> Vec<crate::events::PlacementEvent> {
        self.placements.take_events()
    }

    pub fn placement(&self, uuid: &str) -> &Placement {
        self.placements.get(uuid).unwrap()
    }

    pub fn status(&self, uuid: &str) -> (Status, Option<Reason>) {
        let placement = self.placement(uuid);
        (placement.status_code, placement.reason_code)
    }

    pub fn phase(&self, uuid: &str) -> Option<Phase> {
        self.placement(uuid).phase
    }

    pub fn queue_reason(&self, uuid: &str) -> Option<QueueReason> {
        self.placement(uuid).queued_because
    }

    /// Returns the host on which the processor runs.
    pub fn running_host(&self, id: &str) -> Option<String> {
        let work = work(id);
        let mut live = self.env.iter_live(&work);
        let (_, container) = live.find(|(_, it)| it.state == LiveState::Running)?;
        Some(container.host.to_string())
    }

    pub fn current_container(&self, id: &str) -> AllocationId {
        let work = work(id);
        let mut live = self.env.iter_live(&work);
        let (id, _) = live.find(|(_, it)| it.state != LiveState::Held).unwrap();
        id.clone()
    }
}
