//! Plans of random fleets are compared with checked-in digests, and with plans of planners that get
//! only deltas.
//!
//! A commit that is meant to change plans writes new digests
//! (`BLESS=1 cargo test -p hayward-rm-scheduler-domain digests`) and states it in its message.

use std::{fmt::Write, fs, path::Path};

use super::{
    fixture::{Fixture, node_name},
    random_fleets::{Random, apply_random_events, fleet},
};
use crate::{
    FairShare, Plan, Planner, Rounds, Snapshot, SnapshotDelta, Verdicts,
    check::Holdings,
    output::plan::{self, Shares},
};

const FLEETS: u64 = 1_000;
/// Number of fleets whose plans have one digest, on one line of the file.
const FLEETS_PER_LINE: u64 = 10;
/// Number of rounds of each fleet.
const ROUNDS: u64 = 8;

/// Constants of the hash function FNV-1a with 64 bits.
const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Adds a plan to a digest (FNV-1a).
fn digest(mut sum: u64, plan: &Plan) -> u64 {
    for byte in serde_json::to_vec(plan).unwrap() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    }
    sum
}

/// Digests of the decisions and of the whole plan. If only the second changes, the planner makes
/// the same decisions and explains them differently.
#[derive(Clone, Copy)]
struct Digests {
    decisions: u64,
    whole_plan: u64,
}

/// Runs a random fleet for some rounds, and adds its plans to the digests.
fn simulate_fleet(seed: u64, mut digests: Digests) -> Digests {
    let mut random = Random::new(seed);
    let mut fixture = fleet(&mut random);
    for round in 1..=ROUNDS {
        let mut plan = FairShare.schedule(&fixture.snapshot);
        digests.whole_plan = digest(digests.whole_plan, &plan);
        fixture.carry_out(&plan);
        plan.verdicts.clear();
        plan.shares = Shares::default();
        digests.decisions = digest(digests.decisions, &plan);
        apply_random_events(&mut fixture, &mut random, round);
    }
    digests
}

#[test]
fn plans_of_random_fleets_have_the_checked_in_digests() {
    let mut lines = String::new();
    for from in (0..FLEETS).step_by(usize::try_from(FLEETS_PER_LINE).unwrap()) {
        let fleets = from..from + FLEETS_PER_LINE;
        let initial = Digests {
            decisions: FNV_OFFSET_BASIS,
            whole_plan: FNV_OFFSET_BASIS,
        };
        let Digests {
            decisions,
            whole_plan,
        } = fleets.fold(initial, |digests, seed| simulate_fleet(seed, digests));
        writeln!(lines, "{from:03} {decisions:016x} {whole_plan:016x}").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/digests.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> = lines
        .lines()
        .zip(checked_in.lines().chain(std::iter::repeat("")))
        .filter(|(now, before)| now != before)
        .map(|(now, _)| now)
        .collect();
    assert!(
        changed.is_empty(),
        "plans of these fleets changed: {changed:?}"
    );
}

/// Two planners that get only deltas, one with and one without explanations. `verdicts` and
/// `shares` are those of a reader who applies the changed reports.
struct DeltaPlanner {
    rounds: Rounds,
    rounds_without_explanations: Rounds,
    holdings: Holdings,
    before: Option<Snapshot>,
    verdicts: Verdicts,
    shares: Shares,
}

impl DeltaPlanner {
    fn new() -> Self {
        Self {
            rounds: Rounds::default(),
            rounds_without_explanations: Rounds::without_explanations(),
            holdings: Holdings::default(),
            before: None,
            verdicts: Verdicts::new(),
            shares: Shares::default(),
        }
    }

    /// Plans a round from a delta. Asserts that plan and reports equal those of a new planner that
    /// reads the whole snapshot.
    fn plan_round(&mut self, now: &Snapshot, case: &str) -> Plan {
        let delta = self.before.as_ref();
        let delta = delta.map_or_else(SnapshotDelta::everything, |before| {
            SnapshotDelta::between(before, now)
        });
        self.before = Some(now.clone());
        self.holdings.apply_delta(now, &delta);
        self.holdings.assert_same(&Holdings::new(now));
        let unexplained_plan = self.rounds_without_explanations.decide(now, &delta).plan;
        let decided = self.rounds.decide(now, &delta);
        assert!(
            unexplained_plan == decided.plan,
            "{case}: the plan differs without explanations"
        );
        if let Some(delta) = decided.shares.clone() {
            self.shares.apply_delta(delta);
        } else {
            (self.shares, self.verdicts) = (self.rounds.shares(), self.rounds.verdicts());
        }
        self.verdicts.retain(|id, _| !decided.gone.contains(id));
        self.verdicts
            .extend(plan::box_verdicts(decided.verdicts.clone()));
        let plan = self.rounds.full_plan(decided);
        let checked = self.holdings.check(now, &plan);
        assert!(checked.is_ok(), "{case}: {checked:?}");
        let expected = FairShare.schedule(now);
        if plan != expected {
            let difference = first_difference(&plan, &expected);
            panic!("{case}: {difference}");
        }
        assert!(
            self.verdicts == expected.verdicts,
            "{case}: reader verdicts"
        );
        assert!(self.shares == expected.shares, "{case}: reader shares");
        plan
    }
}

#[test]
fn rounds_from_deltas_equal_rounds_of_a_new_planner() {
    for seed in 0..FLEETS / 2 {
        let mut random = Random::new(seed + 7_000);
        let mut fixture = fleet(&mut random);
        let mut planner = DeltaPlanner::new();
        for round in 1..=ROUNDS {
            let plan =
                planner.plan_round(&fixture.snapshot, &format!("seed {seed}, round {round}"));
            fixture.carry_out(&plan);
            apply_random_events(&mut fixture, &mut random, round);
            remove_random_node(&mut fixture, &mut random);
        }
    }
}

/// A tree of pools in which nothing changed is idle: its last result is reused. It is planned again
/// if the passed time matters.
#[test]
fn rounds_with_idle_trees_equal_rounds_of_a_new_planner() {
    for seed in 0..FLEETS / 10 {
        let mut random = Random::new(seed + 11_000);
        let mut fixture = fleet(&mut random);
        let mut planner = DeltaPlanner::new();
        for round in 1..=2 * ROUNDS {
            let plan =
                planner.plan_round(&fixture.snapshot, &format!("seed {seed}, round {round}"));
            fixture.carry_out(&plan);
            let elapsed_ms = random.pick(&[0, 1_000, 60_000, 600_000, 4_000_000]);
            fixture.snapshot.now = fixture.snapshot.now.plus_ms(elapsed_ms);
            change_demand(&mut fixture, &mut random);
        }
    }
}

/// Changes the demand of random work: fewer remaining tasks, or another user, duration or the like.
fn change_demand(fixture: &mut Fixture, random: &mut Random) {
    for demand in fixture.snapshot.demand.values_mut() {
        if random.one_in(3) {
            demand.remaining_tasks = demand.remaining_tasks.saturating_sub(random.below(3));
        }
        match random.below(60) {
            0 => demand.task_ms = Some(random.below(9_000)),
            1 => demand.threads = 1 + u32::try_from(random.below(3)).unwrap(),
            2 => demand.runnable = !demand.runnable,
            3 => demand.submitted_at = demand.submitted_at.plus_ms(1),
            4 => demand.user = random.pick(&["u1", "u2"]).parse().unwrap(),
            _ => {}
        }
    }
}

/// Sometimes removes a random node, with or without allocations. Sometimes lets work avoid that
/// node.
fn remove_random_node(fixture: &mut Fixture, random: &mut Random) {
    let name = format!("n{:02}", random.below(40));
    if random.one_in(3) {
        fixture.snapshot.nodes.remove(name.as_str());
    }
    let work = fixture.snapshot.demand.values_mut();
    if let Some(work) = work.filter(|_| random.one_in(8)).last() {
        work.avoids.insert(node_name(&name));
    }
}

/// Returns the texts of both plans around their first difference.
fn first_difference(plan: &Plan, expected: &Plan) -> String {
    let [text, expected] = [plan, expected].map(|plan| serde_json::to_string(plan).unwrap());
    let same_bytes = text
        .bytes()
        .zip(expected.bytes())
        .take_while(|(a, b)| a == b);
    let from = same_bytes.count().saturating_sub(200);
    let around = |text: &str| text.chars().skip(from).take(400).collect::<String>();
    format!("{} instead of {}", around(&text), around(&expected))
}
