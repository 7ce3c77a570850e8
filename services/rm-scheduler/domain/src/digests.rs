//! The planner decides today what it decided before: plans of random fleets against digests that
//! are checked in. A change that is meant to decide otherwise writes them anew
//! (`BLESS=1 cargo test -p hayward-rm-scheduler-domain digests`) and says so in its commit.

use std::{fmt::Write, fs, path::Path};

use crate::{
    FairShare, Plan, Planner,
    fleets::{Draw, fleet, happen},
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

fn life(seed: u64, mut sum: u64) -> u64 {
    let mut draw = Draw::new(seed);
    let mut world = fleet(&mut draw);
    for round in 1..=ROUNDS {
        let plan = FairShare.schedule(&world.snapshot);
        sum = digest(sum, &plan);
        world.carry_out(&plan);
        happen(&mut world, &mut draw, round);
    }
    sum
}

#[test]
fn every_plan_is_what_it_was() {
    let mut lines = String::new();
    for from in (0..FLEETS).step_by(usize::try_from(IN_A_LINE).unwrap()) {
        let sum = (from..from + IN_A_LINE).fold(0xcbf2_9ce4_8422_2325, |sum, seed| life(seed, sum));
        writeln!(lines, "{from:03} {sum:016x}").unwrap();
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
