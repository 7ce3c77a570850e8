//! A simulated scheduler and simulated nodes for the tests of exclusive processes.

use std::collections::VecDeque;

use hayward_container_manager_placement::Destination;
use hayward_rm_scheduler_api::{Vacate, VacateReason};
use hayward_vocabulary::{Processor, Role};

use super::*;
use crate::command::{NodeReport, SubmittedRequest, Target};

const WORK: &str = "svc_1.0";
const DEPLOYMENT: &str = "dep_1";
pub const NODES: usize = 3;

/// State of a process on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Running,
    Stopping,
    Ended,
}

#[derive(Default)]
struct Node {
    desired: BTreeMap<AllocationId, Goal>,
    observed_revision: Option<u64>,
    /// Incarnation and state of each container.
    journal: BTreeMap<AllocationId, (u64, Process)>,
    sequence: u64,
    /// Reports that were sent and not delivered yet, with their observed revisions.
    in_transit: VecDeque<(Option<u64>, Report)>,
    is_partitioned: bool,
    has_lease: bool,
}

pub struct Fleet {
    ledger: Ledger,
    nodes: Vec<Node>,
    /// Allocations that the scheduler has published.
    allocations: BTreeMap<AllocationId, AllocationEntry>,
    incarnation: u64,
    revision: u64,
    epoch: u64,
    now_ms: u64,
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

impl Fleet {
    pub fn new() -> Self {
        let node = || Node {
            has_lease: true,
            ..Node::default()
        };
        let mut fleet = Self {
            ledger: empty_ledger(),
            nodes: (0..NODES).map(|_| node()).collect(),
            allocations: BTreeMap::new(),
            incarnation: 0,
            revision: 0,
            epoch: 1,
            now_ms: 1_000,
            last_request: 0,
        };
        fleet.sync();
        fleet
    }

    /// Applies a change to the ledger and runs one round.
    fn change(&mut self, change: impl FnOnce(&mut Ledger, &Moment, &mut Batch<Rows>)) {
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
    fn sync(&mut self) {
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
        self.change(|ledger, moment, batch| {
            ledger.absorb_processors(full_update([(WORK.to_owned(), processor)]), moment, batch);
            ledger.absorb_closed_nodes(full_update([]), moment, batch);
        });
        let all = self.allocations.values();
        let all: Vec<_> = all.map(|it| (it.id.to_string(), it.clone())).collect();
        self.change(|ledger, moment, batch| {
            ledger.absorb_allocations(full_update(all), moment, batch);
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
        self.sync();
    }

    fn publish(&mut self, changed: &[AllocationId]) {
        let entries = changed.iter().map(|id| self.allocations[id].clone());
        let update = update(false, &entries.collect::<Vec<_>>(), &[]);
        self.change(|ledger, moment, batch| ledger.absorb_allocations(update, moment, batch));
    }

    /// Returns the allocation that was not ordered to leave, if any.
    fn active_allocation(&self) -> Option<AllocationId> {
        let mut allocations = self.allocations.values();
        let allocation = allocations.find(|it| it.holds() && it.vacate.is_none());
        allocation.map(|it| it.id.clone())
    }

    fn vacate_process(&mut self, cause: Cause, names_predecessor: bool) {
        let Some(id) = self.active_allocation() else {
            return;
        };
        let reason = match cause {
            Cause::NodeEvacuated
            | Cause::WorkerEvacuated
            | Cause::BlockedForJob
            | Cause::EvacuatedGradually => VacateReason::Blocked,
            Cause::Drained | Cause::DrainDeadline => VacateReason::Drained,
            Cause::Preempted => VacateReason::Preempted,
            Cause::FailedOver => VacateReason::NodeOffline,
            Cause::Redeployed => VacateReason::WorkGone,
            Cause::Moved => return self.submit_placement(Destination::AnyHost),
            Cause::Restarted => return self.submit_placement(Destination::LastSeen),
            Cause::RestartedByForce => {
                return self.submit_placement(Destination::ForceRestartLastSeen);
            }
            Cause::EndedByItself => return self.crash(&id),
        };
        self.allocations.get_mut(&id).unwrap().vacate = Some(new_vacate(reason, false));
        let mut changed = vec![id.clone()];
        // The same round grants the successor, except for these causes.
        let without_successor = [Cause::Preempted, Cause::FailedOver, Cause::Redeployed];
        if !without_successor
            .iter()
            .any(|it| std::mem::discriminant(it) == std::mem::discriminant(&cause))
        {
            let always_names_predecessor =
                matches!(cause, Cause::Drained | Cause::EvacuatedGradually);
            let predecessor = Some(id).filter(|_| names_predecessor || always_names_predecessor);
            let node = usize::try_from(self.incarnation).unwrap() % NODES;
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
        self.change(|ledger, moment, batch| {
            ledger
                .submit_placement(submitted, &None, moment, batch)
                .unwrap();
        });
    }

    fn crash(&mut self, id: &AllocationId) {
        for node in &mut self.nodes {
            if let Some((_, process)) = node.journal.get_mut(id) {
                *process = Process::Ended;
            }
        }
    }

    fn allocate(
        &mut self,
        node: usize,
        predecessor: Option<AllocationId>,
        request: Option<String>,
    ) -> AllocationId {
        self.incarnation += 1;
        let entry = AllocationEntry {
            // Ids are not in order of granting, because changes of one batch are applied by id.
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
        self.change(|ledger, moment, batch| ledger.absorb_allocations(update, moment, batch));
    }

    fn poll(&mut self, node: usize) {
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
    fn carry_out(&mut self, node: usize) {
        let allocations = &self.allocations;
        let node = &mut self.nodes[node];
        for (id, goal) in &node.desired {
            let incarnation = allocations.get(id).map_or(0, |it| it.incarnation);
            match (goal, node.journal.get_mut(id)) {
                (Goal::Run, None) if node.has_lease => {
                    node.journal
                        .insert(id.clone(), (incarnation, Process::Running));
                }
                (Goal::Stop, None) => {
                    node.journal
                        .insert(id.clone(), (incarnation, Process::Ended));
                }
                (Goal::Stop, Some((_, process))) if *process == Process::Running => {
                    *process = Process::Stopping;
                }
                _ => {}
            }
        }
        let desired = &node.desired;
        node.journal
            .retain(|id, (_, process)| *process != Process::Ended || desired.contains_key(id));
        for (id, (_, process)) in &mut node.journal {
            if !desired.contains_key(id) && *process == Process::Running {
                *process = Process::Stopping;
            }
        }
    }

    fn end_stopping(&mut self, node: usize) {
        for (_, process) in self.nodes[node].journal.values_mut() {
            if *process == Process::Stopping {
                *process = Process::Ended;
            }
        }
    }

    fn report(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.sequence += 1;
        let containers = node.journal.iter().map(|(id, (incarnation, process))| {
            let state = match process {
                Process::Running => ContainerState::Running,
                Process::Stopping => ContainerState::Stopping,
                Process::Ended => ContainerState::Ended,
            };
            ContainerReport {
                id: id.clone(),
                incarnation: *incarnation,
                state,
                pid: None,
                started_at: None,
                exit: None,
                reason: None,
            }
        });
        let report = Report {
            boot_id: "boot".into(),
            agent_instance: "one".into(),
            sequence: node.sequence,
            cursor: None,
            complete: true,
            containers: containers.collect(),
        };
        node.in_transit.push_back((node.observed_revision, report));
    }

    fn deliver(&mut self, node: usize) {
        if self.nodes[node].is_partitioned {
            return;
        }
        if let Some((observed_revision, report)) = self.nodes[node].in_transit.pop_front() {
            let report = NodeReport {
                node: node_name(node),
                observed_revision,
                report,
            };
            self.change(|ledger, moment, batch| {
                ledger.apply_report(&report, moment, batch).unwrap();
            });
        }
    }

    /// Expires the lease of a partitioned node. Its running containers end, and containers that
    /// have not started never start (decision 0014).
    fn expire_lease(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if !node.is_partitioned {
            return;
        }
        node.has_lease = false;
        for id in node.desired.keys() {
            let never_started = || {
                (
                    self.allocations.get(id).map_or(0, |it| it.incarnation),
                    Process::Ended,
                )
            };
            node.journal.entry(id.clone()).or_insert_with(never_started);
        }
        for (_, process) in node.journal.values_mut() {
            *process = Process::Ended;
        }
    }

    /// Declares a node lost, unless it still has a lease.
    fn declare_lost(&mut self, node: usize) {
        if self.nodes[node].has_lease {
            return;
        }
        let mut lost = Vec::new();
        for it in self.allocations.values_mut() {
            if it.node == node_name(node) && it.holds() {
                it.vacate = Some(new_vacate(VacateReason::NodeLost, true));
                it.state = AllocationState::Ended;
                lost.push(it.id.clone());
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
            Event::Leave {
                cause,
                names_predecessor,
            } => self.vacate_process(*cause, *names_predecessor),
            Event::Grant {
                node,
                names_predecessor,
            } => self.grant(*node, *names_predecessor),
            Event::LearnEnds => self.learn_ends(),
            Event::RemoveEnded => self.remove_ended(),
            Event::Poll(node) => self.poll(*node),
            Event::CarryOut(node) => self.carry_out(*node),
            Event::End(node) => self.end_stopping(*node),
            Event::Report(node) => self.report(*node),
            Event::Deliver(node) => self.deliver(*node),
            Event::Partition(node) => self.nodes[*node].is_partitioned = true,
            Event::ExpireLease(node) => self.expire_lease(*node),
            Event::DeclareLost(node) => self.declare_lost(*node),
            Event::Reconnect(node) => self.reconnect(*node),
            Event::RestartManager => self.restart_manager(),
            Event::AdvanceTime(ms) => {
                self.now_ms += ms;
                self.change(|_, _, _| ());
            }
        }
    }

    /// Returns the number of processes that have not ended.
    pub fn live_count(&self) -> usize {
        let processes = self.nodes.iter().flat_map(|it| it.journal.values());
        processes
            .filter(|(_, process)| *process != Process::Ended)
            .count()
    }

    /// Lets the scheduler and the nodes act without failures.
    pub fn run_until_settled(&mut self) {
        for round in 0..40 {
            self.grant(round % NODES, true);
            for node in 0..NODES {
                self.reconnect(node);
                for event in [
                    Event::Poll(node),
                    Event::CarryOut(node),
                    Event::End(node),
                    Event::CarryOut(node),
                ] {
                    self.apply(&event);
                }
                self.report(node);
                while !self.nodes[node].in_transit.is_empty() {
                    self.deliver(node);
                }
            }
            self.learn_ends();
            self.apply(&Event::AdvanceTime(6_000));
            assert!(self.live_count() <= 1, "two processes run at once");
        }
    }
}

fn new_vacate(reason: VacateReason, purge: bool) -> Vacate {
    Vacate {
        reason,
        detail: String::new(),
        since: Timestamp::from_unix_ms(1),
        purge,
    }
}
