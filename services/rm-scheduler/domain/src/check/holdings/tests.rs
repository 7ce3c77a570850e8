//! Holdings that follow random deltas equal holdings that are built from the snapshot.

use hayward_vocabulary::{AllocationId, Apart, Size, Timestamp, WorkKind};

use super::*;
use crate::{
    input::{
        queues::Queues,
        snapshot::{Demand, Policy},
    },
    tests::{
        fixture::{Fixture, GIB, node_name, terms, work_id},
        random_fleets::Random,
    },
};

/// The last node is not in the fleet at the beginning.
const NODES: [&str; 3] = ["n00", "n01", "m0"];
const WORK: [&str; 4] = ["w0", "w1", "w2", "w3"];
/// The last one is the path of a queue. Work in queues has it instead of a class.
const CLASSES: [&str; 4] = ["fair", "fixed_share", "whole", "root.a.b"];

/// Builds a fleet with classes of each policy and a second pool that a test may give queues.
fn small_fleet() -> Fixture {
    let mut fixture = Fixture::eager().nodes(&[8, 8]);
    fixture
        .snapshot
        .pools
        .insert("other".into(), crate::input::snapshot::Pool::default());
    fixture.class("fixed_share", terms(Policy::FixedShare, 10, 100), "default");
    fixture.class("whole", terms(Policy::Reserve, 10, 100), "default");
    fixture
}

fn random_allocation(random: &mut Random) -> Allocation {
    // The last amount saturates a sum.
    let amounts = [GIB, GIB, 2 * GIB, u64::MAX - 5];
    let may_saturate = random.one_in(20);
    let mut size = Size::memory(random.pick(&amounts[..3 + usize::from(may_saturate)]));
    size.gpu_milli = random.pick(&[0, 0, 500]);
    if random.one_in(3) {
        size.extras.insert("ssd".into(), random.below(3));
    }
    Allocation {
        work: work_id(random.pick(&WORK)),
        kind: WorkKind::Job,
        user: random.pick(&["a", "b"]).parse().unwrap(),
        class: random.pick(&CLASSES).to_owned(),
        node: node_name(random.pick(&NODES)),
        quanta: 1 + random.below(3),
        gpus: Vec::from(&[random.below(2)][..usize::from(size.gpu_milli > 0)]),
        size,
        fixed: random.one_in(2),
        granted_at: Timestamp::from_unix_ms(0),
        running: true,
        started_at: None,
        running_since: None,
        investment_ms: None,
        item_ms: None,
        group: random.one_in(3).then(|| "team".to_owned()),
        leaving: random.one_in(4),
        purged: random.one_in(9),
    }
}

fn random_demand(random: &mut Random, demand: &Demand) -> Demand {
    let group = random.pick(&WORK);
    Demand {
        anti_affinity: random.one_in(2).then(|| Apart {
            group: work_id(group),
            by_label: None,
        }),
        ..demand.clone()
    }
}

/// Changes allocations and work, and sometimes a node or the policy.
fn change_randomly(fixture: &mut Fixture, random: &mut Random, demand: &Demand) {
    let snapshot = &mut fixture.snapshot;
    for _ in 0..=random.below(3) {
        let id: AllocationId = format!("alc_{}", random.below(9)).parse().unwrap();
        if random.one_in(3) {
            snapshot.allocations.remove(&id);
        } else {
            snapshot.allocations.insert(id, random_allocation(random));
        }
    }
    let work = work_id(random.pick(&WORK));
    if random.one_in(3) {
        snapshot.demand.remove(&work);
    } else {
        snapshot.demand.insert(work, random_demand(random, demand));
    }
    let node = node_name(random.pick(&NODES));
    match random.below(12) {
        0 => drop(snapshot.nodes.remove(&node)),
        1 | 2 => {
            let pool = random.pick(&["default", "other", "unknown"]);
            fixture.node_in(pool, node.as_str(), 8);
        }
        3 => snapshot.quantum.0.memory_bytes = random.pick(&[GIB, 2 * GIB]),
        4 => {
            let queues = [("other".to_owned(), Queues::default())];
            snapshot.queues = queues.into_iter().filter(|_| random.one_in(2)).collect();
        }
        5 => {
            let policy = random.pick(&[Policy::FairShare, Policy::Reserve]);
            fixture.class("whole", terms(policy, 10, 100), "default");
        }
        _ => {}
    }
}

#[test]
fn holdings_that_follow_deltas_equal_rebuilt_holdings() {
    for seed in 0..400 {
        let mut random = Random::new(31_000 + seed);
        let mut fixture = small_fleet();
        let demand = fixture.job("w0", "a", 1).clone();
        if random.one_in(2) {
            let queues = ("other".to_owned(), Queues::default());
            fixture.snapshot.queues = BTreeMap::from([queues]);
        }
        let mut holdings = Holdings::default();
        let mut delta = SnapshotDelta::everything();
        for _ in 0..30 {
            holdings.apply_delta(&fixture.snapshot, &delta);
            holdings.assert_same(&Holdings::new(&fixture.snapshot));
            // The same delta again changes nothing.
            holdings.apply_delta(&fixture.snapshot, &delta);
            holdings.assert_same(&Holdings::new(&fixture.snapshot));
            let before = fixture.snapshot.clone();
            change_randomly(&mut fixture, &mut random, &demand);
            delta = SnapshotDelta::between(&before, &fixture.snapshot);
        }
    }
}
