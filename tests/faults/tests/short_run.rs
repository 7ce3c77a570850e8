//! A short run of the fault injection with a fixed seed, for CI.

use std::time::Duration;

use hayward_tests_faults::plan::Seed;
use hayward_tests_faults::run::{RunConfig, run};

/// An arbitrary seed. It is fixed so that each run of CI injects the same faults.
const SEED: Seed = Seed(20_261_127);
/// Number of faults that must be injected at least. Others are skipped, for example without root or
/// because their target is down.
const MIN_INJECTED: u32 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_keeps_its_promises_through_a_hundred_faults() {
    let config = RunConfig {
        seed: SEED,
        // With this duration, the run ends after its first phase.
        duration: Duration::ZERO,
        max_phases: 1,
        faults_per_phase: 100,
    };
    // The run starts tasks that stay on this thread, because they share a ledger without locks.
    let local = tokio::task::LocalSet::new();
    let summary = local.run_until(run(config)).await.expect("a fleet");
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(
        summary.fault_count() >= MIN_INJECTED,
        "too few faults were possible: {summary}"
    );
}
