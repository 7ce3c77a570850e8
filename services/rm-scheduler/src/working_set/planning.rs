//! The planner with its state from round to round, the check, and the recorder of inputs.

use hayward_rm_scheduler_capacity::Rounds;
use hayward_rm_scheduler_domain::check::{Holdings, Violation};
use hayward_rm_scheduler_domain::plan::Shares;
use hayward_rm_scheduler_domain::{Decision, Plan, Verdict, plan};
use hayward_vocabulary::WorkId;

use crate::recorder::{PlanDiff, Recorder, UnwrittenRound, WorkChanges};
use crate::round_trace::{RoundTimer, RoundTrace};
use crate::tracked_snapshot::{Delta, TrackedSnapshot};

/// The snapshot delta and the plan of a round, as they are recorded, or the reason why they are
/// not. The plan is without verdicts and without shares of single pieces of work.
pub(crate) type RecordedInputs = Result<(Delta, Plan), String>;

pub(crate) struct Planning {
    rounds: Rounds,
    /// Held space, for the check of plans.
    holdings: Holdings,
    recorder: Recorder,
    /// True if the next round publishes all verdicts, not only changes.
    full_report: bool,
    /// Trace of the round that is being carried out.
    trace: Option<RoundTrace>,
}

impl Planning {
    pub fn new(recorder: Recorder) -> Self {
        Self {
            rounds: Rounds::default(),
            holdings: Holdings::default(),
            recorder,
            full_report: true,
            trace: None,
        }
    }

    /// Plans one round from the snapshot. Returns the decisions and the inputs to record.
    pub fn decide(
        &mut self,
        snapshot: &mut TrackedSnapshot,
        timer: &mut RoundTimer,
    ) -> (Decision, RecordedInputs) {
        let delta = snapshot.take_unplanned();
        let mut end_phase = |phase| timer.planning_phase_ended(phase);
        let mut decided = self.rounds.decide_watched(snapshot, &delta, &mut end_phase);
        self.holdings.apply_delta(snapshot, &delta);
        self.recorder.observe(&decided);
        let changed = !decided.plan.is_empty() || !decided.verdicts.is_empty();
        let inputs = if changed || decided.shares.is_none() {
            self.recorder.take_delta(snapshot)
        } else {
            Err("it changed nothing".to_owned())
        };
        let inputs = inputs.map(|inputs| {
            (
                inputs,
                PlanDiff::without_work(&decided.plan, self.rounds.sums()),
            )
        });
        if std::mem::take(&mut self.full_report) || decided.shares.is_none() {
            decided.plan.verdicts = self.rounds.verdicts();
        } else {
            let changed = std::mem::take(&mut decided.verdicts);
            decided.plan.verdicts = plan::box_verdicts(changed).collect();
        }
        (decided, inputs)
    }

    /// Returns the plan without the parts that the check refuses, and the reasons of the refusals.
    pub fn check(&self, snapshot: &TrackedSnapshot, plan: Plan) -> (Plan, Vec<Violation>) {
        self.holdings.prune(snapshot, plan)
    }

    /// Checks a plan that is made between two rounds. The next round applies the same delta again,
    /// which changes nothing.
    pub fn check_between_rounds(&mut self, snapshot: &TrackedSnapshot, plan: Plan) -> Plan {
        self.holdings.apply_delta(snapshot, snapshot.unplanned());
        self.holdings.prune(snapshot, plan).0
    }

    /// Makes the next round publish all verdicts.
    pub fn request_full_report(&mut self) {
        self.full_report = true;
    }

    pub fn record(&mut self, round: u64, inputs: Delta, plan: Plan) -> UnwrittenRound {
        let rounds = &self.rounds;
        let all = || WorkChanges::all(rounds.verdicts(), rounds.shares());
        self.recorder.record(round, inputs, plan, all)
    }

    pub fn shares(&self) -> Shares {
        self.rounds.shares()
    }

    /// Returns the shares without those of single pieces of work.
    pub fn sums(&self) -> &Shares {
        self.rounds.sums()
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
        self.rounds.verdict(work)
    }

    /// Returns true if a decision of the last round depends on a wait that ends with time.
    pub fn waits_for_time(&self) -> bool {
        self.rounds.waits_for_time()
    }

    pub fn set_trace(&mut self, trace: Option<RoundTrace>) {
        self.trace = trace;
    }

    pub fn trace_mut(&mut self) -> Option<&mut RoundTrace> {
        self.trace.as_mut()
    }

    pub fn take_trace(&mut self) -> Option<RoundTrace> {
        self.trace.take()
    }
}
