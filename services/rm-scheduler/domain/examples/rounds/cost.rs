//! Measures and prints the cost of rounds: CPU time, elapsed time, and time by phase.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hayward_rm_scheduler_domain::check::Holdings;
use hayward_rm_scheduler_domain::snapshot::Snapshot;
use hayward_rm_scheduler_domain::{Decision, Phase, Plan, Rounds, SnapshotDelta};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// Cost of one round.
#[derive(Default, Clone)]
pub struct Cost {
    /// CPU time of all threads.
    pub cpu_time: Duration,
    pub elapsed: Duration,
    /// CPU time of each phase of the round.
    pub phases: BTreeMap<Phase, Duration>,
    /// CPU time that the check of the plan took.
    pub check_time: Duration,
}

/// State that a service retains between rounds.
#[derive(Default)]
pub struct ServiceState {
    pub rounds: Rounds,
    holdings: Holdings,
}

/// Measured rounds of the same kind, sorted by elapsed time.
#[derive(Default)]
pub struct RoundSamples {
    samples: Vec<RoundSample>,
}

/// Cost and counts of one round. Plans are not stored: a service drops a plan before the next
/// round, and stored plans would make each round use new memory.
struct RoundSample {
    cost: Cost,
    grants: usize,
    vacates: usize,
}

impl RoundSamples {
    pub fn add(&mut self, plan: &Plan, cost: Cost) {
        let position = self
            .samples
            .partition_point(|sample| sample.cost.elapsed <= cost.elapsed);
        let sample = RoundSample {
            cost,
            grants: plan.grants.len(),
            vacates: plan.vacates.len(),
        };
        self.samples.insert(position, sample);
    }

    /// Prints the round with the median elapsed time.
    pub fn print(&self, name: &str, baseline: &Cost) {
        let median = &self.samples[self.samples.len() / 2];
        let (cost, grants, vacates) = (&median.cost, median.grants, median.vacates);
        let (fastest, slowest) = (
            &self.samples[0].cost,
            &self.samples[self.samples.len() - 1].cost,
        );
        println!(
            "  {name:<8} {:>9.2} ms ({:.2} passed, {:.2} to {:.2}), {:.2} of best fit, {grants} \
             grants, {vacates} leave",
            ms(cost.cpu_time),
            ms(cost.elapsed),
            ms(fastest.elapsed),
            ms(slowest.elapsed),
            ms(cost.cpu_time) / ms(baseline.cpu_time),
        );
        let phases = cost.phases.iter();
        let phases: Vec<String> = phases
            .map(|(phase, time)| format!("{phase:?} {:.2}", ms(*time)).to_lowercase())
            .collect();
        let checked = ms(cost.check_time);
        println!("           {}; checked in {checked:.2}", phases.join(", "));
    }
}

/// Converts a duration to milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Returns the CPU time of this process, summed over all its threads.
fn process_cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a program may ask about itself");
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

/// Runs the operation. Returns its result and its cost.
pub fn measure_cost<T>(operation: impl FnOnce() -> T) -> (T, Cost) {
    let (start, cpu_before) = (Instant::now(), process_cpu_time());
    let result = operation();
    let cost = Cost {
        cpu_time: process_cpu_time().saturating_sub(cpu_before),
        elapsed: start.elapsed(),
        ..Cost::default()
    };
    (result, cost)
}

impl ServiceState {
    /// Plans a round and checks the plan. Returns the decision and its cost.
    pub fn run_round(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> (Decision, Cost) {
        let (decided, cost) = self.decide_by_phase(snapshot, delta);
        let (checked, check_cost) = measure_cost(|| {
            self.holdings.apply_delta(snapshot, delta);
            self.holdings.check(snapshot, &decided.plan)
        });
        assert!(checked.is_ok(), "the check refuses the plan: {checked:?}");
        let check_time = check_cost.cpu_time;
        (decided, Cost { check_time, ..cost })
    }

    fn decide_by_phase(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> (Decision, Cost) {
        let mut phases: BTreeMap<Phase, Duration> = BTreeMap::new();
        let mut last = process_cpu_time();
        let (decided, cost) = measure_cost(|| {
            self.rounds
                .decide_with_phases(snapshot, delta, &mut |phase| {
                    let now = process_cpu_time();
                    *phases.entry(phase).or_default() += now.saturating_sub(last);
                    last = now;
                })
        });
        (decided, Cost { phases, ..cost })
    }
}
