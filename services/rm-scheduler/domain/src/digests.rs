//! The planner decides today what it decided before: plans of random fleets against digests that
//! are checked in. A change that is meant to decide otherwise writes them anew
//! (`BLESS=1 cargo test -p hayward-rm-scheduler-domain digests`) and says so in its commit.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use crate::{
    FairShare, News, Plan, Planner, Rounds, Snapshot,
    fleets::{Draw, fleet, happen},
    plan::Shares,
    world::{World, node_name},
};

const FLEETS: u64 = 1_000;
const IN_A_LINE: u64 = 10;
const ROUNDS: u64 = 8;

/// FNV-1a, 64 bits.
fn digest(mut sum: u64, plan: &Plan) -> u64 {
    for byte in serde_json::to_vec(plan).unwrap() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    sum
}

/// Of what is done and of what is said, apart: what is only told otherwise moves nobody.
#[derive(Clone, Copy)]
struct Sums {
    done: u64,
    said: u64,
}

fn life(seed: u64, mut sums: Sums) -> Sums {
    let mut draw = Draw::new(seed);
    let mut world = fleet(&mut draw);
    for round in 1..=ROUNDS {
        let mut plan = FairShare.schedule(&world.snapshot);
        sums.said = digest(sums.said, &plan);
        world.carry_out(&plan);
        plan.verdicts.clear();
        plan.shares = Shares::default();
        sums.done = digest(sums.done, &plan);
        happen(&mut world, &mut draw, round);
    }
    sums
}

#[test]
fn every_plan_is_what_it_was() {
    let mut lines = String::new();
    for from in (0..FLEETS).step_by(usize::try_from(IN_A_LINE).unwrap()) {
        let basis = 0xcbf2_9ce4_8422_2325;
        let (done, said) = (basis, basis);
        let fleets = from..from + IN_A_LINE;
        let Sums { done, said } = fleets.fold(Sums { done, said }, |sums, seed| life(seed, sums));
        writeln!(lines, "{from:03} {done:016x} {said:016x}").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/digests.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> = lines
        .lines()
        .zip(known.lines().chain(std::iter::repeat("")))
        .filter(|(now, before)| now != before)
        .map(|(now, _)| now)
        .collect();
    assert!(
        changed.is_empty(),
        "these fleets are planned otherwise: {changed:?}"
    );
}

/// Memory changes nothing: rounds that know only the news decide and say what a planner that reads
/// everything anew does.
#[test]
fn rounds_fed_by_news_are_rounds_from_the_beginning() {
    for seed in 0..FLEETS / 2 {
        let mut draw = Draw::new(seed + 7_000);
        let mut world = fleet(&mut draw);
        let (mut rounds, mut before) = (Rounds::default(), None);
        let mut silent = Rounds::silent();
        for round in 1..=ROUNDS {
            let news = before.as_ref().map_or_else(News::everything, |before| {
                news_between(before, &world.snapshot)
            });
            let mut unsaid = silent.decide(&world.snapshot, &news).plan;
            let decided = rounds.decide(&world.snapshot, &news);
            unsaid.verdicts.clone_from(&decided.plan.verdicts);
            assert!(
                unsaid == decided.plan,
                "seed {seed}: silent, it decides otherwise"
            );
            let changed = decided.plan.verdicts.clone();
            let plan = rounds.whole(decided);
            let afresh = FairShare.schedule(&world.snapshot);
            if plan != afresh {
                let difference = first_difference(&plan, &afresh);
                panic!("seed {seed}, round {round}: {difference}");
            }
            assert!(
                changed
                    .iter()
                    .all(|(id, verdict)| afresh.verdicts[id] == *verdict)
            );
            before = Some(world.snapshot.clone());
            world.carry_out(&plan);
            happen(&mut world, &mut draw, round);
            some_node_goes(&mut world, &mut draw);
        }
    }
}

/// Also one that some work avoids, or with what it holds; it may come back later.
fn some_node_goes(world: &mut World, draw: &mut Draw) {
    let name = format!("n{:02}", draw.below(40));
    if draw.one_in(3) {
        world.snapshot.nodes.remove(name.as_str());
    }
    let work = world.snapshot.demand.values_mut();
    if let Some(work) = work.filter(|_| draw.one_in(8)).last() {
        work.avoids.insert(node_name(&name));
    }
}

fn news_between(before: &Snapshot, now: &Snapshot) -> News {
    News {
        everything: false,
        nodes: differing(&before.nodes, &now.nodes),
        work: differing(&before.demand, &now.demand),
        allocations: differing(&before.allocations, &now.allocations),
    }
}

fn differing<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let keys = before.keys().chain(now.keys());
    keys.filter(|key| before.get(*key) != now.get(*key))
        .cloned()
        .collect()
}

fn first_difference(plan: &Plan, afresh: &Plan) -> String {
    let texts = [plan, afresh].map(|plan| serde_json::to_string(plan).unwrap());
    let same = texts[0]
        .bytes()
        .zip(texts[1].bytes())
        .take_while(|(a, b)| a == b);
    let from = same.count().saturating_sub(200);
    let around = |text: &str| text.chars().skip(from).take(400).collect::<String>();
    format!("{} instead of {}", around(&texts[0]), around(&texts[1]))
}
