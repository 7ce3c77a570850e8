use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, WorkKind};
use proptest::prelude::*;

use super::*;
use crate::{
    departures::disruption::{Candidate, may_leave},
    input::snapshot::BlockEffect,
    output::plan::{Vacate, VacateReason},
    tests::fixture::{Fixture, node_name, work_id},
};

const PROCESS: Leaver = Leaver {
    process_of_a_service: true,
    time_is_over: false,
    taken_over: false,
    moved_by_order: false,
    awaits_its_start: false,
};

#[test]
fn the_way_a_process_leaves_follows_from_its_facts() {
    let part_of_a_job = Leaver {
        process_of_a_service: false,
        ..PROCESS
    };
    let taken_over = Leaver {
        taken_over: true,
        ..PROCESS
    };
    let moved_by_order = Leaver {
        moved_by_order: true,
        ..PROCESS
    };
    let awaits_its_start = Leaver {
        awaits_its_start: true,
        ..PROCESS
    };
    for (leaver, before, after) in [
        (PROCESS, Way::PlaceFirst, Way::Now),
        (part_of_a_job, Way::Now, Way::Now),
        // Scenario 29: its standby takes over.
        (taken_over, Way::Now, Way::Now),
        (moved_by_order, Way::Stay, Way::Now),
        (awaits_its_start, Way::Stay, Way::Now),
    ] {
        assert_eq!(way(&leaver), before, "{leaver:?}");
        let late = Leaver {
            time_is_over: true,
            ..leaver
        };
        assert_eq!(way(&late), after, "{late:?}");
    }
}

/// Simulation of rm-scheduler and container-manager while the nodes of services are drained one
/// after the other.
struct Story {
    fixture: Fixture,
    drained: BTreeSet<NodeName>,
    limit: Option<u64>,
    /// Predecessor of each successor.
    follows: BTreeMap<AllocationId, AllocationId>,
}

impl Story {
    fn new(
        node_quanta: &[u64],
        services: &[(u64, u64)],
        limit: Option<u64>,
        departure: u64,
    ) -> Self {
        let mut fixture = Fixture::new().nodes(node_quanta);
        fixture.departure = departure;
        for (at, (processes, order)) in services.iter().enumerate() {
            for process in 0..*processes {
                fixture.service(&format!("svc_{at}.{process}"), "ann", *order);
            }
        }
        Self {
            fixture,
            drained: BTreeSet::new(),
            limit,
            follows: BTreeMap::new(),
        }
    }

    fn drain(&mut self, node: &str) {
        self.fixture.block(node, BlockEffect::Mark);
        self.drained.insert(node_name(node));
    }

    /// Returns true if the allocation exists but may not start yet, because its predecessor has not
    /// ended.
    fn is_held(&self, id: &AllocationId) -> bool {
        let before = self.follows.get(id);
        before.is_some_and(|it| self.fixture.snapshot.allocations.contains_key(it))
    }

    fn of_work(&self, work: &WorkId) -> Vec<AllocationId> {
        let all = self.fixture.snapshot.allocations.iter();
        let ours = all.filter(|(_, it)| it.work == *work);
        ours.map(|(id, _)| id.clone()).collect()
    }

    fn sought(&self) -> Vec<(AllocationId, WorkId)> {
        let all = || self.fixture.snapshot.allocations.iter();
        let goes = |(id, it): &(&AllocationId, &crate::input::snapshot::Allocation)| {
            let leaver = Leaver {
                awaits_its_start: self.is_held(id),
                ..PROCESS
            };
            let here = self.drained.contains(&it.node) && !it.leaving;
            here && way(&leaver) == Way::PlaceFirst
        };
        let candidates: Vec<_> = all().filter(goes).collect();
        let work_record: Vec<Candidate> = candidates
            .iter()
            .map(|(_, it)| Candidate {
                group: it.work.whole(),
                limit: self.limit,
                at_once: false,
            })
            .collect();
        let mut moving: BTreeMap<WorkId, u64> = BTreeMap::new();
        for id in self.follows.values() {
            if let Some(it) = self.fixture.snapshot.allocations.get(id) {
                *moving.entry(it.work.whole()).or_default() += 1;
            }
        }
        let may = may_leave(&work_record, &moving);
        let chosen = candidates.into_iter().zip(may).filter(|(_, may)| *may);
        chosen
            .map(|((id, it), _)| (id.clone(), it.work.clone()))
            .collect()
    }

    fn step(&mut self) {
        let sought = self.sought();
        self.leaving(&sought, true);
        let mut plan = self.fixture.plan();
        let works: Vec<WorkId> = sought.iter().map(|(_, work)| work.clone()).collect();
        let found = found(&works, &plan.grants);
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for (one, found) in sought.into_iter().zip(found) {
            let side = if found { &mut go } else { &mut stay };
            side.push(one);
        }
        self.leaving(&stay, false);
        plan.vacates.extend(go.iter().map(|(id, _)| Vacate {
            allocation: id.clone(),
            reason: VacateReason::Blocked,
            detail: "a test says so".into(),
            purge: false,
        }));
        let before: BTreeSet<AllocationId> =
            self.fixture.snapshot.allocations.keys().cloned().collect();
        self.fixture.carry_out(&plan);
        for (id, work) in go {
            let fresh = self.of_work(&work);
            let fresh = fresh.into_iter().find(|it| !before.contains(it));
            self.follows.insert(fresh.expect("its grant"), id);
        }
    }

    fn leaving(&mut self, leaving_allocations: &[(AllocationId, WorkId)], leaving: bool) {
        for (id, _) in leaving_allocations {
            let known = self.fixture.snapshot.allocations.get_mut(id);
            known.expect("it is there").leaving = leaving;
        }
    }

    fn holds_what_it_should(&self) -> Result<(), TestCaseError> {
        let snapshot = &self.fixture.snapshot;
        for work in snapshot.demand.keys() {
            let all = self.of_work(work);
            let started = all.iter().filter(|id| !self.is_held(id)).count();
            prop_assert_eq!(started, 1, "of {}: one runs, always", work);
            prop_assert!(all.len() <= 2, "of {}: {:?}", work, all);
        }
        for (name, node) in &snapshot.nodes {
            let here = snapshot.allocations.values().filter(|it| it.node == *name);
            let used: u64 = here.map(|it| it.size.memory_bytes).sum();
            prop_assert!(
                used <= node.capacity.memory_bytes,
                "{} holds too much",
                name
            );
        }
        Ok(())
    }

    fn on_drained(&self) -> usize {
        let all = self.fixture.snapshot.allocations.values();
        all.filter(|it| self.drained.contains(&it.node)).count()
    }
}

fn services() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1..4_u64, 1..3_u64), 1..4)
}

proptest! {
    // Each case takes about a hundred rounds, so there are few cases.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// One process of each service runs at any time, and no node is overcommitted, whatever the
    /// free space. A process without a new place stays where it is.
    #[test]
    fn one_process_of_each_service_runs_during_an_evacuation(
        services in services(),
        spare in 0..6_u64,
        limit in prop::option::of(1..3_u64),
        departure in 1..4_u64,
        second in 0..8_usize,
    ) {
        let needed: u64 = services.iter().map(|(count, order)| count * order).sum();
        let mut story = Story::new(&[needed, 0, 0], &services, limit, departure);
        while story.fixture.snapshot.allocations.len() < story.fixture.snapshot.demand.len() {
            story.step();
        }
        story.holds_what_it_should()?;
        for (name, quanta) in [("n01", spare), ("n02", needed)] {
            story.fixture.node_in("default", name, quanta);
        }
        story.fixture.block("n02", BlockEffect::Mark);
        story.drain("n00");
        for round in 0..12 {
            if round == second {
                story.drain("n01");
            }
            story.step();
            story.holds_what_it_should()?;
        }
        prop_assert!(spare >= needed || story.on_drained() > 0);
        // With enough space for all, every drained node is empty in the end.
        story.fixture.node("n02").block = None;
        story.drain("n01");
        for _ in 0..80 {
            story.step();
            story.holds_what_it_should()?;
        }
        prop_assert_eq!(story.on_drained(), 0);
    }

}

proptest! {
    /// Each grant serves as a place for one process only.
    #[test]
    fn a_grant_serves_one_process(
        sought in prop::collection::vec(0..4_usize, 0..8),
        granted in prop::collection::vec(0..4_usize, 0..8),
    ) {
        let name = |at: &usize| work_id(&format!("svc_{at}.0"));
        let grants: Vec<Grant> = granted.iter().map(|at| grant(name(at))).collect();
        let works: Vec<WorkId> = sought.iter().map(name).collect();
        let found = found(&works, &grants);
        for at in 0..4 {
            let of = |all: &[usize]| all.iter().filter(|it| **it == at).count();
            let placed = sought.iter().zip(&found).filter(|(it, found)| **it == at && **found);
            prop_assert_eq!(placed.count(), of(&sought).min(of(&granted)));
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
        order: 1,
        size: hayward_vocabulary::Size::default(),
        fixed: true,
        gpus: Vec::new(),
        group: None,
    }
}
