//! Departure modes, and a simulated drain in which one process of each service runs at any time.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, WorkKind};
use proptest::prelude::*;

use super::*;
use crate::{
    departures::disruption::{Candidate, may_leave},
    input::snapshot::{Allocation, BlockEffect},
    output::plan::{Vacate, VacateReason},
    tests::fixture::{Fixture, node_name, work_id},
};

/// Process of a service that must leave, without any special fact.
const PROCESS: LeavingProcess = LeavingProcess {
    is_service_process: true,
    deadline_passed: false,
    standby_takes_over: false,
    move_ordered: false,
    awaits_predecessor: false,
};

#[test]
fn the_departure_mode_follows_from_the_facts_about_a_process() {
    let process_of_job = LeavingProcess {
        is_service_process: false,
        ..PROCESS
    };
    let standby_takes_over = LeavingProcess {
        standby_takes_over: true,
        ..PROCESS
    };
    let move_ordered = LeavingProcess {
        move_ordered: true,
        ..PROCESS
    };
    let awaits_predecessor = LeavingProcess {
        awaits_predecessor: true,
        ..PROCESS
    };
    for (process, expected, expected_late) in [
        (PROCESS, DepartureMode::AfterSuccessor, DepartureMode::Now),
        (process_of_job, DepartureMode::Now, DepartureMode::Now),
        // The standby takes over, so no successor is needed (scenario 29).
        (standby_takes_over, DepartureMode::Now, DepartureMode::Now),
        (move_ordered, DepartureMode::Stay, DepartureMode::Now),
        (awaits_predecessor, DepartureMode::Stay, DepartureMode::Now),
    ] {
        assert_eq!(departure_mode(&process), expected, "{process:?}");
        let past_deadline = LeavingProcess {
            deadline_passed: true,
            ..process
        };
        assert_eq!(
            departure_mode(&past_deadline),
            expected_late,
            "{past_deadline:?}"
        );
    }
}

/// Simulation of rm-scheduler and container-manager while the nodes of services are drained one
/// after the other.
struct DrainSimulation {
    fixture: Fixture,
    drained: BTreeSet<NodeName>,
    /// Disruption limit of each service.
    limit: Option<u64>,
    /// Predecessor of each successor.
    predecessors: BTreeMap<AllocationId, AllocationId>,
}

impl DrainSimulation {
    fn new(
        node_quanta: &[u64],
        services: &[(u64, u64)],
        limit: Option<u64>,
        departure_rounds: u64,
    ) -> Self {
        let mut fixture = Fixture::new().nodes(node_quanta);
        fixture.departure_rounds = departure_rounds;
        for (index, (processes, quanta)) in services.iter().enumerate() {
            for process in 0..*processes {
                fixture.service(&format!("svc_{index}.{process}"), "ann", *quanta);
            }
        }
        Self {
            fixture,
            drained: BTreeSet::new(),
            limit,
            predecessors: BTreeMap::new(),
        }
    }

    fn drain(&mut self, node: &str) {
        self.fixture.block(node, BlockEffect::Mark);
        self.drained.insert(node_name(node));
    }

    /// Returns true if the allocation exists but may not start yet, because its predecessor has not
    /// ended.
    fn waits_for_predecessor(&self, id: &AllocationId) -> bool {
        let predecessor = self.predecessors.get(id);
        predecessor.is_some_and(|id| self.fixture.snapshot.allocations.contains_key(id))
    }

    fn allocations_of(&self, work: &WorkId) -> Vec<AllocationId> {
        let all = self.fixture.snapshot.allocations.iter();
        let of_work = all.filter(|(_, allocation)| allocation.work == *work);
        of_work.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the processes on drained nodes that the disruption limits allow to move now.
    fn processes_to_move(&self) -> Vec<(AllocationId, WorkId)> {
        let all = || self.fixture.snapshot.allocations.iter();
        let must_move = |(id, allocation): &(&AllocationId, &Allocation)| {
            let process = LeavingProcess {
                awaits_predecessor: self.waits_for_predecessor(id),
                ..PROCESS
            };
            let is_on_drained_node = self.drained.contains(&allocation.node) && !allocation.leaving;
            is_on_drained_node && departure_mode(&process) == DepartureMode::AfterSuccessor
        };
        let candidates: Vec<_> = all().filter(must_move).collect();
        let disruption_candidates: Vec<Candidate> = candidates
            .iter()
            .map(|(_, allocation)| Candidate {
                group: allocation.work.parent(),
                limit: self.limit,
                at_once: false,
            })
            .collect();
        let mut moving: BTreeMap<WorkId, u64> = BTreeMap::new();
        for id in self.predecessors.values() {
            if let Some(allocation) = self.fixture.snapshot.allocations.get(id) {
                *moving.entry(allocation.work.parent()).or_default() += 1;
            }
        }
        let may_leave_now = may_leave(&disruption_candidates, &moving);
        let chosen = candidates
            .into_iter()
            .zip(may_leave_now)
            .filter(|(_, may_leave_now)| *may_leave_now);
        chosen
            .map(|((id, allocation), _)| (id.clone(), allocation.work.clone()))
            .collect()
    }

    /// Plans a round as if the processes to move were leaving. Vacates those with a successor.
    fn step(&mut self) {
        let to_move = self.processes_to_move();
        self.set_leaving(&to_move, true);
        let mut plan = self.fixture.plan();
        let work: Vec<WorkId> = to_move.iter().map(|(_, work)| work.clone()).collect();
        let has_successor = match_grants(&work, &plan.grants);
        let (mut stay, mut leave) = (Vec::new(), Vec::new());
        for (process_to_move, has_successor) in to_move.into_iter().zip(has_successor) {
            let list = if has_successor { &mut leave } else { &mut stay };
            list.push(process_to_move);
        }
        self.set_leaving(&stay, false);
        plan.vacates.extend(leave.iter().map(|(id, _)| Vacate {
            allocation: id.clone(),
            reason: VacateReason::Blocked,
            detail: "its node is drained".into(),
            purge: false,
        }));
        let before: BTreeSet<AllocationId> =
            self.fixture.snapshot.allocations.keys().cloned().collect();
        self.fixture.carry_out(&plan);
        for (id, work) in leave {
            let successor = self.allocations_of(&work);
            let successor = successor.into_iter().find(|id| !before.contains(id));
            self.predecessors
                .insert(successor.expect("the grant of the successor"), id);
        }
    }

    fn set_leaving(&mut self, allocations: &[(AllocationId, WorkId)], leaving: bool) {
        for (id, _) in allocations {
            let known = self.fixture.snapshot.allocations.get_mut(id);
            known.expect("the allocation exists").leaving = leaving;
        }
    }

    fn check_invariants(&self) -> Result<(), TestCaseError> {
        let snapshot = &self.fixture.snapshot;
        for work in snapshot.demand.keys() {
            let all = self.allocations_of(work);
            let started = all
                .iter()
                .filter(|id| !self.waits_for_predecessor(id))
                .count();
            prop_assert_eq!(started, 1, "{}: not exactly one process runs", work);
            prop_assert!(all.len() <= 2, "{}: {:?}", work, all);
        }
        for (name, node) in &snapshot.nodes {
            let of_node = snapshot
                .allocations
                .values()
                .filter(|allocation| allocation.node == *name);
            let used: u64 = of_node.map(|allocation| allocation.size.memory_bytes).sum();
            prop_assert!(
                used <= node.capacity.memory_bytes,
                "{} holds too much",
                name
            );
        }
        Ok(())
    }

    fn count_on_drained_nodes(&self) -> usize {
        let all = self.fixture.snapshot.allocations.values();
        all.filter(|allocation| self.drained.contains(&allocation.node))
            .count()
    }
}

/// Generates the number of processes, and the quanta of one process, of each service.
fn services() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1..4_u64, 1..3_u64), 1..4)
}

proptest! {
    // Each case takes about a hundred rounds, so there are few cases.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// All processes start on `n00`, which is drained. `n01` has `spare_quanta`, and `n02` is
    /// closed until the end. One process of each service runs at any time, and no node is
    /// over-committed.
    #[test]
    fn one_process_of_each_service_runs_during_an_evacuation(
        services in services(),
        spare_quanta in 0..6_u64,
        limit in prop::option::of(1..3_u64),
        departure_rounds in 1..4_u64,
        second_drain_round in 0..8_usize,
    ) {
        let needed: u64 = services.iter().map(|(count, quanta)| count * quanta).sum();
        let nodes = [needed, 0, 0];
        let mut simulation = DrainSimulation::new(&nodes, &services, limit, departure_rounds);
        let services = simulation.fixture.snapshot.demand.len();
        while simulation.fixture.snapshot.allocations.len() < services {
            simulation.step();
        }
        simulation.check_invariants()?;
        for (name, quanta) in [("n01", spare_quanta), ("n02", needed)] {
            simulation.fixture.node_in("default", name, quanta);
        }
        simulation.fixture.block("n02", BlockEffect::Mark);
        simulation.drain("n00");
        for round in 0..12 {
            if round == second_drain_round {
                simulation.drain("n01");
            }
            simulation.step();
            simulation.check_invariants()?;
        }
        prop_assert!(spare_quanta >= needed || simulation.count_on_drained_nodes() > 0);
        // With enough space for all, every drained node is empty in the end.
        simulation.fixture.node("n02").block = None;
        simulation.drain("n01");
        for _ in 0..80 {
            simulation.step();
            simulation.check_invariants()?;
        }
        prop_assert_eq!(simulation.count_on_drained_nodes(), 0);
    }

}

proptest! {
    /// Each grant counts as the successor of one process only.
    #[test]
    fn a_grant_serves_one_process(
        to_move in prop::collection::vec(0..4_usize, 0..8),
        granted in prop::collection::vec(0..4_usize, 0..8),
    ) {
        let name = |index: &usize| work_id(&format!("svc_{index}.0"));
        let grants: Vec<Grant> = granted.iter().map(|index| grant(name(index))).collect();
        let work: Vec<WorkId> = to_move.iter().map(name).collect();
        let has_grant = match_grants(&work, &grants);
        for index in 0..4 {
            let count_of = |all: &[usize]| all.iter().filter(|other| **other == index).count();
            let of_index = to_move.iter().zip(&has_grant).filter(|(other, _)| **other == index);
            let placed = of_index.filter(|(_, has_grant)| **has_grant);
            prop_assert_eq!(placed.count(), count_of(&to_move).min(count_of(&granted)));
        }
    }
}

fn grant(work: WorkId) -> Grant {
    Grant {
        work,
        kind: WorkKind::Service,
        user: "ann".parse().unwrap(),
        class: "fixed".into(),
        node: node_name("n00"),
        quanta: 1,
        size: hayward_vocabulary::Size::default(),
        fixed: true,
        gpus: Vec::new(),
        group: None,
    }
}
