//! A scheduler and nodes around the ledger, for the tests of exclusive processes.

use std::collections::VecDeque;

use hayward_container_manager_placement::Destination;
use hayward_rm_scheduler_api::{Vacate, VacateReason};
use hayward_vocabulary::{Processor, Role};

use super::*;
use crate::command::{NodeReport, SubmittedRequest, Target};

const WORK: &str = "svc_1.0";
const DEPLOYMENT: &str = "dep_1";
pub const NODES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Runs,
    IsEnding,
    Ended,
}

#[derive(Default)]
struct Node {
    desired: BTreeMap<AllocationId, Goal>,
    answers: Option<u64>,
    journal: BTreeMap<AllocationId, (u64, Process)>,
    sequence: u64,
    in_transit: VecDeque<(Option<u64>, Report)>,
    cut: bool,
    leased: bool,
}

pub struct Fleet {
    ledger: Ledger,
    nodes: Vec<Node>,
    /// Published by the scheduler.
    allocations: BTreeMap<AllocationId, AllocationEntry>,
    incarnation: u64,
    revision: u64,
    epoch: u64,
    now_ms: u64,
    orders: u32,
}

fn node(at: usize) -> NodeName {
    NodeName::new(format!("n{at}")).unwrap()
}

fn full<T>(entries: impl IntoIterator<Item = (String, T)>) -> Update<T> {
    Update {
        cursor: String::new(),
        full: true,
        changed: entries.into_iter().collect(),
        removed: Vec::new(),
    }
}

impl Fleet {
    pub fn new() -> Self {
        let leased = || Node {
            leased: true,
            ..Node::default()
        };
        let mut fleet = Self {
            ledger: empty(),
            nodes: (0..NODES).map(|_| leased()).collect(),
            allocations: BTreeMap::new(),
            incarnation: 0,
            revision: 0,
            epoch: 1,
            now_ms: 1_000,
            orders: 0,
        };
        fleet.sync();
        fleet
    }

    fn act(&mut self, act: impl FnOnce(&mut Ledger, &Moment, &mut Batch<Rows>)) {
        self.revision += 1;
        let moment = Moment {
            now: Timestamp::from_unix_ms(self.now_ms.try_into().unwrap()),
            monotonic_ms: self.now_ms,
            epoch: self.epoch,
            ..moment(self.revision)
        };
        let mut batch = Batch::default();
        act(&mut self.ledger, &moment, &mut batch);
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
        self.act(|ledger, moment, batch| {
            ledger.absorb_processors(full([(WORK.to_owned(), processor)]), moment, batch);
            ledger.absorb_closed(full([]), moment, batch);
        });
        let all = self.allocations.values();
        let all: Vec<_> = all.map(|it| (it.id.to_string(), it.clone())).collect();
        self.act(|ledger, moment, batch| ledger.absorb_allocations(full(all), moment, batch));
    }

    /// A new term on the same rows.
    fn restart_manager(&mut self) {
        self.epoch += 1;
        let old = std::mem::replace(&mut self.ledger, empty());
        self.ledger.placements = old.placements.reloaded();
        for container in old.containers.into_values() {
            self.ledger.insert(container);
        }
        self.sync();
    }

    fn publish(&mut self, changed: &[AllocationId]) {
        let entries = changed.iter().map(|id| self.allocations[id].clone());
        let update = update(false, &entries.collect::<Vec<_>>(), &[]);
        self.act(|ledger, moment, batch| ledger.absorb_allocations(update, moment, batch));
    }

    /// The allocation that was not ordered to leave.
    fn staying(&self) -> Option<AllocationId> {
        let mut all = self.allocations.values();
        let found = all.find(|it| it.holds() && it.vacate.is_none());
        found.map(|it| it.id.clone())
    }

    fn leave(&mut self, cause: Cause, named: bool) {
        let Some(id) = self.staying() else { return };
        let reason = match cause {
            Cause::NodeEvacuated
            | Cause::WorkerEvacuated
            | Cause::BlockedForJob
            | Cause::EvacuatedGradually => VacateReason::Blocked,
            Cause::Drained | Cause::DrainDeadline => VacateReason::Drained,
            Cause::Preempted => VacateReason::Preempted,
            Cause::FailedOver => VacateReason::NodeOffline,
            Cause::Redeployed => VacateReason::WorkGone,
            Cause::Moved => return self.order(Destination::AnyHost),
            Cause::Restarted => return self.order(Destination::LastSeen),
            Cause::RestartedByForce => return self.order(Destination::ForceRestartLastSeen),
            Cause::EndedByItself => return self.crash(&id),
        };
        self.allocations.get_mut(&id).unwrap().vacate = Some(vacate(reason, false));
        let mut changed = vec![id.clone()];
        // The same round grants the successor, except for these causes.
        let at_once = [Cause::Preempted, Cause::FailedOver, Cause::Redeployed];
        if !at_once
            .iter()
            .any(|it| std::mem::discriminant(it) == std::mem::discriminant(&cause))
        {
            let always = matches!(cause, Cause::Drained | Cause::EvacuatedGradually);
            let before = Some(id).filter(|_| named || always);
            let at = usize::try_from(self.incarnation).unwrap() % NODES;
            changed.push(self.allot(at, before, None));
        }
        self.publish(&changed);
    }

    fn order(&mut self, destination: Destination) {
        self.orders += 1;
        let submitted = SubmittedRequest {
            uuid: format!("u{}", self.orders),
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
        self.act(|ledger, moment, batch| {
            ledger.submit(submitted, &None, moment, batch).unwrap();
        });
    }

    fn crash(&mut self, id: &AllocationId) {
        for node in &mut self.nodes {
            if let Some((_, process)) = node.journal.get_mut(id) {
                *process = Process::Ended;
            }
        }
    }

    fn allot(
        &mut self,
        at: usize,
        predecessor: Option<AllocationId>,
        request: Option<String>,
    ) -> AllocationId {
        self.incarnation += 1;
        let entry = AllocationEntry {
            // Ids are not in order of granting, because changes of one batch are applied by id.
            id: AllocationId::new(format!("alc_{:03}", (self.incarnation * 37) % 997)).unwrap(),
            work: WORK.parse().unwrap(),
            kind: WorkKind::Service,
            node: node(at),
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

    /// Grants an open request, or else the demand of the process.
    fn grant(&mut self, at: usize, named: bool) {
        let open = self.ledger.requests(DEPLOYMENT, &None).unwrap();
        let answered = |id: &str| {
            let mut all = self.allocations.values();
            all.any(|it| it.request.as_deref() == Some(id) && it.holds())
        };
        let open_request = open.into_iter().find(|it| !answered(&it.id));
        let holding = self.allocations.values().find(|it| it.holds());
        let before = holding.map(|it| it.id.clone()).filter(|_| named);
        let id = match open_request {
            Some(request) => self.allot(at, before, Some(request.id)),
            None if self.staying().is_none() => self.allot(at, before, None),
            None => return,
        };
        self.publish(&[id]);
    }

    fn learn_ends(&mut self) {
        let ended = |id: &AllocationId| {
            let known = self.ledger.containers.get(id);
            known.is_some_and(|it| it.life.has_ended())
        };
        let all = self.allocations.values().filter(|it| it.holds());
        let ended: Vec<AllocationId> = all.map(|it| it.id.clone()).filter(ended).collect();
        for id in &ended {
            self.allocations.get_mut(id).unwrap().state = AllocationState::Ended;
        }
        self.publish(&ended);
    }

    fn bury(&mut self) {
        let over: Vec<AllocationEntry> = self
            .allocations
            .values()
            .filter(|it| !it.holds())
            .cloned()
            .collect();
        self.allocations.retain(|_, it| it.holds());
        let update = update(false, &[], &over.iter().collect::<Vec<_>>());
        self.act(|ledger, moment, batch| ledger.absorb_allocations(update, moment, batch));
    }

    fn poll(&mut self, at: usize) {
        let here = self.ledger.by_node.get(&node(at)).into_iter().flatten();
        let desired = here.filter_map(|id| {
            let entry = self.ledger.containers.get(id)?.desired()?;
            Some((id.clone(), entry.goal))
        });
        let desired = desired.collect();
        let node = &mut self.nodes[at];
        if !node.cut {
            (node.desired, node.answers) = (desired, Some(self.revision));
        }
    }

    fn obey(&mut self, at: usize) {
        let containers = &self.allocations;
        let node = &mut self.nodes[at];
        for (id, goal) in &node.desired {
            let incarnation = containers.get(id).map_or(0, |it| it.incarnation);
            match (goal, node.journal.get_mut(id)) {
                (Goal::Run, None) if node.leased => {
                    node.journal
                        .insert(id.clone(), (incarnation, Process::Runs));
                }
                (Goal::Stop, None) => {
                    node.journal
                        .insert(id.clone(), (incarnation, Process::Ended));
                }
                (Goal::Stop, Some((_, process))) if *process == Process::Runs => {
                    *process = Process::IsEnding;
                }
                _ => {}
            }
        }
        let desired = &node.desired;
        node.journal
            .retain(|id, (_, process)| *process != Process::Ended || desired.contains_key(id));
        for (id, (_, process)) in &mut node.journal {
            if !desired.contains_key(id) && *process == Process::Runs {
                *process = Process::IsEnding;
            }
        }
    }

    fn end(&mut self, at: usize) {
        for (_, process) in self.nodes[at].journal.values_mut() {
            if *process == Process::IsEnding {
                *process = Process::Ended;
            }
        }
    }

    fn report(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.sequence += 1;
        let containers = node.journal.iter().map(|(id, (incarnation, process))| {
            let state = match process {
                Process::Runs => ContainerState::Running,
                Process::IsEnding => ContainerState::Stopping,
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
        node.in_transit.push_back((node.answers, report));
    }

    fn deliver(&mut self, at: usize) {
        if self.nodes[at].cut {
            return;
        }
        if let Some((answers, report)) = self.nodes[at].in_transit.pop_front() {
            let report = NodeReport {
                node: node(at),
                answers,
                report,
            };
            self.act(|ledger, moment, batch| {
                ledger.apply_report(&report, moment, batch).unwrap();
            });
        }
    }

    /// Running work ends, and work not yet started never starts (decision 0014).
    fn lease_runs_out(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.cut {
            return;
        }
        node.leased = false;
        for id in node.desired.keys() {
            let unknown = || {
                (
                    self.allocations.get(id).map_or(0, |it| it.incarnation),
                    Process::Ended,
                )
            };
            node.journal.entry(id.clone()).or_insert_with(unknown);
        }
        for (_, process) in node.journal.values_mut() {
            *process = Process::Ended;
        }
    }

    /// A node is declared lost only after its lease has expired.
    fn give_up(&mut self, at: usize) {
        if self.nodes[at].leased {
            return;
        }
        let mut lost = Vec::new();
        for it in self.allocations.values_mut() {
            if it.node == node(at) && it.holds() {
                it.vacate = Some(vacate(VacateReason::NodeLost, true));
                it.state = AllocationState::Ended;
                lost.push(it.id.clone());
            }
        }
        self.publish(&lost);
    }

    fn heal(&mut self, at: usize) {
        (self.nodes[at].cut, self.nodes[at].leased) = (false, true);
    }

    pub fn apply(&mut self, act: &Act) {
        match act {
            Act::Leave(cause, named) => self.leave(*cause, *named),
            Act::Grant(at, named) => self.grant(*at, *named),
            Act::LearnEnds => self.learn_ends(),
            Act::Bury => self.bury(),
            Act::Poll(at) => self.poll(*at),
            Act::Obey(at) => self.obey(*at),
            Act::End(at) => self.end(*at),
            Act::Report(at) => self.report(*at),
            Act::Deliver(at) => self.deliver(*at),
            Act::Cut(at) => self.nodes[*at].cut = true,
            Act::LeaseRunsOut(at) => self.lease_runs_out(*at),
            Act::GiveUp(at) => self.give_up(*at),
            Act::Heal(at) => self.heal(*at),
            Act::RestartManager => self.restart_manager(),
            Act::Pass(ms) => {
                self.now_ms += ms;
                self.act(|_, _, _| ());
            }
        }
    }

    pub fn alive(&self) -> usize {
        let all = self.nodes.iter().flat_map(|it| it.journal.values());
        all.filter(|(_, process)| *process != Process::Ended)
            .count()
    }

    /// All parts act without failures.
    pub fn settle(&mut self) {
        for round in 0..40 {
            self.grant(round % NODES, true);
            for at in 0..NODES {
                self.heal(at);
                for act in [Act::Poll(at), Act::Obey(at), Act::End(at), Act::Obey(at)] {
                    self.apply(&act);
                }
                self.report(at);
                while !self.nodes[at].in_transit.is_empty() {
                    self.deliver(at);
                }
            }
            self.learn_ends();
            self.apply(&Act::Pass(6_000));
            assert!(self.alive() <= 1, "two run at once");
        }
    }
}

fn vacate(reason: VacateReason, purge: bool) -> Vacate {
    Vacate {
        reason,
        detail: String::new(),
        since: Timestamp::from_unix_ms(1),
        purge,
    }
}
