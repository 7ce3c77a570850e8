//! A short run with a fixed seed, for the gate.

use std::time::Duration;

use hayward_tests_faults::plan::Seed;
use hayward_tests_faults::run::{Course, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_keeps_its_promises_through_a_hundred_faults() {
    let course = Course {
        seed: Seed(20_261_127),
        time: Duration::ZERO,
        most_phases: 1,
        faults_per_phase: 100,
    };
    let local = tokio::task::LocalSet::new();
    let summary = local.run_until(run(course)).await.expect("a fleet");
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(
        summary.faults() >= 60,
        "too few faults were possible: {summary}"
    );
}
