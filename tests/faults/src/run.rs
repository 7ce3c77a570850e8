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

/// How often it is looked whether a process ended by itself.
const LOOK: Duration = Duration::from_millis(500);

/// How long and how hard.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    pub seed: Seed,
    /// No phase begins after this; one there is always.
    pub time: Duration,
    pub most_phases: u32,
    pub faults_per_phase: u32,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Summary {
    pub phases: u32,
    /// How many of each kind were injected.
    pub injected: BTreeMap<&'static str, u32>,
    pub skipped: BTreeMap<(&'static str, &'static str), u32>,
    pub acknowledged: u64,
    pub refused: Vec<String>,
    /// Processes that ended without being killed, and were started anew.
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

/// Runs in a fresh folder, which is kept where a promise was broken.
///
/// # Errors
/// When the fleet cannot be started or changed: nothing is known then.
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
    let doors = Doors::of(fleet)?;
    let mut story = Story {
        fleet,
        doors: &doors,
        ledger: &ledger,
        phase: phase.number,
        repairs: Vec::new(),
        looked: Instant::now(),
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
        found.extend(checks::with_room_again(&scene).await);
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

/// The part of a phase in which things break.
struct Story<'a> {
    fleet: &'a mut Fleet,
    doors: &'a Doors,
    ledger: &'a Shared,
    phase: PhaseNumber,
    /// What is to be mended, and when.
    repairs: Vec<(Instant, Repair)>,
    /// When it was last looked whether a process ended by itself.
    looked: Instant,
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
                    self.write_down(fault, &injected)?;
                    if let Injected::Until(mend) = injected {
                        self.repairs.push((Instant::now() + mend.after, mend.what));
                    }
                }
            }
        }
        Ok(())
    }

    /// For whoever looks into a violation: what was done, and when, beside the logs.
    fn write_down(&self, fault: Fault, injected: &Injected) -> anyhow::Result<()> {
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

    /// Mends what is due until then.
    async fn until(&mut self, then: Instant) -> anyhow::Result<()> {
        loop {
            if self.looked.elapsed() >= LOOK {
                self.fleet.restart_ended()?;
                self.looked = Instant::now();
            }
            self.repairs.sort_by_key(|(at, _)| *at);
            let due = self.repairs.first().map_or(then, |(at, _)| *at);
            let next = due.min(then).min(Instant::now() + LOOK);
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

    /// Everything that was broken is mended, in the order in which it was to be.
    async fn calm(&mut self) -> anyhow::Result<()> {
        self.repairs.sort_by_key(|(at, _)| *at);
        for (_, repair) in std::mem::take(&mut self.repairs) {
            faults::mend(self.fleet, repair).await?;
        }
        self.fleet.wires.open_all();
        self.fleet.postgres.resume().await?;
        for actor in Actor::all() {
            self.fleet.go_on(actor)?;
            self.fleet.start(actor)?;
        }
        self.fleet.restart_ended()
    }
}
