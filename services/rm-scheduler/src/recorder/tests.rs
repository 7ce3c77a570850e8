//! Tests with a fleet of one pool for fair shares and one pool with a queue. Each round is planned
//! and recorded as in the service, and the recorded rounds are read and replayed.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_capacity::Rounds;
use hayward_rm_scheduler_domain::plan::Shares;
use hayward_rm_scheduler_domain::snapshot::queues::{Acl, Queue, Queued, Queues};
use hayward_rm_scheduler_domain::snapshot::{
    Allocation, Class, Demand, Growth, Node, Policy, Pool,
};
use hayward_rm_scheduler_domain::{FairShare, Planner as _};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{AllocationId, Size, Timestamp, WorkKind};
use proptest::prelude::*;

use super::*;
use crate::replay::{Inputs, Replay};

const LIMITS: InputLimits = InputLimits {
    rounds: 1_000,
    bytes: 1 << 30,
    entries: 1_000,
};

/// A fleet whose snapshot is recorded round by round, as in the service.
struct Fleet {
    tracked: TrackedSnapshot,
    recorder: Recorder,
    rounds: Rounds,
    allocation_count: u64,
    /// Reason why the last round could not be recorded.
    skip_reason: Option<String>,
    stored: BTreeMap<u64, StoredRound>,
}

#[derive(Debug, PartialEq)]
struct StoredRound {
    /// First round of the chain.
    base: u64,
    /// `None` if the round exceeded the limits.
    body: Option<Vec<u8>>,
}

impl Fleet {
    fn new(limits: InputLimits) -> Self {
        let mut snapshot = Snapshot::empty();
        snapshot.pools.insert("default".into(), Pool::default());
        for (name, policy) in [("fair", Policy::FairShare), ("fixed", Policy::FixedShare)] {
            let class = Class {
                policy,
                priority: if name == "fair" { 10 } else { 5 },
                weight: 100,
                pool: "default".into(),
                default: true,
                users: BTreeSet::new(),
                position: 0,
                debug_class: None,
                growth: Growth::default(),
            };
            snapshot.classes.insert(name.into(), class);
        }
        // A pool with one queue, planned by the planner of queues.
        let submit = Acl {
            everyone: true,
            ..Acl::default()
        };
        let leaf = Queue {
            submit,
            ..Queue::default()
        };
        let mut queues = Queues::default();
        queues.root.children.insert("a".into(), leaf);
        snapshot.pools.insert("queued".into(), Pool::default());
        snapshot.queues.insert("queued".into(), queues);
        Self {
            tracked: TrackedSnapshot::new(snapshot),
            recorder: Recorder::new(limits),
            rounds: Rounds::default(),
            allocation_count: 0,
            skip_reason: None,
            stored: BTreeMap::new(),
        }
    }

    fn add_node(&mut self, number: u8, quanta: u64) {
        // Nodes are divided between the two pools.
        let pool = if number.is_multiple_of(2) {
            "default"
        } else {
            "queued"
        };
        let node = Node {
            pool: pool.into(),
            capacity: Size::memory(quanta * GIB),
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        self.tracked
            .set_node(format!("n{number}").parse().unwrap(), node);
    }

    fn submit(&mut self, number: u8, kind: WorkKind, quanta: u64) {
        let job = kind == WorkKind::Job;
        let demand = Demand {
            kind,
            user: format!("u{}", number % 3).parse().unwrap(),
            class: None,
            submitted_at: Timestamp::from_unix_ms(number.into()),
            size: Size::memory(quanta * GIB),
            max_processes: if job { 5 } else { 1 },
            remaining_tasks: 100,
            threads: 1,
            task_ms: job.then_some(900),
            node_list: BTreeSet::new(),
            avoids: BTreeSet::new(),
            service: None,
            anti_affinity: None,
            managed: false,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: None,
        };
        self.tracked
            .set_demand(format!("w{number}").parse().unwrap(), demand);
    }

    /// Plans a round, carries the plan out, and records the inputs if something changed. Returns
    /// the snapshot before the round, the plan, and whether something changed.
    fn run_round(&mut self) -> (Snapshot, Plan, bool) {
        let round = self.tracked.round + 1;
        self.tracked.set_round(round);
        self.tracked.set_now(self.tracked.now.plus_ms(1_000));
        let delta = self.tracked.take_unplanned();
        let decided = self.rounds.decide(&self.tracked, &delta);
        self.recorder.observe(&decided);
        let recorded_plan = PlanDiff::without_work(&decided.plan, self.rounds.sums());
        let plan = self.rounds.full_plan(decided);
        let before = self.tracked.clone();
        let inputs = self.recorder.take_delta(&mut self.tracked);
        self.skip_reason = inputs.as_ref().err().cloned();
        self.carry_out(&plan);
        let changed = !plan.is_empty();
        match inputs {
            Ok(inputs) if changed => {
                let all = || WorkChanges::all(plan.verdicts.clone(), plan.shares.clone());
                let unwritten = self.recorder.record(round, inputs, recorded_plan, all);
                let base = unwritten.base;
                let encoded = unwritten.encode().unwrap();
                let body = encoded.body;
                self.stored.insert(round, StoredRound { base, body });
            }
            Ok(inputs) => self.tracked.restore_unrecorded(inputs),
            Err(_) => {}
        }
        (before, plan, changed)
    }

    fn carry_out(&mut self, plan: &Plan) {
        self.tracked.set_carried(plan.carried.clone());
        for vacate in &plan.vacates {
            self.tracked.set_allocation(&vacate.allocation, None);
        }
        for grant in &plan.grants {
            self.allocation_count += 1;
            let id: AllocationId = format!("alc_{:06}", self.allocation_count).parse().unwrap();
            let allocation = Allocation {
                work: grant.work.clone(),
                kind: grant.kind,
                user: grant.user.clone(),
                class: grant.class.to_string(),
                node: grant.node.clone(),
                quanta: grant.quanta,
                size: grant.size.clone(),
                fixed: grant.fixed,
                granted_at: self.tracked.now,
                running: true,
                started_at: None,
                running_since: Some(self.tracked.now),
                investment_ms: None,
                item_ms: None,
                gpus: grant.gpus.clone(),
                group: grant.group.clone(),
                leaving: false,
                purged: false,
            };
            self.tracked.set_allocation(&id, Some(allocation));
        }
    }

    fn read_recorded(&self, round: u64) -> (Snapshot, Plan) {
        let base = self.stored[&round].base;
        let chain = self
            .stored
            .range(base..=round)
            .map(|(_, stored)| stored.body.as_ref().unwrap());
        decode(chain).unwrap()
    }
}

#[derive(Debug, Clone)]
enum FleetChange {
    /// Number and quanta of a node.
    AddNode(u8, u64),
    RemoveNode(u8),
    /// Number and quanta of the work.
    SubmitJob(u8, u64),
    SubmitService(u8, u64),
    /// Work in the queue. The work may have been in a class before.
    SubmitToQueue(u8),
    Withdraw(u8),
    /// New weight of the class `fair`.
    SetWeight(u64),
    Nothing,
}

fn fleet_change() -> impl Strategy<Value = FleetChange> {
    prop_oneof![
        (0..6_u8, 1..9_u64).prop_map(|(number, quanta)| FleetChange::AddNode(number, quanta)),
        (0..6_u8).prop_map(FleetChange::RemoveNode),
        (0..9_u8, 1..4_u64).prop_map(|(number, quanta)| FleetChange::SubmitJob(number, quanta)),
        (9..14_u8, 1..4_u64)
            .prop_map(|(number, quanta)| FleetChange::SubmitService(number, quanta)),
        (5..9_u8).prop_map(FleetChange::SubmitToQueue),
        (0..14_u8).prop_map(FleetChange::Withdraw),
        (1..300_u64).prop_map(FleetChange::SetWeight),
        Just(FleetChange::Nothing),
    ]
}

impl Fleet {
    fn apply(&mut self, change: &FleetChange) {
        match *change {
            FleetChange::AddNode(number, quanta) => self.add_node(number, quanta),
            FleetChange::RemoveNode(number) => self
                .tracked
                .remove_node(&format!("n{number}").parse().unwrap()),
            FleetChange::SubmitJob(number, quanta) => self.submit(number, WorkKind::Job, quanta),
            FleetChange::SubmitService(number, quanta) => {
                self.submit(number, WorkKind::Service, quanta);
            }
            FleetChange::SubmitToQueue(number) => {
                self.submit(number, WorkKind::Job, 1);
                let work = format!("w{number}").parse().unwrap();
                let queued = Queued {
                    queue: Some("a".into()),
                    ..Queued::default()
                };
                let demand = Demand {
                    queued: Some(Box::new(queued)),
                    ..self.tracked.demand[&work].clone()
                };
                self.tracked.set_demand(work, demand);
            }
            FleetChange::Withdraw(number) => self
                .tracked
                .remove_demand(&format!("w{number}").parse().unwrap()),
            FleetChange::SetWeight(weight) => self.tracked.replace_all(|snapshot| {
                snapshot.classes.get_mut("fair").unwrap().weight = weight;
            }),
            FleetChange::Nothing => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_recorded_round_of_random_fleets_is_replayed_to_the_byte(
        rounds in prop::collection::vec(prop::collection::vec(fleet_change(), 0..4), 1..25),
    ) {
        let mut fleet = Fleet::new(LIMITS);
        let mut expected = BTreeMap::new();
        for changes in &rounds {
            for change in changes {
                fleet.apply(change);
            }
            let (snapshot, plan, changed) = fleet.run_round();
            if changed {
                expected.insert(plan.round, (snapshot, plan));
            }
        }
        let stored_rounds: Vec<_> = fleet.stored.keys().collect();
        prop_assert_eq!(expected.keys().collect::<Vec<_>>(), stored_rounds);
        for (round, (snapshot, plan)) in expected {
            let (stored, planned) = fleet.read_recorded(round);
            prop_assert_eq!(&stored, &snapshot);
            prop_assert_eq!(&planned, &plan);
            let text = serde_json::to_string(&Inputs::new(stored, planned)).unwrap();
            let replay = Replay::read(&text).unwrap();
            let replayed = replay.compare(replay.plan()).unwrap();
            prop_assert!(replayed.equal, "{:#?}", replayed.differences);
        }
    }
}

/// Creates a fleet of four nodes with four jobs.
fn busy_fleet(limits: InputLimits) -> Fleet {
    let mut fleet = Fleet::new(limits);
    for number in 0..4 {
        fleet.add_node(number, 4);
        fleet.submit(number, WorkKind::Job, 1);
    }
    fleet
}

#[test]
fn a_chain_ends_when_its_deltas_are_as_large_as_its_first_round() {
    let mut fleet = busy_fleet(LIMITS);
    // More rounds than a chain may have.
    for number in 0..90_u8 {
        let work_number = 100 + number;
        fleet.submit(work_number, WorkKind::Service, 1);
        fleet.run_round();
        fleet
            .tracked
            .remove_demand(&format!("w{work_number}").parse().unwrap());
    }
    let bases: BTreeSet<u64> = fleet.stored.values().map(|it| it.base).collect();
    assert!(bases.len() > 2, "{bases:?}");
    for base in &bases {
        let size = |round: &u64| fleet.stored[round].body.as_ref().unwrap().len();
        let chain = fleet
            .stored
            .iter()
            .filter(|(_, stored)| stored.base == *base)
            .map(|(round, _)| round);
        let later: Vec<usize> = chain.skip(1).map(size).collect();
        assert!(later.len() as u64 <= MAX_CHAIN_ROUNDS);
        let all_but_last: usize = later.iter().rev().skip(1).sum();
        assert!(all_but_last <= size(base), "{later:?} after {}", size(base));
    }
}

#[test]
fn a_round_over_a_limit_is_not_stored_and_the_next_begins_a_chain() {
    let mut unrecorded = busy_fleet(InputLimits {
        rounds: 0,
        ..LIMITS
    });
    unrecorded.run_round();
    let why = unrecorded.skip_reason.clone().unwrap();
    assert!(why.contains("inputs_rounds"));
    assert!(unrecorded.stored.is_empty());

    let mut fleet = busy_fleet(InputLimits {
        entries: 10,
        ..LIMITS
    });
    fleet.run_round();
    assert_eq!(fleet.stored.len(), 1);
    fleet.submit(20, WorkKind::Service, 1);
    fleet.run_round();
    let why = fleet.skip_reason.clone().unwrap();
    assert!(why.contains("inputs_entries"), "{why}");
    assert_eq!(fleet.stored.len(), 1);
    for number in 0..4 {
        fleet
            .tracked
            .remove_demand(&format!("w{number}").parse().unwrap());
    }
    let ids: Vec<_> = fleet.tracked.allocations.keys().cloned().collect();
    for id in ids {
        fleet.tracked.set_allocation(&id, None);
    }
    fleet.submit(21, WorkKind::Service, 1);
    let (snapshot, plan, _) = fleet.run_round();
    let base = fleet.stored[&plan.round].base;
    assert_eq!(base, plan.round, "it begins a chain");
    assert_eq!(fleet.read_recorded(plan.round), (snapshot, plan));

    let mut small = busy_fleet(InputLimits { bytes: 4, ..LIMITS });
    let (_, plan, _) = small.run_round();
    let without_body = StoredRound {
        base: plan.round,
        body: None,
    };
    assert_eq!(small.stored[&plan.round], without_body);
    for number in 0..MAX_CHAIN_ROUNDS {
        small.run_round();
        assert!(
            small.skip_reason.is_some(),
            "round {number} after a failed chain is not recorded"
        );
    }
    small.run_round();
    assert_eq!(small.skip_reason, None, "another chain is tried");
}

#[test]
fn encoding_that_takes_too_long_is_given_up() {
    let mut fleet = busy_fleet(LIMITS);
    fleet.tracked.set_round(1);
    let plan = FairShare.schedule(&fleet.tracked);
    let inputs = fleet.recorder.take_delta(&mut fleet.tracked).unwrap();
    let recorded_plan = PlanDiff::without_work(&plan, &Shares::default());
    let unwritten = fleet
        .recorder
        .record(1, inputs, recorded_plan, WorkChanges::default);
    unwritten.chain_canceller()();
    assert_eq!(
        unwritten.encode().unwrap().body,
        None,
        "a cancelled chain stores no round"
    );
    fleet.run_round();
    assert!(fleet.skip_reason.is_some());
}

#[test]
fn a_different_plan_is_reported_by_its_first_differences() {
    let mut fleet = busy_fleet(LIMITS);
    let (snapshot, plan, _) = fleet.run_round();
    let text = serde_json::to_string(&Inputs::new(snapshot, plan)).unwrap();
    let other = text.replace("\"node\":\"n2\"", "\"node\":\"n4\"");
    assert_ne!(text, other);
    let replay = Replay::read(&other).unwrap();
    let replayed = replay.compare(replay.plan()).unwrap();
    assert!(!replayed.equal);
    let first = &replayed.differences[0];
    assert!(
        first.starts_with("/grants/") && first.ends_with("recorded \"n4\", now \"n2\""),
        "{first}"
    );

    let pretty: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pretty = serde_json::to_string_pretty(&pretty).unwrap();
    let replay = Replay::read(&pretty).unwrap();
    assert!(
        replay.compare(replay.plan()).unwrap().equal,
        "blanks do not count"
    );
    assert!(Replay::read(&text.replace("hayward-round/1", "hayward-round/9")).is_err());
}
