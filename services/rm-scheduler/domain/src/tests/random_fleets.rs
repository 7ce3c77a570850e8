//! Random fleets with events between rounds. A seed gives the same fleet on every computer. Each
//! input of a decision varies in some fleets.

use hayward_vocabulary::{Quantum, Size, WorkKind};

use super::fixture::{Fixture, GIB, node_name, terms};
use crate::input::{
    settings::Settings,
    snapshot::{BlockEffect, Policy, Pool, User},
};

/// Pseudo-random numbers (splitmix64).
pub struct Draw(u64);

impl Draw {
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

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, end: u64) -> bool {
        self.below(end) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.below(from.len() as u64)).unwrap();
        from[at]
    }
}

const POOLS: [&str; 5] = ["default", "below", "deep", "beside", "other"];
const CLASSES: [&str; 6] = ["fair", "a", "b", "c", "d", "gone"];

/// Returns a fleet of up to twenty nodes, or sometimes of up to sixty.
pub fn fleet(draw: &mut Draw) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.departure = 1 + draw.below(3);
    fixture.start_ms = draw.pick(&[0, 500, 3_000]);
    tune(&mut fixture, draw);
    pools(&mut fixture, draw);
    for (name, pool) in [
        ("a", "default"),
        ("b", "below"),
        ("c", "default"),
        ("d", "other"),
    ] {
        let (priority, weight) = (draw.pick(&[5, 10, 10, 20]), 1 + draw.below(400));
        fixture.class(name, terms(Policy::FairShare, priority, weight), pool);
        let class = fixture.snapshot.classes.get_mut(name).unwrap();
        class.place = draw.below(2);
        class.growth.expand_by_doubling = draw.one_in(4).then(|| draw.one_in(2));
        if draw.one_in(6) {
            class.users = ["u0", "u1", "u2"].map(Into::into).into();
        }
    }
    let nodes = if draw.one_in(10) { 60 } else { 20 };
    for at in 0..=draw.below(nodes) {
        add_node(&mut fixture, draw, at);
    }
    for at in 0..draw.below(nodes * 2) {
        add_work(&mut fixture, draw, at);
    }
    fixture
}

fn tune(fixture: &mut Fixture, draw: &mut Draw) {
    let mut settings = match draw.below(3) {
        0 => Settings::reference(),
        _ => Settings::default(),
    };
    for at in 0..18 {
        if draw.one_in(12) {
            flip(&mut settings, at);
        }
    }
    let tunables = &mut fixture.snapshot.tunables;
    tunables.settings = settings;
    tunables.initialization_cap = draw.below(4);
    tunables.expand_by_doubling = !draw.one_in(3);
    tunables.use_prediction = draw.one_in(2);
    tunables.cycle_ms = draw.pick(&[1_000, 60_000]);
    tunables.fragmentation_threshold = draw.pick(&[0, 2, 3, 8]);
    tunables.defragmentation = !draw.one_in(6);
    tunables.reserve_overage_bytes = draw.one_in(2).then_some(GIB);
    tunables.global_allotment_bytes = draw.one_in(2).then(|| (1 + draw.below(12)) * GIB);
    if draw.one_in(4) {
        fixture.snapshot.quantum = Quantum(Size {
            cpu_milli: draw.pick(&[0, 500, 2_000]),
            ..Size::memory(draw.pick(&[1, 2]) * GIB)
        });
    }
    if draw.one_in(3) {
        let by_class = [("fixed".to_owned(), 3 * GIB)];
        let user = User {
            max_allotment_bytes: draw.one_in(2).then_some(5 * GIB),
            max_allotment_by_class: by_class.into_iter().collect(),
        };
        fixture.snapshot.users.insert("u1".parse().unwrap(), user);
    }
}

fn flip(settings: &mut Settings, at: u64) {
    let it = settings;
    let flag = match at {
        0 => &mut it.carry_remainders,
        1 => &mut it.squatters_go_home,
        2 => &mut it.count_leaving_room,
        3 => &mut it.spare_donors,
        4 => &mut it.count_what_fits,
        5 => &mut it.pack,
        6 => &mut it.evict_for_somebody,
        7 => &mut it.lend_idle,
        8 => &mut it.clear_promised,
        9 => &mut it.relieve_shrunken,
        10 => &mut it.replace_lost,
        11 => &mut it.rest_on_closed,
        12 => &mut it.reserve_whole_nodes,
        13 => &mut it.steady_counts,
        14 => &mut it.level_remainders,
        15 => &mut it.holes_among_rivals,
        16 => &mut it.lose_least,
        _ => &mut it.pack_gpus,
    };
    *flag = !*flag;
}

fn pools(fixture: &mut Fixture, draw: &mut Draw) {
    for (place, (name, parent)) in (1_u64..).zip([
        ("below", Some("default")),
        ("deep", Some("below")),
        ("beside", Some("default")),
        ("other", None),
    ]) {
        let quantum = (name == "other" && draw.one_in(3)).then(|| Quantum(Size::memory(2 * GIB)));
        let pool = Pool {
            parent: parent.map(str::to_owned),
            search_order: i64::try_from(draw.below(3)).unwrap(),
            place,
            quantum,
        };
        fixture.snapshot.pools.insert(name.into(), pool);
    }
}

pub fn add_node(fixture: &mut Fixture, draw: &mut Draw, at: u64) {
    let pool = draw.pick(&["default", "default", "below", "deep", "beside", "other"]);
    let name = format!("n{at:02}");
    fixture.node_in(pool, &name, draw.below(9));
    let node = fixture.node(&name);
    node.capacity.gpu_milli = draw.pick(&[0, 0, 0, 2_000, 1_500]);
    node.capacity.cpu_milli = draw.pick(&[1_000_000, 4_000]);
    if draw.one_in(6) {
        node.capacity.extras.insert("licence".into(), 2);
    }
}

pub fn add_work(fixture: &mut Fixture, draw: &mut Draw, at: u64) {
    let (id, user) = (format!("w{at:03}"), format!("u{}", draw.below(6)));
    let order = 1 + draw.below(5);
    let demand = match draw.below(12) {
        0 => fixture.reservation(&id, &user, order),
        1 | 2 => fixture.service(&id, &user, order),
        _ => fixture.job(&id, &user, order),
    };
    match demand.kind {
        WorkKind::Job => {
            let class = draw.pick(&CLASSES);
            demand.class = (!draw.one_in(8)).then(|| class.into());
            demand.max_processes = draw.pick(&[0, 1, 2, 5, 9, 1_000]);
            demand.remaining_tasks = 1 + draw.below(40);
            demand.threads = u32::try_from(1 + draw.below(3)).unwrap();
            demand.size.gpu_milli = draw.pick(&[0, 0, 0, 0, 400, 1_000, 2_000]);
            demand.size.cpu_milli = draw.pick(&[0, 100, 1_500]);
            demand.runnable = !draw.one_in(8);
            if draw.one_in(12) {
                demand.class = Some("fixed".into());
            }
            if draw.one_in(9) {
                demand.size.extras.insert("licence".into(), 1);
            }
        }
        WorkKind::Service => {
            demand.service = draw.one_in(2).then(|| "svc".parse().unwrap());
            demand.managed = draw.one_in(4);
            if draw.one_in(8) {
                demand.class = Some("reserve".into());
            }
        }
        WorkKind::Reservation => {
            demand.managed = draw.one_in(4);
            if draw.one_in(3) {
                demand.size = Size::default();
            }
        }
    }
    if draw.one_in(10) {
        demand.machines = ["n00", "n01", "n07"].map(node_name).into();
    }
    (demand.completing, demand.keeps_what_it_holds) = (draw.one_in(20), draw.one_in(20));
}

/// Applies random events between two rounds.
pub fn happen(fixture: &mut Fixture, draw: &mut Draw, round: u64) {
    for _ in 0..draw.below(4) {
        let node = format!("n{:02}", draw.below(20));
        let known = fixture.snapshot.nodes.contains_key(node.as_str());
        match draw.below(16) {
            0..=3 => {
                let id = draw.below(60) + round * 60;
                add_work(fixture, draw, id);
            }
            4..=6 => {
                let gone = fixture.snapshot.demand.keys().next().cloned();
                let id = format!("w{:03}", draw.below(40));
                fixture.snapshot.demand.remove(id.as_str());
                if let Some(gone) = gone.filter(|_| draw.one_in(3)) {
                    fixture.snapshot.demand.remove(&gone);
                }
            }
            7 if known => fixture.node(&node).lost = !draw.one_in(3),
            8 if known => fixture.node(&node).offline = !draw.one_in(2),
            9 if known => fixture.block(
                &node,
                draw.pick(&[BlockEffect::Mark, BlockEffect::Evacuate]),
            ),
            10 if known => fixture.node(&node).block = None,
            11 if known => fixture.node(&node).capacity.memory_bytes = draw.below(9) * GIB,
            12 if known => fixture.node(&node).pool = draw.pick(&POOLS).into(),
            13 => {
                let at = draw.below(20);
                add_node(fixture, draw, at);
            }
            14 => change_policy(fixture, draw),
            _ => change_work(fixture, draw),
        }
    }
    finish_something(fixture, draw);
}

fn change_policy(fixture: &mut Fixture, draw: &mut Draw) {
    match draw.below(4) {
        0 => {
            let class = draw.pick(&CLASSES[..5]);
            if let Some(class) = fixture.snapshot.classes.get_mut(class) {
                class.weight = 1 + draw.below(400);
            }
        }
        1 => fixture.snapshot.tunables.initialization_cap = draw.below(4),
        2 => {
            fixture.snapshot.classes.remove("c");
        }
        _ => tune(fixture, draw),
    }
}

fn change_work(fixture: &mut Fixture, draw: &mut Draw) {
    let some = draw.below(1 + fixture.snapshot.demand.len() as u64);
    let at = usize::try_from(some).unwrap();
    let Some(demand) = fixture.snapshot.demand.values_mut().nth(at) else {
        return;
    };
    match draw.below(10) {
        0 => demand.max_processes = draw.below(9),
        1 => demand.remaining_tasks = draw.below(30),
        2 => demand.task_ms = Some(draw.below(9_000)),
        3 => demand.completing = true,
        4 => demand.keeps_what_it_holds = !demand.keeps_what_it_holds,
        5 => demand.class = Some(draw.pick(&CLASSES).into()),
        6 => demand.managed = !demand.managed,
        7 => demand.service = draw.one_in(2).then(|| "svc".parse().unwrap()),
        8 => demand.machines = ["n00", "n01", "n07"].map(node_name).into(),
        _ => demand.size.memory_bytes = (1 + draw.below(6)) * GIB,
    }
}

/// Reports the investment of a process, and sometimes ends the process.
fn finish_something(fixture: &mut Fixture, draw: &mut Draw) {
    let count = fixture.snapshot.allocations.len() as u64;
    if count == 0 {
        return;
    }
    let at = usize::try_from(draw.below(count)).unwrap();
    let id = fixture
        .snapshot
        .allocations
        .keys()
        .nth(at)
        .cloned()
        .unwrap();
    let share = fixture.snapshot.allocations.get_mut(&id).unwrap();
    share.investment_ms = Some(draw.below(5_000));
    share.running = !draw.one_in(4);
    if draw.one_in(5) {
        fixture.snapshot.allocations.remove(&id);
    }
}
