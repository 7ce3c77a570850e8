//! Runs the fault injection: phases of faults, each followed by repairs and all checks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use hayward_service::{Clock as _, SystemClock};
use tokio::time::{Instant, sleep_until};

use crate::checks::{self, CheckContext, Violation};
use crate::faults::{self, InjectionResult, Repair};
use crate::fleet::{self, Fleet, UnexpectedExit};
use crate::plan::{self, Action, Actor, Fault, Phase, PhaseNumber, Seed};
use crate::work::{self, Cancellation, Clients, Ledger, SharedLedger};

/// Interval of the check for processes that ended by themselves.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Seed, duration and number of faults of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunConfig {
    pub seed: Seed,
    /// No phase begins after this time. There is always at least one.
    pub duration: Duration,
    pub max_phases: u32,
    pub faults_per_phase: u32,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Summary {
    pub phases: u32,
    /// Number of injected faults by label.
    pub injected: BTreeMap<&'static str, u32>,
    /// Number of skipped faults by label and reason.
    pub skipped: BTreeMap<(&'static str, &'static str), u32>,
    /// Number of acknowledged submissions, cancellations and operations.
    pub acknowledged_count: u64,
    /// Refused operations and cancellations, which are no violations.
    pub refused: Vec<String>,
    /// Processes that ended without being killed, and were restarted.
    pub unexpected_exits: Vec<UnexpectedExit>,
    pub violations: Vec<Violation>,
    /// Folder of the fleet, with all state and logs.
    pub dir: PathBuf,
}

impl Summary {
    pub fn fault_count(&self) -> u32 {
        self.injected.values().sum()
    }

    fn record(&mut self, fault: Fault, result: &InjectionResult) {
        match result {
            InjectionResult::Skipped(reason) => {
                *self.skipped.entry((fault.label(), *reason)).or_default() += 1;
            }
            InjectionResult::Done | InjectionResult::NeedsRepair(_) => {
                *self.injected.entry(fault.label()).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (faults, phases) = (self.fault_count(), self.phases);
        writeln!(
            f,
            "{faults} faults in {phases} phases, {} requests acknowledged",
            self.acknowledged_count
        )?;
        for (label, count) in &self.injected {
            writeln!(f, "  {count:5} {label}")?;
        }
        for ((label, reason), count) in &self.skipped {
            writeln!(f, "  skipped: {count} {label}: {reason}")?;
        }
        for refusal in &self.refused {
            writeln!(f, "  refused: {refusal}")?;
        }
        for exit in &self.unexpected_exits {
            writeln!(f, "  ended by itself: {exit}")?;
        }
        for violation in &self.violations {
            writeln!(f, "VIOLATION of {}: {}", violation.check, violation.message)?;
        }
        if !self.violations.is_empty() {
            let dir = self.dir.display();
            writeln!(f, "state is in {dir}, logs are in {dir}/logs")?;
        }
        Ok(())
    }
}

/// Starts a fleet in a new folder and runs the phases. The folder stays if a promise was broken.
///
/// # Errors
/// If the fleet cannot be started or changed. The run has no result then.
pub async fn run(config: RunConfig) -> anyhow::Result<Summary> {
    let Seed(seed) = config.seed;
    let name = format!("hayward-faults-{seed}-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    println!("state in {}", dir.display());
    let mut fleet = fleet::start(dir.clone()).await?;
    let mut summary = Summary {
        dir,
        ..Summary::default()
    };
    let started_at = Instant::now();
    while summary.phases < config.max_phases && summary.violations.is_empty() {
        if summary.phases > 0 && started_at.elapsed() >= config.duration {
            break;
        }
        let number = PhaseNumber(summary.phases);
        let phase = plan::generate_phase(config.seed, number, config.faults_per_phase);
        run_phase(&mut fleet, &phase, &mut summary).await?;
        summary.phases += 1;
        let (faults, elapsed_s) = (summary.fault_count(), started_at.elapsed().as_secs());
        println!("phase {}: {faults} faults so far, {elapsed_s} s", number.0);
    }
    summary.unexpected_exits = std::mem::take(&mut fleet.unexpected_exits);
    fleet.shut_down(!summary.violations.is_empty()).await?;
    Ok(summary)
}

/// Runs one phase: its steps, all repairs, and then three groups of checks. Later groups need a
/// fleet without operations in force, and without work.
async fn run_phase(fleet: &mut Fleet, phase: &Phase, summary: &mut Summary) -> anyhow::Result<()> {
    let ledger: SharedLedger = Rc::new(RefCell::new(Ledger::default()));
    let clients = Clients::new(fleet)?;
    let mut phase_run = PhaseRun {
        fleet,
        clients: &clients,
        ledger: &ledger,
        phase: phase.number,
        repairs: Vec::new(),
        exits_checked_at: Instant::now(),
    };
    phase_run.run_steps(phase, summary).await?;
    phase_run.repair_all().await?;
    let context = CheckContext {
        fleet,
        clients: &clients,
        ledger: &ledger,
    };
    let mut violations = checks::check_after_repairs(&context).await;
    let operations = ledger.borrow().acknowledged_operations.clone();
    for acknowledged in &operations {
        if let Err(reason) = work::withdraw(&clients, acknowledged).await {
            let message = format!("{acknowledged:?}: {reason}");
            let check = "acknowledged operations can be withdrawn";
            violations.push(Violation { check, message });
        }
    }
    if violations.is_empty() {
        violations.extend(checks::check_after_withdrawals(&context).await);
    }
    if violations.is_empty() {
        cancel_all_work(&clients, &ledger).await;
        violations.extend(checks::check_after_cancellations(&context).await);
    }
    let ledger = ledger.borrow();
    summary.acknowledged_count += ledger.acknowledged_count;
    summary.refused.extend(ledger.refusals.iter().cloned());
    summary.violations.extend(violations);
    Ok(())
}

async fn cancel_all_work(clients: &Clients, ledger: &SharedLedger) {
    let count = ledger.borrow().items.len();
    for index in 0..count {
        let item = ledger.borrow().items[index].clone();
        if item.cancellation == Cancellation::None {
            work::cancel(clients.clone(), Rc::clone(ledger), index).await;
        }
    }
}

/// The first part of a phase: submissions, operations, and faults with their repairs.
struct PhaseRun<'a> {
    fleet: &'a mut Fleet,
    clients: &'a Clients,
    ledger: &'a SharedLedger,
    phase: PhaseNumber,
    /// Repairs that are not yet made, and when they are due.
    repairs: Vec<(Instant, Repair)>,
    /// Time of the last check for processes that ended by themselves.
    exits_checked_at: Instant,
}

impl PhaseRun<'_> {
    async fn run_steps(&mut self, phase: &Phase, summary: &mut Summary) -> anyhow::Result<()> {
        let started_at = Instant::now();
        for step in &phase.steps {
            self.run_repairs_until(started_at + Duration::from_millis(step.at_ms))
                .await?;
            match step.action {
                Action::Submit(work) => self.submit(work),
                Action::Operation(operation) => {
                    let (clients, ledger) = (self.clients.clone(), Rc::clone(self.ledger));
                    tokio::task::spawn_local(work::execute_operation(clients, ledger, operation));
                }
                Action::Fault(fault) => {
                    let result = faults::inject(self.fleet, fault).await?;
                    summary.record(fault, &result);
                    self.log_injection(fault, &result)?;
                    if let InjectionResult::NeedsRepair(scheduled) = result {
                        self.repairs
                            .push((Instant::now() + scheduled.after, scheduled.repair));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a log of injections with their times, for the analysis of violations.
    fn log_injection(&self, fault: Fault, result: &InjectionResult) -> anyhow::Result<()> {
        let path = self.fleet.dir.join("logs").join("faults.log");
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?;
        writeln!(log, "{} {fault:?}: {result:?}", SystemClock.now())?;
        Ok(())
    }

    fn submit(&self, work: plan::Work) {
        let mut ledger = self.ledger.borrow_mut();
        let index = ledger.add_item(&self.fleet.dir, self.phase, work);
        let shared = Rc::clone(self.ledger);
        tokio::task::spawn_local(work::submit(self.clients.clone(), shared, index));
    }

    /// Waits until `deadline`. Meanwhile makes repairs that become due, and restarts processes that
    /// ended by themselves.
    async fn run_repairs_until(&mut self, deadline: Instant) -> anyhow::Result<()> {
        loop {
            if self.exits_checked_at.elapsed() >= EXIT_CHECK_INTERVAL {
                self.fleet.restart_ended()?;
                self.exits_checked_at = Instant::now();
            }
            self.repairs.sort_by_key(|(at, _)| *at);
            let due = self.repairs.first().map_or(deadline, |(at, _)| *at);
            let next = due.min(deadline).min(Instant::now() + EXIT_CHECK_INTERVAL);
            sleep_until(next).await;
            if self
                .repairs
                .first()
                .is_some_and(|(at, _)| *at <= Instant::now())
            {
                let (_, repair) = self.repairs.remove(0);
                faults::apply_repair(self.fleet, repair).await?;
            }
            if Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Makes all remaining repairs at once, and brings the fleet into its normal state.
    async fn repair_all(&mut self) -> anyhow::Result<()> {
        self.repairs.sort_by_key(|(at, _)| *at);
        for (_, repair) in std::mem::take(&mut self.repairs) {
            faults::apply_repair(self.fleet, repair).await?;
        }
        self.fleet.relays.reset_all();
        self.fleet.postgres.ensure_running().await?;
        for actor in Actor::all() {
            self.fleet.resume(actor)?;
            self.fleet.start(actor)?;
        }
        self.fleet.restart_ended()
    }
}
