//! Random fleets, and random events between rounds. A seed gives the same fleet on every computer.
//! Everything that a decision depends on varies in some fleets.

use hayward_vocabulary::{Quantum, Size, WorkKind};

use super::fixture::{Fixture, GIB, node_name, terms};
use crate::input::{
    settings::Settings,
    snapshot::{BlockEffect, Policy, Pool, User},
};

/// Pseudo-random numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `end`, without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true in one of `count` cases.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns one of these values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = usize::try_from(self.below(from.len() as u64)).unwrap();
        from[index]
    }
}

const POOLS: [&str; 5] = ["default", "below", "deep", "beside", "other"];
const CLASSES: [&str; 6] = ["fair", "a", "b", "c", "d", "gone"];

/// Returns a fleet of up to twenty nodes, or sometimes of up to sixty.
pub fn fleet(random: &mut Random) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.departure_rounds = 1 + random.below(3);
    fixture.start_ms = random.pick(&[0, 500, 3_000]);
    randomize_settings(&mut fixture, random);
    add_pools(&mut fixture, random);
    for (name, pool) in [
        ("a", "default"),
        ("b", "below"),
        ("c", "default"),
        ("d", "other"),
    ] {
        let (priority, weight) = (random.pick(&[5, 10, 10, 20]), 1 + random.below(400));
        fixture.class(name, terms(Policy::FairShare, priority, weight), pool);
        let class = fixture.snapshot.classes.get_mut(name).unwrap();
        class.position = random.below(2);
        class.growth.expand_by_doubling = random.one_in(4).then(|| random.one_in(2));
        if random.one_in(6) {
            class.users = ["u0", "u1", "u2"].map(Into::into).into();
        }
    }
    let nodes = if random.one_in(10) { 60 } else { 20 };
    for index in 0..=random.below(nodes) {
        add_node(&mut fixture, random, index);
    }
    for index in 0..random.below(nodes * 2) {
        add_work(&mut fixture, random, index);
    }
    fixture
}

fn randomize_settings(fixture: &mut Fixture, random: &mut Random) {
    let mut settings = match random.below(3) {
        0 => Settings::reference(),
        _ => Settings::default(),
    };
    for index in 0..BOOLEAN_SETTINGS {
        if random.one_in(12) {
            toggle_setting(&mut settings, index);
        }
    }
    let tunables = &mut fixture.snapshot.tunables;
    tunables.settings = settings;
    tunables.initialization_cap = random.below(4);
    tunables.expand_by_doubling = !random.one_in(3);
    tunables.use_prediction = random.one_in(2);
    tunables.cycle_ms = random.pick(&[1_000, 60_000]);
    tunables.fragmentation_threshold = random.pick(&[0, 2, 3, 8]);
    tunables.defragmentation = !random.one_in(6);
    tunables.reserve_overage_bytes = random.one_in(2).then_some(GIB);
    tunables.global_allotment_bytes = random.one_in(2).then(|| (1 + random.below(12)) * GIB);
    if random.one_in(4) {
        fixture.snapshot.quantum = Quantum(Size {
            cpu_milli: random.pick(&[0, 500, 2_000]),
            ..Size::memory(random.pick(&[1, 2]) * GIB)
        });
    }
    if random.one_in(3) {
        let by_class = [("fixed".to_owned(), 3 * GIB)];
        let user = User {
            max_allotment_bytes: random.one_in(2).then_some(5 * GIB),
            max_allotment_by_class: by_class.into_iter().collect(),
        };
        fixture.snapshot.users.insert("u1".parse().unwrap(), user);
    }
}

/// Number of settings that [`toggle_setting`] can change.
const BOOLEAN_SETTINGS: u64 = 18;

fn toggle_setting(settings: &mut Settings, index: u64) {
    let flag = match index {
        0 => &mut settings.carry_remainders,
        1 => &mut settings.squatters_go_home,
        2 => &mut settings.count_leaving_room,
        3 => &mut settings.spare_donors,
        4 => &mut settings.count_what_fits,
        5 => &mut settings.pack,
        6 => &mut settings.evict_for_somebody,
        7 => &mut settings.lend_idle,
        8 => &mut settings.clear_promised,
        9 => &mut settings.relieve_shrunken,
        10 => &mut settings.replace_lost,
        11 => &mut settings.rest_on_closed,
        12 => &mut settings.reserve_whole_nodes,
        13 => &mut settings.steady_counts,
        14 => &mut settings.level_remainders,
        15 => &mut settings.holes_among_rivals,
        16 => &mut settings.lose_least,
        _ => &mut settings.pack_gpus,
    };
    *flag = !*flag;
}

fn add_pools(fixture: &mut Fixture, random: &mut Random) {
    for (position, (name, parent)) in (1_u64..).zip([
        ("below", Some("default")),
        ("deep", Some("below")),
        ("beside", Some("default")),
        ("other", None),
    ]) {
        let quantum = (name == "other" && random.one_in(3)).then(|| Quantum(Size::memory(2 * GIB)));
        let pool = Pool {
            parent: parent.map(str::to_owned),
            search_order: i64::try_from(random.below(3)).unwrap(),
            position,
            quantum,
        };
        fixture.snapshot.pools.insert(name.into(), pool);
    }
}

pub fn add_node(fixture: &mut Fixture, random: &mut Random, index: u64) {
    let pool = random.pick(&["default", "default", "below", "deep", "beside", "other"]);
    let name = format!("n{index:02}");
    fixture.node_in(pool, &name, random.below(9));
    let node = fixture.node(&name);
    node.capacity.gpu_milli = random.pick(&[0, 0, 0, 2_000, 1_500]);
    node.capacity.cpu_milli = random.pick(&[1_000_000, 4_000]);
    if random.one_in(6) {
        node.capacity.extras.insert("licence".into(), 2);
    }
}

pub fn add_work(fixture: &mut Fixture, random: &mut Random, index: u64) {
    let (id, user) = (format!("w{index:03}"), format!("u{}", random.below(6)));
    let quanta = 1 + random.below(5);
    let demand = match random.below(12) {
        0 => fixture.reservation(&id, &user, quanta),
        1 | 2 => fixture.service(&id, &user, quanta),
        _ => fixture.job(&id, &user, quanta),
    };
    match demand.kind {
        WorkKind::Job => {
            let class = random.pick(&CLASSES);
            demand.class = (!random.one_in(8)).then(|| class.into());
            demand.max_processes = random.pick(&[0, 1, 2, 5, 9, 1_000]);
            demand.remaining_tasks = 1 + random.below(40);
            demand.threads = u32::try_from(1 + random.below(3)).unwrap();
            demand.size.gpu_milli = random.pick(&[0, 0, 0, 0, 400, 1_000, 2_000]);
            demand.size.cpu_milli = random.pick(&[0, 100, 1_500]);
            demand.runnable = !random.one_in(8);
            if random.one_in(12) {
                demand.class = Some("fixed".into());
            }
            if random.one_in(9) {
                demand.size.extras.insert("licence".into(), 1);
            }
        }
        WorkKind::Service => {
            demand.service = random.one_in(2).then(|| "svc".parse().unwrap());
            demand.managed = random.one_in(4);
            if random.one_in(8) {
                demand.class = Some("reserve".into());
            }
        }
        WorkKind::Reservation => {
            demand.managed = random.one_in(4);
            if random.one_in(3) {
                demand.size = Size::default();
            }
        }
    }
    if random.one_in(10) {
        demand.node_list = ["n00", "n01", "n07"].map(node_name).into();
    }
    (demand.completing, demand.keeps_what_it_holds) = (random.one_in(20), random.one_in(20));
}

/// Applies random events between two rounds.
pub fn apply_random_events(fixture: &mut Fixture, random: &mut Random, round: u64) {
    for _ in 0..random.below(4) {
        let node = format!("n{:02}", random.below(20));
        let known = fixture.snapshot.nodes.contains_key(node.as_str());
        match random.below(16) {
            0..=3 => {
                let id = random.below(60) + round * 60;
                add_work(fixture, random, id);
            }
            4..=6 => {
                let gone = fixture.snapshot.demand.keys().next().cloned();
                let id = format!("w{:03}", random.below(40));
                fixture.snapshot.demand.remove(id.as_str());
                if let Some(gone) = gone.filter(|_| random.one_in(3)) {
                    fixture.snapshot.demand.remove(&gone);
                }
            }
            7 if known => fixture.node(&node).lost = !random.one_in(3),
            8 if known => fixture.node(&node).offline = !random.one_in(2),
            9 if known => fixture.block(
                &node,
                random.pick(&[BlockEffect::Mark, BlockEffect::Evacuate]),
            ),
            10 if known => fixture.node(&node).block = None,
            11 if known => fixture.node(&node).capacity.memory_bytes = random.below(9) * GIB,
            12 if known => fixture.node(&node).pool = random.pick(&POOLS).into(),
            13 => {
                let index = random.below(20);
                add_node(fixture, random, index);
            }
            14 => change_policy(fixture, random),
            _ => change_work(fixture, random),
        }
    }
    finish_random_process(fixture, random);
}

/// Changes a weight, a class or the settings.
fn change_policy(fixture: &mut Fixture, random: &mut Random) {
    match random.below(4) {
        0 => {
            let class = random.pick(&CLASSES[..5]);
            if let Some(class) = fixture.snapshot.classes.get_mut(class) {
                class.weight = 1 + random.below(400);
            }
        }
        1 => fixture.snapshot.tunables.initialization_cap = random.below(4),
        2 => {
            fixture.snapshot.classes.remove("c");
        }
        _ => randomize_settings(fixture, random),
    }
}

/// Changes one field of the demand of a random piece of work.
fn change_work(fixture: &mut Fixture, random: &mut Random) {
    let index = random.below(1 + fixture.snapshot.demand.len() as u64);
    let index = usize::try_from(index).unwrap();
    let Some(demand) = fixture.snapshot.demand.values_mut().nth(index) else {
        return;
    };
    match random.below(10) {
        0 => demand.max_processes = random.below(9),
        1 => demand.remaining_tasks = random.below(30),
        2 => demand.task_ms = Some(random.below(9_000)),
        3 => demand.completing = true,
        4 => demand.keeps_what_it_holds = !demand.keeps_what_it_holds,
        5 => demand.class = Some(random.pick(&CLASSES).into()),
        6 => demand.managed = !demand.managed,
        7 => demand.service = random.one_in(2).then(|| "svc".parse().unwrap()),
        8 => demand.node_list = ["n00", "n01", "n07"].map(node_name).into(),
        _ => demand.size.memory_bytes = (1 + random.below(6)) * GIB,
    }
}

/// Changes the investment of a random process, and sometimes ends the process.
fn finish_random_process(fixture: &mut Fixture, random: &mut Random) {
    let count = fixture.snapshot.allocations.len() as u64;
    if count == 0 {
        return;
    }
    let index = usize::try_from(random.below(count)).unwrap();
    let id = fixture
        .snapshot
        .allocations
        .keys()
        .nth(index)
        .cloned()
        .unwrap();
    let allocation = fixture.snapshot.allocations.get_mut(&id).unwrap();
    allocation.investment_ms = Some(random.below(5_000));
    allocation.running = !random.one_in(4);
    if random.one_in(5) {
        fixture.snapshot.allocations.remove(&id);
    }
}
