use std::collections::BTreeMap;

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
    born: u64,
    /// Reason why the last round could not be recorded.
    why: Option<String>,
    /// Base and bytes of each stored round.
    stored: BTreeMap<u64, (u64, Option<Vec<u8>>)>,
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
                users: std::collections::BTreeSet::new(),
                place: 0,
                debug: None,
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
            born: 0,
            why: None,
            stored: BTreeMap::new(),
        }
    }

    fn node(&mut self, at: u8, quanta: u64) {
        let shared = at.is_multiple_of(2);
        let pool = if shared { "default" } else { "queued" };
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
            .set_node(format!("n{at}").parse().unwrap(), node);
    }

    fn ask(&mut self, at: u8, kind: WorkKind, quanta: u64) {
        let job = kind == WorkKind::Job;
        let demand = Demand {
            kind,
            user: format!("u{}", at % 3).parse().unwrap(),
            class: None,
            submitted_at: Timestamp::from_unix_ms(at.into()),
            size: Size::memory(quanta * GIB),
            max_processes: if job { 5 } else { 1 },
            remaining_tasks: 100,
            threads: 1,
            task_ms: job.then_some(900),
            machines: std::collections::BTreeSet::new(),
            avoids: std::collections::BTreeSet::new(),
            service: None,
            apart: None,
            managed: false,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: None,
        };
        self.tracked
            .set_demand(format!("w{at}").parse().unwrap(), demand);
    }

    /// Plans, records the inputs if something changed, and carries the plan out.
    fn round(&mut self) -> (Snapshot, Plan, bool) {
        let round = self.tracked.round + 1;
        self.tracked.set_round(round);
        self.tracked.set_now(self.tracked.now.plus_ms(1_000));
        let news = self.tracked.unplanned();
        let decided = self.rounds.decide(&self.tracked, &news);
        self.recorder.observe(&decided);
        let rest = PlanDiff::rest_of(&decided.plan, self.rounds.sums());
        let plan = self.rounds.whole(decided);
        let before = self.tracked.clone();
        let inputs = self.recorder.take_delta(&mut self.tracked);
        self.why = inputs.as_ref().err().cloned();
        self.carry_out(&plan);
        let changed = !plan.is_empty();
        match inputs {
            Ok(inputs) if changed => {
                let all = || WorkChanges::all(plan.verdicts.clone(), plan.shares.clone());
                let unwritten = self.recorder.record(round, inputs, rest, all);
                let base = unwritten.base;
                let encoded = unwritten.encode().unwrap();
                self.stored.insert(round, (base, encoded.body));
            }
            Ok(inputs) => self.tracked.not_written(inputs),
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
            self.born += 1;
            let id: AllocationId = format!("alc_{:06}", self.born).parse().unwrap();
            let allocation = Allocation {
                work: grant.work.clone(),
                kind: grant.kind,
                user: grant.user.clone(),
                class: grant.class.to_string(),
                node: grant.node.clone(),
                order: grant.order,
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

    fn read(&self, round: u64) -> (Snapshot, Plan) {
        let (base, _) = self.stored[&round];
        let chain = self
            .stored
            .range(base..=round)
            .map(|(_, (_, body))| body.as_ref().unwrap());
        decode(chain).unwrap()
    }
}

#[derive(Debug, Clone)]
enum News {
    Node(u8, u64),
    NoNode(u8),
    Job(u8, u64),
    Service(u8, u64),
    Queued(u8),
    Withdrawn(u8),
    Policy(u64),
    Nothing,
}

fn news() -> impl Strategy<Value = News> {
    prop_oneof![
        (0..6_u8, 1..9_u64).prop_map(|(at, quanta)| News::Node(at, quanta)),
        (0..6_u8).prop_map(News::NoNode),
        (0..9_u8, 1..4_u64).prop_map(|(at, quanta)| News::Job(at, quanta)),
        (9..14_u8, 1..4_u64).prop_map(|(at, quanta)| News::Service(at, quanta)),
        // This includes work that was in a class until now.
        (5..9_u8).prop_map(News::Queued),
        (0..14_u8).prop_map(News::Withdrawn),
        (1..300_u64).prop_map(News::Policy),
        Just(News::Nothing),
    ]
}

impl Fleet {
    fn hear(&mut self, news: &News) {
        match *news {
            News::Node(at, quanta) => self.node(at, quanta),
            News::NoNode(at) => self.tracked.remove_node(&format!("n{at}").parse().unwrap()),
            News::Job(at, quanta) => self.ask(at, WorkKind::Job, quanta),
            News::Service(at, quanta) => self.ask(at, WorkKind::Service, quanta),
            News::Queued(at) => {
                self.ask(at, WorkKind::Job, 1);
                let work = format!("w{at}").parse().unwrap();
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
            News::Withdrawn(at) => self
                .tracked
                .remove_demand(&format!("w{at}").parse().unwrap()),
            News::Policy(weight) => self.tracked.rework(|snapshot| {
                snapshot.classes.get_mut("fair").unwrap().weight = weight;
            }),
            News::Nothing => {}
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
        rounds in prop::collection::vec(prop::collection::vec(news(), 0..4), 1..25),
    ) {
        let mut fleet = Fleet::new(LIMITS);
        let mut seen = BTreeMap::new();
        for news in &rounds {
            for one in news {
                fleet.hear(one);
            }
            let (snapshot, plan, changed) = fleet.round();
            if changed {
                seen.insert(plan.round, (snapshot, plan));
            }
        }
        prop_assert_eq!(seen.keys().collect::<Vec<_>>(), fleet.stored.keys().collect::<Vec<_>>());
        for (round, (snapshot, plan)) in seen {
            let (stored, planned) = fleet.read(round);
            prop_assert_eq!(&stored, &snapshot);
            prop_assert_eq!(&planned, &plan);
            let text = serde_json::to_string(&Inputs::new(stored, planned)).unwrap();
            let replay = Replay::read(&text).unwrap();
            let replayed = replay.compare(replay.plan()).unwrap();
            prop_assert!(replayed.equal, "{:#?}", replayed.differences);
        }
    }
}

fn busy(limits: InputLimits) -> Fleet {
    let mut fleet = Fleet::new(limits);
    for at in 0..4 {
        fleet.node(at, 4);
        fleet.ask(at, WorkKind::Job, 1);
    }
    fleet
}

#[test]
fn a_chain_ends_when_its_deltas_are_as_large_as_its_first_round() {
    let mut fleet = busy(LIMITS);
    for at in 0..90_u8 {
        fleet.ask(100 + at % 100, WorkKind::Service, 1);
        fleet.round();
        fleet
            .tracked
            .remove_demand(&format!("w{}", 100 + at % 100).parse().unwrap());
    }
    let bases: std::collections::BTreeSet<u64> = fleet.stored.values().map(|it| it.0).collect();
    assert!(bases.len() > 2, "{bases:?}");
    for base in &bases {
        let size = |round: &u64| fleet.stored[round].1.as_ref().unwrap().len();
        let chain = fleet
            .stored
            .iter()
            .filter(|(_, (first, _))| first == base)
            .map(|(round, _)| round);
        let later: Vec<usize> = chain.skip(1).map(size).collect();
        assert!(later.len() as u64 <= CHAIN);
        let but_last: usize = later.iter().rev().skip(1).sum();
        assert!(but_last <= size(base), "{later:?} after {}", size(base));
    }
}

#[test]
fn a_round_over_a_limit_is_not_stored_and_the_next_begins_a_chain() {
    let mut none = busy(InputLimits {
        rounds: 0,
        ..LIMITS
    });
    none.round();
    assert!(none.why.as_ref().unwrap().contains("inputs_rounds"));
    assert!(none.stored.is_empty());

    let mut fleet = busy(InputLimits {
        entries: 10,
        ..LIMITS
    });
    fleet.round();
    assert_eq!(fleet.stored.len(), 1);
    fleet.ask(20, WorkKind::Service, 1);
    fleet.round();
    let why = fleet.why.clone().unwrap();
    assert!(why.contains("inputs_entries"), "{why}");
    assert_eq!(fleet.stored.len(), 1);
    for at in 0..4 {
        fleet
            .tracked
            .remove_demand(&format!("w{at}").parse().unwrap());
    }
    let held: Vec<_> = fleet.tracked.allocations.keys().cloned().collect();
    for id in held {
        fleet.tracked.set_allocation(&id, None);
    }
    fleet.ask(21, WorkKind::Service, 1);
    let (snapshot, plan, _) = fleet.round();
    assert_eq!(fleet.stored[&plan.round].0, plan.round, "it begins a chain");
    assert_eq!(fleet.read(plan.round), (snapshot, plan));

    let mut small = busy(InputLimits { bytes: 4, ..LIMITS });
    let (_, plan, _) = small.round();
    assert_eq!(small.stored[&plan.round], (plan.round, None));
    for at in 0..CHAIN {
        small.round();
        assert!(small.why.is_some(), "it rests after {at} rounds");
    }
    small.round();
    assert_eq!(small.why, None, "it is tried again");
}

#[test]
fn encoding_that_takes_too_long_is_given_up() {
    let mut fleet = busy(LIMITS);
    fleet.tracked.set_round(1);
    let plan = FairShare.schedule(&fleet.tracked);
    let inputs = fleet.recorder.take_delta(&mut fleet.tracked).unwrap();
    let rest = PlanDiff::rest_of(&plan, &Shares::default());
    let unwritten = fleet.recorder.record(1, inputs, rest, WorkChanges::default);
    unwritten.giving_up()();
    assert_eq!(
        unwritten.encode().unwrap().body,
        None,
        "nobody waits for it"
    );
    fleet.round();
    assert!(fleet.why.is_some());
}

#[test]
fn a_different_plan_is_reported_by_its_first_differences() {
    let mut fleet = busy(LIMITS);
    let (snapshot, plan, _) = fleet.round();
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
