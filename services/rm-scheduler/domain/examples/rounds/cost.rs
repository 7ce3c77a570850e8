//! Measures the cost of rounds and prints it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hayward_rm_scheduler_domain::check::Holdings;
use hayward_rm_scheduler_domain::snapshot::Snapshot;
use hayward_rm_scheduler_domain::{Decided, Phase, Plan, Rounds, SnapshotDelta};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// Cost of one round.
#[derive(Default, Clone)]
pub struct Cost {
    pub spent: Duration,
    pub passed: Duration,
    pub phases: BTreeMap<Phase, Duration>,
    /// CPU time that the check of the plan took.
    pub checking: Duration,
}

/// State that a service keeps between rounds.
#[derive(Default)]
pub struct ServiceState {
    pub rounds: Rounds,
    holdings: Holdings,
}

/// Rounds of the same kind, sorted by elapsed time.
#[derive(Default)]
pub struct Several(Vec<Round>);

/// Figures of one round. Plans are not stored: a service drops a plan before the next round, and
/// stored plans would make each round use new memory.
struct Round {
    cost: Cost,
    grants: usize,
    vacates: usize,
}

impl Several {
    pub fn note(&mut self, plan: &Plan, cost: Cost) {
        let place = self.0.partition_point(|it| it.cost.passed <= cost.passed);
        let round = Round {
            cost,
            grants: plan.grants.len(),
            vacates: plan.vacates.len(),
        };
        self.0.insert(place, round);
    }

    pub fn show(&self, what: &str, naive: &Cost) {
        // The median by elapsed time.
        let middle = &self.0[self.0.len() / 2];
        let (cost, grants, vacates) = (&middle.cost, middle.grants, middle.vacates);
        let (least, most) = (&self.0[0].cost, &self.0[self.0.len() - 1].cost);
        println!(
            "  {what:<8} {:>9.2} ms ({:.2} passed, {:.2} to {:.2}), {:.2} of best fit, {grants} \
             grants, {vacates} leave",
            ms(cost.spent),
            ms(cost.passed),
            ms(least.passed),
            ms(most.passed),
            ms(cost.spent) / ms(naive.spent),
        );
        let phases = cost.phases.iter();
        let phases: Vec<String> = phases
            .map(|(phase, time)| format!("{phase:?} {:.2}", ms(*time)).to_lowercase())
            .collect();
        let checked = ms(cost.checking);
        println!("           {}; checked in {checked:.2}", phases.join(", "));
    }
}

pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Returns the CPU time of this process, summed over all its threads.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a program may ask about itself");
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

pub fn timed<T>(run: impl FnOnce() -> T) -> (T, Cost) {
    let (clock, before) = (Instant::now(), processor_time());
    let done = run();
    let cost = Cost {
        spent: processor_time().saturating_sub(before),
        passed: clock.elapsed(),
        ..Cost::default()
    };
    (done, cost)
}

impl ServiceState {
    /// Plans a round and checks the plan. Returns the decision and its cost.
    pub fn round(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> (Decided, Cost) {
        let (decided, cost) = self.watched(snapshot, news);
        let (checked, checking) = timed(|| {
            self.holdings.follow(snapshot, news);
            self.holdings.check(snapshot, &decided.plan)
        });
        assert!(
            checked.is_ok(),
            "a plan that the check refuses: {checked:?}"
        );
        let checking = checking.spent;
        (decided, Cost { checking, ..cost })
    }

    fn watched(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> (Decided, Cost) {
        let mut phases: BTreeMap<Phase, Duration> = BTreeMap::new();
        let mut last = processor_time();
        let (decided, cost) = timed(|| {
            self.rounds.decide_watched(snapshot, news, &mut |phase| {
                let now = processor_time();
                *phases.entry(phase).or_default() += now.saturating_sub(last);
                last = now;
            })
        });
        (decided, Cost { phases, ..cost })
    }
}
