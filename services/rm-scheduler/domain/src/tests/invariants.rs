//! Invariants of each round, in random fleets with random events and any delay of departures. Most
//! tests use the reference settings, which switch off all improvements on the specification.
//!
//! `Fixture::plan` also runs the check on each plan.

mod evenness;

use std::collections::BTreeMap;

use hayward_vocabulary::WorkKind;
use hayward_vocabulary::invariant_finding::{Finding, Outcome as CheckOutcome};
use proptest::prelude::*;

use super::fixture::{Fixture, GIB, share, terms};
use crate::{
    FairShare, Plan, Planner, Snapshot,
    fleet_invariants::{
        Memory, Sequence, WaitCheckInput, check_explanations, check_over_commit,
        check_work_conserving,
    },
    input::{
        settings::Settings,
        snapshot::{Policy, Pool},
    },
    output::plan::{VacateReason, WorkShare},
};

#[derive(Debug, Clone)]
struct WorkSpec {
    /// 0 is a reservation, 1 and 2 are services, and 3 is a job in class `fixed`. Greater numbers
    /// are jobs in a FAIR_SHARE class.
    kind: u8,
    user: u8,
    class: u8,
    quanta: u64,
    cap: u64,
    tasks: u64,
    /// Whether the work has a node list.
    listed: bool,
}

/// An event between two rounds. Work and nodes are given by number.
#[derive(Debug, Clone)]
enum FleetEvent {
    WorkSubmitted(WorkSpec),
    WorkWithdrawn(u8),
    NodeLost(u8),
    NodeReturned(u8),
    NodeOffline(u8),
    NodeResized(u8, u64),
    Unchanged,
}

fn work_spec() -> impl Strategy<Value = WorkSpec> {
    let cap = prop_oneof![Just(1_000_u64), 0..12_u64];
    let listed = prop::bool::weighted(0.1);
    (0..10_u8, 0..6_u8, 0..5_u8, 1..6_u64, cap, 1..60_u64, listed).prop_map(
        |(kind, user, class, quanta, cap, tasks, listed)| WorkSpec {
            kind,
            user,
            class,
            quanta,
            cap,
            tasks,
            listed,
        },
    )
}

fn event_lists() -> impl Strategy<Value = Vec<FleetEvent>> {
    let event = prop_oneof![
        4 => work_spec().prop_map(FleetEvent::WorkSubmitted),
        1 => (0..12_u8).prop_map(FleetEvent::WorkWithdrawn),
        1 => (0..8_u8).prop_map(FleetEvent::NodeLost),
        1 => (0..8_u8).prop_map(FleetEvent::NodeReturned),
        1 => (0..8_u8).prop_map(FleetEvent::NodeOffline),
        1 => (0..8_u8, 0..9_u64).prop_map(|(node, quanta)| FleetEvent::NodeResized(node, quanta)),
        3 => Just(FleetEvent::Unchanged),
    ];
    prop::collection::vec(event, 4..24)
}

/// Returns a fleet with pools of three levels, classes with random weights, and a second tree. Each
/// node is given by its quanta and the number of its pool.
fn fleet(nodes: &[(u64, u8)], weights: &[u64], departure_rounds: u64) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.departure_rounds = departure_rounds;
    fixture.snapshot.tunables.settings = Settings::reference();
    fixture.snapshot.tunables.fragmentation_threshold = 2;
    fixture.snapshot.tunables.reserve_overage_bytes = Some(GIB);
    fixture.snapshot.tunables.global_allotment_bytes = Some(9 * GIB);
    for (position, (name, parent)) in (1_u64..).zip([
        ("below", Some("default")),
        ("deep", Some("below")),
        ("beside", Some("default")),
        ("other", None),
    ]) {
        let pool = Pool {
            parent: parent.map(str::to_owned),
            search_order: i64::try_from(position).unwrap(),
            position,
            quantum: None,
        };
        fixture.snapshot.pools.insert(name.into(), pool);
    }
    for (name, priority, pool) in [
        ("a", 10, "default"),
        ("b", 10, "below"),
        ("c", 20, "default"),
        ("d", 10, "other"),
    ] {
        let weight = weights[usize::try_from(priority).unwrap() % weights.len()];
        fixture.class(name, terms(Policy::FairShare, priority, weight), pool);
    }
    for (index, (quanta, pool)) in nodes.iter().enumerate() {
        let pool = ["default", "below", "deep", "beside", "other"][usize::from(*pool % 5)];
        fixture.node_in(pool, &format!("n{index:02}"), *quanta);
    }
    fixture
}

fn add_work(fixture: &mut Fixture, id: &str, work_spec: &WorkSpec) {
    let user = format!("u{}", work_spec.user);
    let demand = match work_spec.kind {
        0 => fixture.reservation(id, &user, work_spec.quanta),
        1 | 2 => {
            let demand = fixture.service(id, &user, work_spec.quanta);
            demand.class = Some("fixed".into());
            demand
        }
        3 => {
            let demand = fixture.job(id, &user, work_spec.quanta);
            demand.class = Some("fixed".into());
            demand
        }
        _ => {
            let demand = fixture.job(id, &user, work_spec.quanta);
            let class = ["fair", "a", "b", "c", "d"][usize::from(work_spec.class % 5)];
            demand.class = Some(class.into());
            demand
        }
    };
    if demand.kind == WorkKind::Job {
        (demand.max_processes, demand.remaining_tasks) = (work_spec.cap, work_spec.tasks);
    }
    if work_spec.listed {
        demand.node_list = ["n00", "n01"].map(crate::tests::fixture::node_name).into();
    }
}

fn apply_event(fixture: &mut Fixture, index: usize, event: &FleetEvent) {
    let mut node = |number: &u8| {
        let name = format!("n{:02}", usize::from(*number));
        fixture
            .snapshot
            .nodes
            .get_mut(name.as_str())
            .cloned()
            .map(|node| (name, node))
    };
    match event {
        FleetEvent::WorkSubmitted(work_spec) => {
            add_work(fixture, &format!("w{index:02}"), work_spec);
        }
        FleetEvent::WorkWithdrawn(number) => {
            fixture
                .snapshot
                .demand
                .remove(format!("w{number:02}").as_str());
        }
        FleetEvent::NodeLost(number) => {
            if let Some((name, _)) = node(number) {
                fixture.node(&name).lost = true;
            }
        }
        FleetEvent::NodeReturned(number) => {
            if let Some((name, _)) = node(number) {
                (fixture.node(&name).lost, fixture.node(&name).offline) = (false, false);
            }
        }
        FleetEvent::NodeOffline(number) => {
            if let Some((name, _)) = node(number) {
                fixture.node(&name).offline = true;
            }
        }
        FleetEvent::NodeResized(number, quanta) => {
            if let Some((name, _)) = node(number) {
                fixture.node(&name).capacity.memory_bytes = quanta * GIB;
            }
        }
        FleetEvent::Unchanged => {}
    }
}

/// Returns the shares of all work that is not refused.
fn shares(plan: &Plan, snapshot: &Snapshot) -> BTreeMap<String, WorkShare> {
    let accepted = snapshot.demand.keys().filter(|id| {
        let verdict = &plan.verdicts[*id];
        !verdict.refused
    });
    accepted
        .map(|id| (id.to_string(), share(plan, id.as_str())))
        .collect()
}

/// Asserts that work has at most its entitlement, or as many processes as before. Asserts also that
/// fixed work is not preempted (I-3).
fn assert_within_bounds(fixture: &Fixture, plan: &Plan, before: &BTreeMap<String, WorkShare>) {
    let now = shares(plan, &fixture.snapshot);
    for (id, share) in &now {
        let demand = &fixture.snapshot.demand[id.as_str()];
        let current_before = before.get(id).map_or(0, |before| before.current);
        let held = share.current + share.leaving;
        if demand.kind == WorkKind::Job {
            assert!(share.counted <= share.wanted, "{id}: {share:?}");
        }
        assert!(
            share.current <= share.counted.max(current_before),
            "{id}: {share:?}"
        );
        assert!(held >= share.current);
    }
    for vacate in &plan.vacates {
        let allocation = &fixture.snapshot.allocations[&vacate.allocation];
        assert!(
            !allocation.fixed || vacate.reason != VacateReason::Preempted,
            "fixed work is preempted: {vacate:?}"
        );
    }
}

/// Asserts that waiting work within its entitlement fits on no node (I-9).
fn assert_no_fitting_hole(fixture: &Fixture, plan: &Plan) {
    let snapshot = &fixture.snapshot;
    let mut free: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, node) in &snapshot.nodes {
        let held = snapshot
            .allocations
            .values()
            .filter(|allocation| allocation.node == *name);
        let granted = plan.grants.iter().filter(|grant| grant.node == *name);
        let used: u64 = held
            .map(|allocation| allocation.quanta)
            .chain(granted.map(|grant| grant.quanta))
            .sum();
        let quanta = snapshot.quantum.quanta_of_node(&node.capacity);
        if node.is_schedulable() {
            free.insert(name.as_str(), quanta.saturating_sub(used));
        }
    }
    for (id, demand) in &snapshot.demand {
        let class = demand
            .class
            .as_deref()
            .filter(|_| demand.kind == WorkKind::Job);
        let Some(class) = class.map(|name| &snapshot.classes[name]) else {
            continue;
        };
        if class.policy != Policy::FairShare || class.pool == "below" {
            continue;
        }
        let share = share(plan, id.as_str());
        // Space that defragmentation frees in this round is for the needy work.
        let defragmented = plan
            .receipts
            .iter()
            .any(|receipt| receipt.beneficiary.is_some())
            || plan
                .verdicts
                .values()
                .any(|verdict| verdict.reason == crate::Reason::WaitingForDefragmentation);
        if share.counted <= share.current || defragmented || !demand.node_list.is_empty() {
            continue;
        }
        let is_in_other_tree = class.pool == "other";
        let fits = free.iter().any(|(name, free)| {
            let is_other_node = snapshot.nodes[*name].pool == "other";
            is_other_node == is_in_other_tree && *free >= share.quanta
        });
        assert!(!fits, "{id} could start: {share:?} {free:?}");
    }
}

/// The live checks of a fleet with their state, as in the scheduler.
struct LiveChecks {
    previous: Snapshot,
    sequence: Sequence,
    memory: Memory,
    unplanned: crate::SnapshotDelta,
}

impl LiveChecks {
    fn new(snapshot: &Snapshot) -> Self {
        let mut sequence = Sequence::default();
        sequence.restart(snapshot);
        Self {
            previous: snapshot.clone(),
            sequence,
            memory: Memory::default(),
            unplanned: crate::SnapshotDelta::default(),
        }
    }

    /// Records all changes since the previous snapshot.
    fn observe_snapshot(&mut self, now: &Snapshot) {
        for (name, node) in &now.nodes {
            let before = self.previous.nodes.get(name);
            if before != Some(node) {
                self.unplanned.nodes.insert(name.clone());
            }
            self.sequence.record_node(name, before, node);
        }
        for work in self.previous.demand.keys().chain(now.demand.keys()) {
            if self.previous.demand.get(work) != now.demand.get(work) {
                let demand = now.demand.get(work).cloned();
                self.unplanned.work.insert(work.clone(), demand);
            }
        }
        let ids = self
            .previous
            .allocations
            .keys()
            .chain(now.allocations.keys());
        for id in ids.collect::<std::collections::BTreeSet<_>>() {
            if self.previous.allocations.get(id) != now.allocations.get(id) {
                self.sequence
                    .record_allocation(id, now.allocations.contains_key(id));
                let held = now
                    .allocations
                    .get(id)
                    .or(self.previous.allocations.get(id));
                self.sequence.record_change_on_node(&held.unwrap().node);
                let allocation = now.allocations.get(id).cloned();
                self.unplanned.allocations.insert(id.clone(), allocation);
            }
        }
        self.previous = now.clone();
    }

    /// Records that a round reads the present state.
    fn record_round(&mut self) {
        self.sequence.record_round();
        self.unplanned = crate::SnapshotDelta::default();
    }

    /// Runs the live checks. `settled` is true if no round is due.
    fn run(&mut self, fixture: &Fixture, plan: &Plan, settled: bool) -> Vec<Finding> {
        let report = WaitCheckInput {
            snapshot: &fixture.snapshot,
            verdicts: &plan.verdicts,
            unplanned: &self.unplanned,
            settled,
            sequence: &self.sequence,
            round: plan.round,
            now_ms: plan.round * 1_000,
        };
        vec![
            check_over_commit(&fixture.snapshot, &self.sequence),
            check_explanations(&report),
            check_work_conserving(&report, &mut self.memory),
        ]
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_invariants_of_a_round_hold_in_any_fleet(
        nodes in prop::collection::vec((1..9_u64, 0..5_u8), 1..8),
        weights in prop::collection::vec(1..400_u64, 4),
        events in event_lists(),
        departure_rounds in 1..4_u64,
    ) {
        let mut fixture = fleet(&nodes, &weights, departure_rounds);
        let mut before = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            apply_event(&mut fixture, index, event);
            before.retain(|id: &String, _| fixture.snapshot.demand.contains_key(id.as_str()));
            let plan = fixture.plan();
            assert_within_bounds(&fixture, &plan, &before);
            assert_no_fitting_hole(&fixture, &plan);
            before = shares(&plan, &fixture.snapshot);
            fixture.step();
        }
    }

    #[test]
    fn the_live_checks_hold_after_every_round(
        nodes in prop::collection::vec((1..9_u64, 0..5_u8), 1..8),
        weights in prop::collection::vec(1..400_u64, 4),
        events in event_lists(),
        departure_rounds in 1..4_u64,
    ) {
        let mut fixture = fleet(&nodes, &weights, departure_rounds);
        fixture.snapshot.tunables.settings = Settings::default();
        let mut live_checks = LiveChecks::new(&fixture.snapshot);
        for (index, event) in events.iter().enumerate() {
            apply_event(&mut fixture, index, event);
            live_checks.observe_snapshot(&fixture.snapshot);
            live_checks.record_round();
            let plan = fixture.step();
            live_checks.observe_snapshot(&fixture.snapshot);
            for finding in live_checks.run(&fixture, &plan, true) {
                let holds = !matches!(finding.outcome, CheckOutcome::Violated { .. });
                prop_assert!(holds, "round {index}: {finding:#?}");
            }
        }
    }

    /// Processes end between rounds. Their space is free although work waits, because no round has
    /// read it yet.
    #[test]
    fn the_live_checks_hold_between_rounds(
        nodes in prop::collection::vec((1..9_u64, 0..5_u8), 1..8),
        weights in prop::collection::vec(1..400_u64, 4),
        events in event_lists(),
        freed in prop::collection::vec(0..40_usize, 24),
    ) {
        let mut fixture = fleet(&nodes, &weights, 1);
        fixture.snapshot.tunables.settings = Settings::default();
        let mut live_checks = LiveChecks::new(&fixture.snapshot);
        let mut plan = Plan::default();
        for (index, event) in events.iter().enumerate() {
            apply_event(&mut fixture, index, event);
            // A process that ends frees its space.
            let ended = fixture.snapshot.allocations.keys().nth(freed[index]).cloned();
            if let Some(id) = ended {
                fixture.snapshot.allocations.remove(&id);
            }
            live_checks.observe_snapshot(&fixture.snapshot);
            for finding in live_checks.run(&fixture, &plan, false) {
                let holds = !matches!(finding.outcome, CheckOutcome::Violated { .. });
                prop_assert!(holds, "before round {index}: {finding:#?}");
            }
            live_checks.record_round();
            plan = fixture.step();
            live_checks.observe_snapshot(&fixture.snapshot);
        }
    }

    /// A plan depends only on the snapshot, so a snapshot that was written and read again gives the
    /// same plan (I-12).
    #[test]
    fn a_restart_changes_no_plan(
        nodes in prop::collection::vec((1..9_u64, 0..5_u8), 1..8),
        events in event_lists(),
    ) {
        let mut fixture = fleet(&nodes, &[100, 50, 7, 300], 1);
        for (index, event) in events.iter().enumerate() {
            apply_event(&mut fixture, index, event);
            fixture.step();
        }
        let text = serde_json::to_string(&fixture.snapshot).unwrap();
        let restored: Snapshot = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(FairShare.schedule(&restored), FairShare.schedule(&fixture.snapshot));
    }
}
