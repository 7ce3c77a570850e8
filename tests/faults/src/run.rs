//! A run: phases of faults, each followed by a calm and all checks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use hayward_service::{Clock as _, SystemClock};
use tokio::time::{Instant, sleep_until};

use crate::checks::{self, Scene, Violation};
use crate::faults::{self, Injected, Repair};
use crate::fleet::{self, Fleet, OwnEnd};
use crate::plan::{self, Actor, Fault, Happening, Phase, PhaseNumber, Seed};
use crate::work::{self, Cancelled, Doors, Ledger, Shared};

/// Interval of the check for processes that ended by themselves.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Length and intensity of a run.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    pub seed: Seed,
    /// No phase begins after this time. There is always at least one.
    pub time: Duration,
    pub most_phases: u32,
    pub faults_per_phase: u32,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Summary {
    pub phases: u32,
    /// Number of injected faults by kind.
    pub injected: BTreeMap<&'static str, u32>,
    pub skipped: BTreeMap<(&'static str, &'static str), u32>,
    pub acknowledged: u64,
    pub refused: Vec<String>,
    /// Processes that ended without being killed, and were restarted.
    pub own_ends: Vec<OwnEnd>,
    pub violations: Vec<Violation>,
    pub dir: PathBuf,
}

impl Summary {
    pub fn faults(&self) -> u32 {
        self.injected.values().sum()
    }

    fn note(&mut self, fault: Fault, injected: &Injected) {
        match injected {
            Injected::Skipped(why) => {
                *self.skipped.entry((fault.kind(), *why)).or_default() += 1;
            }
            Injected::Done | Injected::Until(_) => {
                *self.injected.entry(fault.kind()).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (faults, phases) = (self.faults(), self.phases);
        writeln!(
            out,
            "{faults} faults in {phases} phases, {} requests kept",
            self.acknowledged
        )?;
        for (kind, count) in &self.injected {
            writeln!(out, "  {count:5} {kind}")?;
        }
        for ((kind, why), count) in &self.skipped {
            writeln!(out, "  skipped: {count} {kind}: {why}")?;
        }
        for refusal in &self.refused {
            writeln!(out, "  refused: {refusal}")?;
        }
        for end in &self.own_ends {
            writeln!(out, "  ended by itself: {end}")?;
        }
        for violation in &self.violations {
            writeln!(out, "VIOLATION of {}: {}", violation.check, violation.what)?;
        }
        if !self.violations.is_empty() {
            let dir = self.dir.display();
            writeln!(out, "state is kept in {dir}, logs are in {dir}/logs")?;
        }
        Ok(())
    }
}

/// Runs in a fresh folder. The folder stays if a promise was broken.
///
/// # Errors If the fleet cannot be started or changed. The run has no result then.
pub async fn run(course: Course) -> anyhow::Result<Summary> {
    let Seed(seed) = course.seed;
    let name = format!("hayward-faults-{seed}-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    println!("state in {}", dir.display());
    let mut fleet = fleet::start(dir.clone()).await?;
    let mut summary = Summary {
        dir,
        ..Summary::default()
    };
    let began = Instant::now();
    while summary.phases < course.most_phases && summary.violations.is_empty() {
        if summary.phases > 0 && began.elapsed() >= course.time {
            break;
        }
        let number = PhaseNumber(summary.phases);
        let phase = plan::phase(course.seed, number, course.faults_per_phase);
        one_phase(&mut fleet, &phase, &mut summary).await?;
        summary.phases += 1;
        let (faults, took) = (summary.faults(), began.elapsed().as_secs());
        println!("phase {}: {faults} faults so far, {took} s", number.0);
    }
    summary.own_ends = std::mem::take(&mut fleet.own_ends);
    fleet.end(!summary.violations.is_empty()).await?;
    Ok(summary)
}

async fn one_phase(fleet: &mut Fleet, phase: &Phase, summary: &mut Summary) -> anyhow::Result<()> {
    let ledger: Shared = Rc::new(RefCell::new(Ledger::default()));
    let doors = Doors::new(fleet)?;
    let mut story = Story {
        fleet,
        doors: &doors,
        ledger: &ledger,
        phase: phase.number,
        repairs: Vec::new(),
        checked_at: Instant::now(),
    };
    story.faults(phase, summary).await?;
    story.calm().await?;
    let scene = Scene {
        fleet,
        doors: &doors,
        ledger: &ledger,
    };
    let mut found = checks::in_the_calm(&scene).await;
    let given = ledger.borrow().given.clone();
    for given in &given {
        if let Err(why) = work::take_back(&doors, given).await {
            let what = format!("{given:?}: {why}");
            let check = "what was ordered can be taken back";
            found.push(Violation { check, what });
        }
    }
    if found.is_empty() {
        found.extend(checks::after_space_is_free_again(&scene).await);
    }
    if found.is_empty() {
        end_work(&doors, &ledger).await;
        found.extend(checks::at_the_end(&scene).await);
    }
    let ledger = ledger.borrow();
    summary.acknowledged += ledger.acknowledged;
    summary.refused.extend(ledger.refused.iter().cloned());
    summary.violations.extend(found);
    Ok(())
}

async fn end_work(doors: &Doors, ledger: &Shared) {
    let count = ledger.borrow().items.len();
    for at in 0..count {
        let item = ledger.borrow().items[at].clone();
        if item.cancelled == Cancelled::No {
            work::cancel(doors.clone(), Rc::clone(ledger), at).await;
        }
    }
}

/// The part of a phase with faults.
struct Story<'a> {
    fleet: &'a mut Fleet,
    doors: &'a Doors,
    ledger: &'a Shared,
    phase: PhaseNumber,
    /// Repairs that are still to be made, and their times.
    repairs: Vec<(Instant, Repair)>,
    /// Time of the last check for processes that ended by themselves.
    checked_at: Instant,
}

impl Story<'_> {
    async fn faults(&mut self, phase: &Phase, summary: &mut Summary) -> anyhow::Result<()> {
        let began = Instant::now();
        for step in &phase.steps {
            self.until(began + Duration::from_millis(step.at_ms))
                .await?;
            match step.what {
                Happening::Submit(work) => self.submit(work),
                Happening::Order(order) => {
                    let (doors, ledger) = (self.doors.clone(), Rc::clone(self.ledger));
                    tokio::task::spawn_local(work::carry_out(doors, ledger, order));
                }
                Happening::Fault(fault) => {
                    let injected = faults::inject(self.fleet, fault).await?;
                    summary.note(fault, &injected);
                    self.log_injection(fault, &injected)?;
                    if let Injected::Until(mend) = injected {
                        self.repairs.push((Instant::now() + mend.after, mend.what));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a log of injections with their times, for the analysis of violations.
    fn log_injection(&self, fault: Fault, injected: &Injected) -> anyhow::Result<()> {
        let path = self.fleet.dir.join("logs").join("faults.log");
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?;
        writeln!(log, "{} {fault:?}: {injected:?}", SystemClock.now())?;
        Ok(())
    }

    fn submit(&self, work: plan::Work) {
        let mut ledger = self.ledger.borrow_mut();
        let at = ledger.new_item(&self.fleet.dir, self.phase, work);
        let shared = Rc::clone(self.ledger);
        tokio::task::spawn_local(work::submit(self.doors.clone(), shared, at));
    }

    /// Makes the repairs that are due before `then`.
    async fn until(&mut self, then: Instant) -> anyhow::Result<()> {
        loop {
            if self.checked_at.elapsed() >= CHECK_INTERVAL {
                self.fleet.restart_ended()?;
                self.checked_at = Instant::now();
            }
            self.repairs.sort_by_key(|(at, _)| *at);
            let due = self.repairs.first().map_or(then, |(at, _)| *at);
            let next = due.min(then).min(Instant::now() + CHECK_INTERVAL);
            sleep_until(next).await;
            if self
                .repairs
                .first()
                .is_some_and(|(at, _)| *at <= Instant::now())
            {
                let (_, repair) = self.repairs.remove(0);
                faults::mend(self.fleet, repair).await?;
            }
            if Instant::now() >= then {
                return Ok(());
            }
        }
    }

    /// Makes all repairs in order.
    async fn calm(&mut self) -> anyhow::Result<()> {
        self.repairs.sort_by_key(|(at, _)| *at);
        for (_, repair) in std::mem::take(&mut self.repairs) {
            faults::mend(self.fleet, repair).await?;
        }
        self.fleet.wires.open_all();
        self.fleet.postgres.resume().await?;
        for actor in Actor::all() {
            self.fleet.resume(actor)?;
            self.fleet.start(actor)?;
        }
        self.fleet.restart_ended()
    }
}
