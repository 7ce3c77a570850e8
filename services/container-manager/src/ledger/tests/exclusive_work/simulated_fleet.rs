//! A simulated fleet for the tests of exclusive work: the scheduler, and the messages between it,
//! the nodes and the ledger.

use hayward_container_manager_placement::Destination;
use hayward_rm_scheduler_api::{Vacate, VacateReason};
use hayward_vocabulary::{Processor, Role};

use super::simulated_node::SimulatedNode;
use super::*;
use crate::command::{NodeReport, SubmittedRequest, Target};

const WORK: &str = "svc_1.0";
const DEPLOYMENT: &str = "dep_1";
pub const NODE_COUNT: usize = 3;

pub struct SimulatedFleet {
    ledger: Ledger,
    nodes: Vec<SimulatedNode>,
    /// Allocations that the scheduler has published.
    allocations: BTreeMap<AllocationId, AllocationEntry>,
    /// Incarnation of the newest allocation.
    incarnation: u64,
    revision: u64,
    epoch: u64,
    now_ms: u64,
    /// Number in the uuid of the newest placement request.
    last_request: u32,
}

fn node_name(index: usize) -> NodeName {
    NodeName::new(format!("n{index}")).unwrap()
}

fn full_update<T>(entries: impl IntoIterator<Item = (String, T)>) -> Update<T> {
    Update {
        cursor: String::new(),
        full: true,
        changed: entries.into_iter().collect(),
        removed: Vec::new(),
    }
}

impl SimulatedFleet {
    pub fn new() -> Self {
        let mut fleet = Self {
            ledger: empty_ledger(),
            nodes: (0..NODE_COUNT).map(|_| SimulatedNode::new()).collect(),
            allocations: BTreeMap::new(),
            incarnation: 0,
            revision: 0,
            epoch: 1,
            now_ms: 1_000,
            last_request: 0,
        };
        fleet.send_full_updates();
        fleet
    }

    /// Applies a change to the ledger and runs one round, as one batch.
    fn run_batch(&mut self, change: impl FnOnce(&mut Ledger, &Moment, &mut Batch<Rows>)) {
        self.revision += 1;
        let moment = Moment {
            now: Timestamp::from_unix_ms(self.now_ms.try_into().unwrap()),
            monotonic_ms: self.now_ms,
            epoch: self.epoch,
            ..moment(self.revision)
        };
        let mut batch = Batch::default();
        change(&mut self.ledger, &moment, &mut batch);
        self.ledger.round(&moment, &mut batch);
    }

    /// Sends all publications in full, as at the start of a term.
    fn send_full_updates(&mut self) {
        let processor = ProcessorEntry {
            work: WORK.parse().unwrap(),
            user: "ann".parse().unwrap(),
            processor: Processor {
                deployment: DEPLOYMENT.to_owned(),
                role: Role::Active,
                host_affinity: true,
                failed: false,
            },
            machines: Vec::new(),
            waits: BTreeMap::new(),
        };
        self.run_batch(|ledger, moment, batch| {
            ledger.apply_processor_update(
                full_update([(WORK.to_owned(), processor)]),
                moment,
                batch,
            );
            ledger.apply_closed_node_update(full_update([]), moment, batch);
        });
        let all = self.allocations.values();
        let all: Vec<_> = all.map(|it| (it.id.to_string(), it.clone())).collect();
        self.run_batch(|ledger, moment, batch| {
            ledger.apply_allocation_update(full_update(all), moment, batch);
        });
    }

    /// Starts a new term of container-manager on the same rows.
    fn restart_manager(&mut self) {
        self.epoch += 1;
        let previous = std::mem::replace(&mut self.ledger, empty_ledger());
        self.ledger.placements = previous.placements.reload();
        for container in previous.containers.into_values() {
            self.ledger.index_container(container);
        }
        self.send_full_updates();
    }

    fn publish(&mut self, changed: &[AllocationId]) {
        let entries = changed.iter().map(|id| self.allocations[id].clone());
        let update = update(false, &entries.collect::<Vec<_>>(), &[]);
        self.run_batch(|ledger, moment, batch| {
            ledger.apply_allocation_update(update, moment, batch);
        });
    }

    /// Returns the allocation that was not ordered to leave, if any.
    fn active_allocation(&self) -> Option<AllocationId> {
        let mut allocations = self.allocations.values();
        let allocation = allocations.find(|it| it.holds() && it.vacate.is_none());
        allocation.map(|it| it.id.clone())
    }

    fn vacate_process(&mut self, cause: VacateCause, names_predecessor: bool) {
        let Some(id) = self.active_allocation() else {
            return;
        };
        let reason = match cause {
            VacateCause::NodeEvacuated
            | VacateCause::WorkerEvacuated
            | VacateCause::BlockedForJob
            | VacateCause::NodeEvacuatedGracefully => VacateReason::Blocked,
            VacateCause::NodeDrained | VacateCause::DrainDeadlineReached => VacateReason::Drained,
            VacateCause::Preempted => VacateReason::Preempted,
            VacateCause::FailedOver => VacateReason::NodeOffline,
            VacateCause::Redeployed => VacateReason::WorkGone,
            VacateCause::Moved => return self.submit_placement(Destination::AnyHost),
            VacateCause::Restarted => return self.submit_placement(Destination::LastSeen),
            VacateCause::RestartedByForce => {
                return self.submit_placement(Destination::ForceRestartLastSeen);
            }
            VacateCause::EndedByItself => return self.crash(&id),
        };
        self.allocations.get_mut(&id).unwrap().vacate = Some(new_vacate(reason, false));
        let mut changed = vec![id.clone()];
        // The same round grants the successor, except for these causes.
        let without_successor = [
            VacateCause::Preempted,
            VacateCause::FailedOver,
            VacateCause::Redeployed,
        ];
        if !without_successor.contains(&cause) {
            let always_names_predecessor = matches!(
                cause,
                VacateCause::NodeDrained | VacateCause::NodeEvacuatedGracefully
            );
            let predecessor = Some(id).filter(|_| names_predecessor || always_names_predecessor);
            let node = usize::try_from(self.incarnation).unwrap() % NODE_COUNT;
            changed.push(self.allocate(node, predecessor, None));
        }
        self.publish(&changed);
    }

    fn submit_placement(&mut self, destination: Destination) {
        self.last_request += 1;
        let submitted = SubmittedRequest {
            uuid: format!("u{}", self.last_request),
            processor: Target::Processor {
                deployment: DEPLOYMENT.to_owned(),
                id: "0".to_owned(),
            },
            destination,
            request_expiry_ms: None,
            force: false,
            timestamp: None,
            requested_by: "ann".to_owned(),
            reject_if_busy: false,
        };
        self.run_batch(|ledger, moment, batch| {
            ledger
                .submit_placement(submitted, &None, moment, batch)
                .unwrap();
        });
    }

    /// Ends a process on its node without an order.
    fn crash(&mut self, id: &AllocationId) {
        for node in &mut self.nodes {
            node.end_process(id);
        }
    }

    /// Adds an allocation of the process. It is published later.
    fn allocate(
        &mut self,
        node: usize,
        predecessor: Option<AllocationId>,
        request: Option<String>,
    ) -> AllocationId {
        self.incarnation += 1;
        let entry = AllocationEntry {
            // Changes of one batch are applied in order of id. The ids are scattered, so that this
            // order is not the order of granting.
            id: AllocationId::new(format!("alc_{:03}", (self.incarnation * 37) % 997)).unwrap(),
            work: WORK.parse().unwrap(),
            kind: WorkKind::Service,
            node: node_name(node),
            incarnation: self.incarnation,
            exclusive: true,
            predecessor,
            request,
            ..allocation(0)
        };
        let id = entry.id.clone();
        self.allocations.insert(id.clone(), entry);
        id
    }

    /// Grants an open request, or else the demand of the process, on a node.
    fn grant(&mut self, node: usize, names_predecessor: bool) {
        let open = self.ledger.list_requests(DEPLOYMENT, &None).unwrap();
        let is_granted = |id: &str| {
            let mut allocations = self.allocations.values();
            allocations.any(|it| it.request.as_deref() == Some(id) && it.holds())
        };
        let open_request = open.into_iter().find(|it| !is_granted(&it.id));
        let holding = self.allocations.values().find(|it| it.holds());
        let predecessor = holding
            .map(|it| it.id.clone())
            .filter(|_| names_predecessor);
        let id = match open_request {
            Some(request) => self.allocate(node, predecessor, Some(request.id)),
            None if self.active_allocation().is_none() => self.allocate(node, predecessor, None),
            None => return,
        };
        self.publish(&[id]);
    }

    /// Lets the scheduler see which containers have ended.
    fn learn_ends(&mut self) {
        let has_ended = |id: &AllocationId| {
            let container = self.ledger.containers.get(id);
            container.is_some_and(|it| it.lifecycle.has_ended())
        };
        let all = self.allocations.values().filter(|it| it.holds());
        let ended: Vec<AllocationId> = all.map(|it| it.id.clone()).filter(has_ended).collect();
        for id in &ended {
            self.allocations.get_mut(id).unwrap().state = AllocationState::Ended;
        }
        self.publish(&ended);
    }

    fn remove_ended(&mut self) {
        let ended: Vec<AllocationEntry> = self
            .allocations
            .values()
            .filter(|it| !it.holds())
            .cloned()
            .collect();
        self.allocations.retain(|_, it| it.holds());
        let update = update(false, &[], &ended.iter().collect::<Vec<_>>());
        self.run_batch(|ledger, moment, batch| {
            ledger.apply_allocation_update(update, moment, batch);
        });
    }

    fn poll_desired_set(&mut self, node: usize) {
        let on_node = self
            .ledger
            .by_node
            .get(&node_name(node))
            .into_iter()
            .flatten();
        let desired = on_node.filter_map(|id| {
            let entry = self.ledger.containers.get(id)?.desired_entry()?;
            Some((id.clone(), entry.goal))
        });
        let desired = desired.collect();
        let node = &mut self.nodes[node];
        if !node.is_partitioned {
            (node.desired, node.observed_revision) = (desired, Some(self.revision));
        }
    }

    /// Lets a node start and stop processes according to its desired set.
    fn apply_desired_set(&mut self, node: usize) {
        let allocations = &self.allocations;
        self.nodes[node].apply_desired_set(|id| find_incarnation(allocations, id));
    }

    fn deliver_report(&mut self, node: usize) {
        if self.nodes[node].is_partitioned {
            return;
        }
        if let Some(sent) = self.nodes[node].in_transit.pop_front() {
            let report = NodeReport {
                node: node_name(node),
                observed_revision: sent.observed_revision,
                report: sent.report,
            };
            self.run_batch(|ledger, moment, batch| {
                ledger.apply_report(&report, moment, batch).unwrap();
            });
        }
    }

    /// Expires the lease of a node, if the node is partitioned.
    fn expire_lease(&mut self, node: usize) {
        let allocations = &self.allocations;
        let node = &mut self.nodes[node];
        if node.is_partitioned {
            node.expire_lease(|id| find_incarnation(allocations, id));
        }
    }

    /// Declares a node lost, unless it still has a lease.
    fn declare_lost(&mut self, node: usize) {
        if self.nodes[node].has_lease {
            return;
        }
        let mut lost = Vec::new();
        for allocation in self.allocations.values_mut() {
            if allocation.node == node_name(node) && allocation.holds() {
                allocation.vacate = Some(new_vacate(VacateReason::NodeLost, true));
                allocation.state = AllocationState::Ended;
                lost.push(allocation.id.clone());
            }
        }
        self.publish(&lost);
    }

    fn reconnect(&mut self, node: usize) {
        self.nodes[node].is_partitioned = false;
        self.nodes[node].has_lease = true;
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::VacateProcess {
                cause,
                names_predecessor,
            } => self.vacate_process(*cause, *names_predecessor),
            Event::GrantAllocation {
                node,
                names_predecessor,
            } => self.grant(*node, *names_predecessor),
            Event::LearnEnds => self.learn_ends(),
            Event::RemoveEndedAllocations => self.remove_ended(),
            Event::PollDesiredSet(node) => self.poll_desired_set(*node),
            Event::ApplyDesiredSet(node) => self.apply_desired_set(*node),
            Event::EndStoppingProcesses(node) => self.nodes[*node].end_stopping_processes(),
            Event::SendReport(node) => self.nodes[*node].send_report(),
            Event::DeliverReport(node) => self.deliver_report(*node),
            Event::PartitionNode(node) => self.nodes[*node].is_partitioned = true,
            Event::ExpireLease(node) => self.expire_lease(*node),
            Event::DeclareNodeLost(node) => self.declare_lost(*node),
            Event::ReconnectNode(node) => self.reconnect(*node),
            Event::RestartManager => self.restart_manager(),
            Event::AdvanceTime(ms) => {
                self.now_ms += ms;
                self.run_batch(|_, _, _| ());
            }
        }
    }

    /// Returns the number of processes that have not ended.
    pub fn live_count(&self) -> usize {
        self.nodes.iter().map(SimulatedNode::live_count).sum()
    }

    /// Lets the scheduler and the nodes act without failures. 40 rounds are enough for every open
    /// request to be granted or to expire.
    pub fn run_until_settled(&mut self) {
        for round in 0..40 {
            self.grant(round % NODE_COUNT, true);
            for node in 0..NODE_COUNT {
                self.reconnect(node);
                for event in [
                    Event::PollDesiredSet(node),
                    Event::ApplyDesiredSet(node),
                    Event::EndStoppingProcesses(node),
                    Event::ApplyDesiredSet(node),
                ] {
                    self.apply(&event);
                }
                self.nodes[node].send_report();
                while !self.nodes[node].in_transit.is_empty() {
                    self.deliver_report(node);
                }
            }
            self.learn_ends();
            self.apply(&Event::AdvanceTime(6_000));
            assert!(self.live_count() <= 1, "two processes run at once");
        }
    }
}

/// Returns the incarnation of an allocation, or 0 if the scheduler has removed it.
fn find_incarnation(
    allocations: &BTreeMap<AllocationId, AllocationEntry>,
    id: &AllocationId,
) -> u64 {
    allocations.get(id).map_or(0, |entry| entry.incarnation)
}

fn new_vacate(reason: VacateReason, purge: bool) -> Vacate {
    Vacate {
        reason,
        detail: String::new(),
        since: Timestamp::from_unix_ms(1),
        purge,
    }
}
