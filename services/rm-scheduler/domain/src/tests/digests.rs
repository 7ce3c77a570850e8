//! Plan digests: plans of random fleets are compared with checked-in digests.
//!
//! A commit that is meant to change plans writes new digests
//! (`BLESS=1 cargo test -p hayward-rm-scheduler-domain digests`) and states it in its message.

use std::{fmt::Write, fs, path::Path};

use super::{
    fixture::{Fixture, node_name},
    random_fleets::{Draw, fleet, happen},
};
use crate::{
    FairShare, Plan, Planner, Rounds, Snapshot, SnapshotDelta, Verdicts,
    check::Holdings,
    output::plan::{self, Shares},
};

const FLEETS: u64 = 1_000;
const IN_A_LINE: u64 = 10;
const ROUNDS: u64 = 8;

/// Adds a plan to a digest (FNV-1a, 64 bits).
fn digest(mut sum: u64, plan: &Plan) -> u64 {
    for byte in serde_json::to_vec(plan).unwrap() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    sum
}

/// Digests of the decisions and of the whole plan. If only the second changes, the planner makes
/// the same decisions and explains them differently.
#[derive(Clone, Copy)]
struct Sums {
    done: u64,
    sentences: u64,
}

fn life(seed: u64, mut sums: Sums) -> Sums {
    let mut draw = Draw::new(seed);
    let mut fixture = fleet(&mut draw);
    for round in 1..=ROUNDS {
        let mut plan = FairShare.schedule(&fixture.snapshot);
        sums.sentences = digest(sums.sentences, &plan);
        fixture.carry_out(&plan);
        plan.verdicts.clear();
        plan.shares = Shares::default();
        sums.done = digest(sums.done, &plan);
        happen(&mut fixture, &mut draw, round);
    }
    sums
}

#[test]
fn plans_of_random_fleets_have_the_checked_in_digests() {
    let mut lines = String::new();
    for from in (0..FLEETS).step_by(usize::try_from(IN_A_LINE).unwrap()) {
        let basis = 0xcbf2_9ce4_8422_2325;
        let (done, sentences) = (basis, basis);
        let fleets = from..from + IN_A_LINE;
        let Sums { done, sentences } =
            fleets.fold(Sums { done, sentences }, |sums, seed| life(seed, sums));
        writeln!(lines, "{from:03} {done:016x} {sentences:016x}").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/digests.txt");
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
        "plans of these fleets changed: {changed:?}"
    );
}

/// Two planners that get only deltas, with and without explanations, and a reader of their reports.
struct PlanDigest {
    rounds: Rounds,
    silent: Rounds,
    holdings: Holdings,
    before: Option<Snapshot>,
    verdicts: Verdicts,
    shares: Shares,
}

impl PlanDigest {
    fn new() -> Self {
        Self {
            rounds: Rounds::default(),
            silent: Rounds::without_explanations(),
            holdings: Holdings::default(),
            before: None,
            verdicts: Verdicts::new(),
            shares: Shares::default(),
        }
    }

    /// Plans a round from a delta. Asserts that the plan and the changed reports equal those of a
    /// planner without memory.
    fn round(&mut self, now: &Snapshot, case: &str) -> Plan {
        let delta = self.before.as_ref();
        let delta = delta.map_or_else(SnapshotDelta::everything, |before| {
            SnapshotDelta::between(before, now)
        });
        self.before = Some(now.clone());
        self.holdings.follow(now, &delta);
        self.holdings.assert_same(&Holdings::new(now));
        let unexplained = self.silent.decide(now, &delta).plan;
        let decided = self.rounds.decide(now, &delta);
        assert!(
            unexplained == decided.plan,
            "{case}: the plan differs without explanations"
        );
        if let Some(delta) = decided.shares.clone() {
            self.shares.absorb(delta);
        } else {
            (self.shares, self.verdicts) = (self.rounds.shares(), self.rounds.verdicts());
        }
        self.verdicts.retain(|id, _| !decided.gone.contains(id));
        self.verdicts
            .extend(plan::into_map(decided.verdicts.clone()));
        let plan = self.rounds.full_plan(decided);
        let checked = self.holdings.check(now, &plan);
        assert!(checked.is_ok(), "{case}: {checked:?}");
        let afresh = FairShare.schedule(now);
        if plan != afresh {
            let difference = first_difference(&plan, &afresh);
            panic!("{case}: {difference}");
        }
        assert!(self.verdicts == afresh.verdicts, "{case}: reader verdicts");
        assert!(self.shares == afresh.shares, "{case}: reader shares");
        plan
    }
}

#[test]
fn rounds_from_deltas_equal_rounds_without_memory() {
    for seed in 0..FLEETS / 2 {
        let mut draw = Draw::new(seed + 7_000);
        let mut fixture = fleet(&mut draw);
        let mut digest = PlanDigest::new();
        for round in 1..=ROUNDS {
            let plan = digest.round(&fixture.snapshot, &format!("seed {seed}, round {round}"));
            fixture.carry_out(&plan);
            happen(&mut fixture, &mut draw, round);
            some_node_goes(&mut fixture, &mut draw);
        }
    }
}

/// Trees become idle. They are planned again when the passed time matters.
#[test]
fn rounds_with_idle_trees_equal_rounds_without_memory() {
    for seed in 0..FLEETS / 10 {
        let mut draw = Draw::new(seed + 11_000);
        let mut fixture = fleet(&mut draw);
        let mut digest = PlanDigest::new();
        for round in 1..=2 * ROUNDS {
            let plan = digest.round(&fixture.snapshot, &format!("seed {seed}, round {round}"));
            fixture.carry_out(&plan);
            let passes_ms = draw.pick(&[0, 1_000, 60_000, 600_000, 4_000_000]);
            fixture.snapshot.now = fixture.snapshot.now.plus_ms(passes_ms);
            goes_on(&mut fixture, &mut draw);
        }
    }
}

/// Changes demand: some work has fewer tasks left or changes in other ways.
fn goes_on(fixture: &mut Fixture, draw: &mut Draw) {
    for demand in fixture.snapshot.demand.values_mut() {
        if draw.one_in(3) {
            demand.remaining_tasks = demand.remaining_tasks.saturating_sub(draw.below(3));
        }
        match draw.below(60) {
            0 => demand.task_ms = Some(draw.below(9_000)),
            1 => demand.threads = 1 + u32::try_from(draw.below(3)).unwrap(),
            2 => demand.runnable = !demand.runnable,
            3 => demand.submitted_at = demand.submitted_at.plus_ms(1),
            4 => demand.user = draw.pick(&["u1", "u2"]).parse().unwrap(),
            _ => {}
        }
    }
}

/// Removes a node, possibly one with allocations or one that some work avoids. It may come back
/// later.
fn some_node_goes(fixture: &mut Fixture, draw: &mut Draw) {
    let name = format!("n{:02}", draw.below(40));
    if draw.one_in(3) {
        fixture.snapshot.nodes.remove(name.as_str());
    }
    let work = fixture.snapshot.demand.values_mut();
    if let Some(work) = work.filter(|_| draw.one_in(8)).last() {
        work.avoids.insert(node_name(&name));
    }
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
