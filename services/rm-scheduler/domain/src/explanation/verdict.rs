//! The verdict on a piece of work: why it has the processes that it has.
//!
//! Verdicts are computed from the state after all decisions. Waiting work also gets its budget
//! numbers, further reasons and an unblock.

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{
    Apart, Size,
    plural::{processes, quanta},
};

use super::unblock::UnblockFinder;
use crate::{
    entitlement::attainable_processes::explain_no_node,
    ids::{PoolIx, WorkIx},
    index::ClassRecord,
    input::snapshot::Policy,
    output::{
        detail::{Detail, LackingDimension},
        plan::{BudgetNumbers, Numbers, Reason, Unblock, Verdict},
        reason::Deferral,
        shares::Counts,
    },
    state::{RoundState, WorkState, budget::BudgetStop, permanent_reasons::find_permanent_reason},
};

/// Explanations for work that no node can take. The key is home pool, policy, and the quanta and
/// size of one process.
type PermanentExplanations<'a> =
    BTreeMap<(Option<PoolIx>, Option<Policy>, u64, &'a Size), Explanation>;

/// The part of a verdict that is stored. Class and counts come from the row of the report.
#[derive(PartialEq, Eq)]
pub(crate) struct Finding {
    reason: Reason,
    refused: bool,
    waits: bool,
    detail: Detail,
    /// `None` if the work does not wait.
    suggestion: Option<Box<Suggestion>>,
}

/// Part of a verdict that only waiting work has.
#[derive(Clone, Default, PartialEq, Eq)]
struct Suggestion {
    budget: Option<BudgetNumbers>,
    further_reasons: Vec<Reason>,
    unblock: Option<Unblock>,
}

/// Reason and detail of a verdict.
#[derive(Clone, PartialEq, Eq)]
struct Explanation {
    reason: Reason,
    refused: bool,
    detail: Detail,
}

impl Explanation {
    fn new(reason: Reason, detail: Detail) -> Self {
        Self {
            reason,
            refused: false,
            detail,
        }
    }
}

impl From<Deferral> for Explanation {
    fn from(deferral: Deferral) -> Self {
        Self {
            reason: deferral.reason,
            refused: deferral.refused,
            detail: Detail::text(deferral.detail),
        }
    }
}

impl Finding {
    pub fn verdict(&self, class: Option<&ClassRecord>, counts: &Counts) -> Verdict {
        let suggestion = self.suggestion.as_deref().cloned().unwrap_or_default();
        Verdict {
            reason: self.reason,
            waits: self.waits,
            refused: self.refused,
            class: class.map(|class| Arc::clone(&class.name)),
            detail: self.detail.sentence(counts),
            numbers: Numbers {
                counted_processes: counts.counted,
                current_processes: counts.current,
                leaving_processes: counts.leaving,
                quanta: counts.quanta,
                wanted_processes: counts.wanted,
                budget: suggestion.budget,
                quota: None,
            },
            also: suggestion.further_reasons,
            unblock: suggestion.unblock,
        }
    }
}

/// Returns whether the work waits or is refused. Its verdict can then change in any round, without
/// a change of its own row.
pub(crate) fn is_unsettled(state: &RoundState, work: WorkIx, wait: Option<Reason>) -> bool {
    let work_state = &state.work[work];
    let has_no_reach = work_state.process_count() == 0 && work_state.reach == 0;
    work_state.deferral.is_some()
        || wait.is_some()
        || state.find_budget_stop(work).is_some()
        || has_no_reach
        || !state.whole_nodes_for(work).is_empty()
}

/// Builder of verdicts. It holds explanations that several pieces of work share in one round.
#[derive(Default)]
pub(crate) struct VerdictBuilder<'a> {
    permanent: PermanentExplanations<'a>,
    pub unblock_finder: UnblockFinder,
}

impl<'a> VerdictBuilder<'a> {
    /// Returns the verdict on this work. `wait` is the reason of its wait, if it waits.
    pub fn find(&mut self, state: &RoundState<'a>, work: WorkIx, wait: Option<Reason>) -> Finding {
        let work_state = &state.work[work];
        let current = work_state.process_count();
        let explanation = match &work_state.deferral {
            Some(deferral) => Deferral::clone(deferral).into(),
            None => explain_without_deferral(state, work, wait, self),
        };
        let counts_as_waiting =
            |reason| current == 0 || reason == Reason::WaitingForDefragmentation;
        let waits = work_state.deferral.is_some()
            || state.find_budget_stop(work).is_some()
            || wait.is_some_and(counts_as_waiting);
        let unblock_finder = &mut self.unblock_finder;
        let suggestion =
            waits.then(|| Box::new(suggest(state, work, explanation.reason, unblock_finder)));
        Finding {
            reason: explanation.reason,
            refused: explanation.refused,
            waits,
            detail: explanation.detail,
            suggestion,
        }
    }
}

fn suggest(
    state: &RoundState,
    work: WorkIx,
    reason: Reason,
    unblock_finder: &mut UnblockFinder,
) -> Suggestion {
    Suggestion {
        budget: state
            .find_budget_stop(work)
            .map(|budget_stop| BudgetNumbers {
                allowed_quanta: budget_stop.allowed,
                spent_quanta: budget_stop.spent,
                needed_quanta: budget_stop.needed,
            }),
        further_reasons: unblock_finder.further_reasons(state, work, reason),
        unblock: unblock_finder.unblock(state, work, reason),
    }
}

/// Returns the explanation for work without a deferral.
fn explain_without_deferral<'a>(
    state: &RoundState<'a>,
    work: WorkIx,
    wait: Option<Reason>,
    builder: &mut VerdictBuilder<'a>,
) -> Explanation {
    let work_state = &state.work[work];
    let current = work_state.process_count();
    let is_fair_share = state.policy(work) == Some(Policy::FairShare);
    if work_state.ended {
        return Explanation::new(Reason::Satisfied, Detail::ProcessLost);
    }
    if matches!(
        wait,
        Some(Reason::NoListedMachine | Reason::NoHostLargeEnough)
    ) {
        return explain_permanent(state, work, &mut builder.permanent);
    }
    if work_state.missing() > 0 {
        return explain_waiting(state, work, wait, &mut builder.unblock_finder);
    }
    if state.work_record(work).max_processes == 0 {
        return Explanation::new(Reason::Satisfied, Detail::WantsNoProcess);
    }
    let base = work_state.cap.base;
    if current >= base {
        return Explanation::new(Reason::Satisfied, Detail::HasAllUsable);
    }
    if current == 0 && is_fair_share && work_state.reach == 0 {
        return explain_permanent(state, work, &mut builder.permanent);
    }
    if current >= work_state.cap.lent && current > 0 {
        return explain_growth_limit(work_state, current);
    }
    if current == 0 {
        return Explanation::new(Reason::ZeroShare, Detail::NoProcess);
    }
    if is_fair_share {
        return Explanation::new(Reason::AtFairShare, Detail::AtFairShare);
    }
    Explanation::new(Reason::InsufficientResources, Detail::NoMoreSpace { base })
}

fn explain_permanent<'a>(
    state: &RoundState<'a>,
    work: WorkIx,
    cache: &mut PermanentExplanations<'a>,
) -> Explanation {
    let work_state = &state.work[work];
    let explain = || match find_permanent_reason(state, work) {
        Some((reason, cause)) => Explanation::new(reason, Detail::CannotFit(cause.into())),
        None => explain_no_node(state, work).into(),
    };
    if work_state.has_node_list {
        return explain();
    }
    let shape = (
        state.home(work),
        state.policy(work),
        work_state.process_quanta,
        state.size(work),
    );
    cache.entry(shape).or_insert_with(explain).clone()
}

fn explain_waiting(
    state: &RoundState,
    work: WorkIx,
    wait: Option<Reason>,
    unblock_finder: &mut UnblockFinder,
) -> Explanation {
    let work_state = &state.work[work];
    let (due, current) = (work_state.entitlement, work_state.process_count());
    if let Some(budget_stop) = state.find_budget_stop(work) {
        let sentence = Detail::text(budget_sentence(state, budget_stop, due, current));
        return Explanation::new(Reason::WaitingForPreemption, sentence);
    }
    let preempts_all_excess = !state.settings.evict_for_somebody;
    if work_state.reserved == 0
        && wait == Some(Reason::AntiAffinity)
        && let Some(apart) = &state.work_record(work).constraints().anti_affinity
    {
        return Explanation::new(
            Reason::AntiAffinity,
            Detail::text(anti_affinity_sentence(apart)),
        );
    }
    let waits_for_preemption = wait == Some(Reason::WaitingForPreemption);
    if work_state.reserved > 0 || (waits_for_preemption && preempts_all_excess) {
        return Explanation::new(Reason::WaitingForPreemption, Detail::OthersLeaveFirst);
    }
    // Work without a wait reason is not reported again when nodes change, so its verdict must not
    // depend on nodes.
    let nearest = wait
        .is_some()
        .then(|| unblock_finder.nearest(state, work))
        .flatten();
    let detail = match nearest.and_then(|nearest| nearest.lacking_dimension) {
        Some(dimension) => Detail::LacksDimension {
            dimension,
            counted: is_counted(state, work, dimension),
        },
        None => Detail::SpaceIsSplit,
    };
    Explanation::new(Reason::WaitingForDefragmentation, detail)
}

/// Returns whether the quantum counts this dimension (D6).
fn is_counted(state: &RoundState, work: WorkIx, dimension: LackingDimension) -> bool {
    let quantum = &state.index.quantum(state.home(work)).0;
    match dimension {
        LackingDimension::Memory => quantum.memory_bytes > 0,
        LackingDimension::Cpu => quantum.cpu_milli > 0,
        LackingDimension::Gpu => quantum.gpu_milli > 0,
        LackingDimension::Other => !quantum.extras.is_empty(),
    }
}

/// Returns the sentence for work that waits until processes end by themselves, because the
/// preemption budget is spent (B5).
fn budget_sentence(state: &RoundState, budget_stop: &BudgetStop, due: u64, current: u64) -> String {
    let pool = state.forest.name(budget_stop.pool);
    let subject = if budget_stop.is_user_budget {
        format!("a user whose processes would have to leave pool {pool:?}")
    } else {
        format!("pool {pool:?}")
    };
    let (spent, allowed, needed) = (budget_stop.spent, budget_stop.allowed, budget_stop.needed);
    format!(
        "due {}, has {current}: {subject} has given up {spent} of {} an hour, and needs to give up \
         {needed} more; it waits until others end by themselves",
        processes(due),
        quanta(allowed)
    )
}

fn anti_affinity_sentence(apart: &Apart) -> String {
    let group = &apart.group;
    match &apart.by_label {
        None => format!(
            "every node with space for it has {group} or what stands by for it, and it is kept \
             apart from them"
        ),
        Some(label) => format!(
            "every node with space for it has the same value of label {label:?} as {group} or what \
             stands by for it, or none, and it is kept apart from them"
        ),
    }
}

/// Returns the explanation for work that its growth cap limits: by start-up, by doubling or by
/// prediction.
fn explain_growth_limit(work: &WorkState, current: u64) -> Explanation {
    if work.cap.starting {
        return Explanation::new(Reason::InitializationCap, Detail::FirstTask);
    }
    if work.cap.steady <= current {
        return Explanation::new(Reason::Satisfied, Detail::EndsSooner);
    }
    Explanation::new(Reason::InitializationCap, Detail::Doubles)
}
