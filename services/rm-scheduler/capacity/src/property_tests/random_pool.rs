//! Random pools, work and events for the property tests.

use serde_json::{Value, json};

use super::{POOLS, VCORE};
use crate::fixture::{Fixture, queued_mut};

/// Pseudo-random numbers (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    pub fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[usize::try_from(self.below(N as u64)).unwrap()]
    }

    /// Returns true with a probability of one in `odds`.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

/// Returns the configuration of a random leaf.
pub(super) fn random_leaf(random: &mut Random) -> Value {
    let mut leaf = json!({"sort": if random.one_in(2) { "fair" } else { "fifo" }});
    if random.one_in(2) {
        leaf["resources"]["guaranteed"] = json!({"vcore": 1 + random.below(3)});
    }
    if random.one_in(3) {
        leaf["resources"]["max"] = json!({"vcore": 3 + random.below(5), "memory": 50_000});
    }
    if random.one_in(4) {
        leaf["preemption"] = json!("disabled");
    }
    if random.one_in(3) {
        leaf["priority_offset"] = json!(random.below(3));
    }
    if random.one_in(4) {
        leaf["limits"] = json!([{"users": ["*"], "max_resources": {"vcore": 3}}]);
    }
    if random.one_in(4) {
        leaf["max_applications"] = json!(1 + random.below(3));
    }
    if random.one_in(4) {
        let limit = json!({"vcore": 2 + random.below(2)});
        let groups = [["dev"], ["*"]];
        let limits = groups.map(|it| json!({"groups": it, "max_resources": limit}));
        leaf["limits"] = json!(limits);
    }
    if random.one_in(5) {
        leaf["backoff_asks"] = json!(2);
    }
    leaf
}

/// Creates a pool with queues `root.p0.l0` and so on, nodes `n0` and so on, and some work.
pub(super) fn random_pool(random: &mut Random) -> Fixture {
    let mut queues = json!({});
    for index in 0..=random.below(3) {
        let mut parent = json!({"queues": {}, "priority_policy":
            if random.one_in(3) { "fence" } else { "default" }});
        for child in 0..=random.below(2) {
            parent["queues"][format!("l{child}")] = random_leaf(random);
        }
        if random.one_in(4) {
            parent["preemption"] = json!("fence");
        }
        queues[format!("p{index}")] = parent;
    }
    let policy = if random.one_in(2) {
        "fair"
    } else {
        "binpacking"
    };
    let root = json!({"submit_acl": "*", "queues": queues});
    let mut fixture = Fixture::from_queues(&json!({"queues": {"root": root},
        "node_sort": {"policy": policy}, "reservation_ms": 120_000}));
    for index in 0..=random.below(5) {
        let vcore = (1 + random.below(6)) * VCORE;
        let memory = 20_000 + random.below(50_000);
        let node = fixture.add_node(&format!("n{index}"), &[("vcore", vcore)]);
        node.capacity.memory_bytes = memory;
        node.capacity.gpu_milli = random.below(3) * 1_000;
    }
    for index in 0..3 + random.below(8) {
        add_random_work(&mut fixture, random, index);
    }
    fixture
}

/// Adds random work. Its queue may not exist, so that some work is refused.
pub(super) fn add_random_work(fixture: &mut Fixture, random: &mut Random, number: u64) {
    let queue = format!("root.p{}.l{}", random.below(3), random.below(2));
    let gpu = if random.one_in(5) {
        random.pick([500, 1_000, 2_000])
    } else {
        0
    };
    let amounts = [
        ("vcore", (1 + random.below(3)) * VCORE),
        ("memory", 1_000 + random.below(9_000)),
        ("gpu", gpu),
    ];
    let (is_gang, nodes) = (random.one_in(5), fixture.snapshot.nodes.len() as u64);
    let demand = fixture.add_work(&format!("job_{number:03}"), &queue, &amounts);
    demand.max_processes = 1 + random.below(5);
    demand.user = random.pick(["ann", "bob", "cyd"]).parse().unwrap();
    if random.one_in(6) {
        demand.avoids = ["n0".parse().unwrap()].into();
    }
    let groups = if demand.user.as_str() == "ann" {
        "dev"
    } else {
        "ops"
    }
    .to_owned();
    let (min, priority) = (
        demand.max_processes,
        i32::try_from(random.below(3)).unwrap(),
    );
    let queued = queued_mut(demand);
    queued.priority = priority;
    queued.groups = vec![groups];
    if random.one_in(2) {
        queued.application = Some(format!("app{}", random.below(4)));
    }
    if is_gang {
        let name = "gang".to_owned();
        queued.gang = Some(hayward_rm_scheduler_domain::snapshot::queues::Gang { name, min });
    } else if random.one_in(8) {
        queued.required_node = Some(format!("n{}", random.below(nodes)).parse().unwrap());
    }
    queued.preemptable = !random.one_in(4);
    queued.originator = random.one_in(6);
}

/// Applies a random event: work is submitted or withdrawn, a node closes or opens, a process ends,
/// or time passes.
pub(super) fn apply_random_event(fixture: &mut Fixture, random: &mut Random, round: u64) {
    match random.below(5) {
        0 => add_random_work(fixture, random, 100 + round),
        1 => {
            let withdrawn = random.below(fixture.snapshot.demand.len().max(1) as u64);
            let withdrawn = fixture
                .snapshot
                .demand
                .keys()
                .nth(usize::try_from(withdrawn).unwrap())
                .cloned();
            withdrawn.and_then(|work| fixture.snapshot.demand.remove(&work));
        }
        2 => {
            let takes_work = random.one_in(2);
            fixture
                .snapshot
                .nodes
                .values_mut()
                .next()
                .unwrap()
                .takes_work = takes_work;
        }
        3 => {
            let ended = fixture.snapshot.allocations.keys().next().cloned();
            ended.and_then(|id| fixture.snapshot.allocations.remove(&id));
        }
        _ => fixture.advance(random.below(60_000)),
    }
}

/// Calls `check` with the seed of each random pool, the pool, and random numbers for its events.
pub(super) fn for_each_random_pool(mut check: impl FnMut(u64, &mut Fixture, &mut Random)) {
    for seed in 0..POOLS {
        let mut random = Random(seed);
        let mut fixture = random_pool(&mut random);
        check(seed, &mut fixture, &mut random);
    }
}
