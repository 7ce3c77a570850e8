//! A short run of the fault injection with a fixed seed, for CI.

use std::time::Duration;

use hayward_tests_faults::plan::Seed;
use hayward_tests_faults::run::{RunConfig, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_keeps_its_promises_through_a_hundred_faults() {
    let config = RunConfig {
        seed: Seed(20_261_127),
        duration: Duration::ZERO,
        max_phases: 1,
        faults_per_phase: 100,
    };
    let local = tokio::task::LocalSet::new();
    let summary = local.run_until(run(config)).await.expect("a fleet");
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(
        summary.fault_count() >= 60,
        "too few faults were possible: {summary}"
    );
}
