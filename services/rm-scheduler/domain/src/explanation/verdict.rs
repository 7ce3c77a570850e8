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
    entitlement::reachable::no_node,
    ids::{PoolIx, WorkIx},
    index::ClassRecord,
    input::snapshot::Policy,
    output::{
        detail::{Detail, UncountedDimension},
        plan::{BudgetNumbers, Numbers, Reason, Unblock, Verdict},
        reason::Deferral,
        shares::Counts,
    },
    state::{RoundState, WorkState, budget::BudgetStop, permanent_reasons::find_permanent_reason},
};

/// Answers for work that no node can take, by home pool, policy, and quanta and size of one
/// process.
type Never<'a> = BTreeMap<(Option<PoolIx>, Option<Policy>, u64, &'a Size), Answer>;

/// Stored part of a verdict. Class and counts are stored elsewhere.
#[derive(PartialEq, Eq)]
pub(crate) struct Finding {
    reason: Reason,
    refused: bool,
    waits: bool,
    detail: Detail,
    details: Option<Box<Suggestion>>,
}

/// Part of a verdict that only waiting work has.
#[derive(Clone, Default, PartialEq, Eq)]
struct Suggestion {
    budget: Option<BudgetNumbers>,
    also: Vec<Reason>,
    unblock: Option<Unblock>,
}

#[derive(Clone, PartialEq, Eq)]
struct Answer {
    reason: Reason,
    refused: bool,
    detail: Detail,
}

impl Answer {
    fn new(reason: Reason, detail: Detail) -> Self {
        Self {
            reason,
            refused: false,
            detail,
        }
    }
}

impl From<Deferral> for Answer {
    fn from(deferral: Deferral) -> Self {
        Self {
            reason: deferral.reason,
            refused: deferral.refused,
            detail: Detail::words(deferral.detail),
        }
    }
}

impl Finding {
    pub fn verdict(&self, class: Option<&ClassRecord>, counts: &Counts) -> Verdict {
        let suggestion = self.details.as_deref().cloned().unwrap_or_default();
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
                order: counts.order,
                wanted_processes: counts.wanted,
                budget: suggestion.budget,
                quota: None,
            },
            also: suggestion.also,
            unblock: suggestion.unblock,
        }
    }
}

/// Returns whether the work waits or is refused. Its verdict can then change in any round, without
/// a change of its own row.
pub(crate) fn is_unsettled(state: &RoundState, work: WorkIx, wait: Option<Reason>) -> bool {
    let work_state = &state.work[work];
    let nowhere = work_state.process_count() == 0 && work_state.reach == 0;
    work_state.deferral.is_some()
        || wait.is_some()
        || state.find_budget_stop(work).is_some()
        || nowhere
        || !state.whole_nodes_for(work).is_empty()
}

/// Builder of verdicts. It holds the answers that several pieces of work share in one round.
#[derive(Default)]
pub(crate) struct VerdictBuilder<'a> {
    never: Never<'a>,
    pub explainer: UnblockFinder,
}

impl<'a> VerdictBuilder<'a> {
    /// Returns the verdict on this work. `wait` is the reason of its wait, if it waits.
    pub fn find(&mut self, state: &RoundState<'a>, work: WorkIx, wait: Option<Reason>) -> Finding {
        let work_state = &state.work[work];
        let has = work_state.process_count();
        let answer = match &work_state.deferral {
            Some(deferral) => Deferral::clone(deferral).into(),
            None => first_blocker(state, work, wait, self),
        };
        let counts_as_waiting = |reason| has == 0 || reason == Reason::WaitingForDefragmentation;
        let waits = work_state.deferral.is_some()
            || state.find_budget_stop(work).is_some()
            || wait.is_some_and(counts_as_waiting);
        let unblock_finder = &mut self.explainer;
        let suggestion =
            waits.then(|| Box::new(suggest(state, work, answer.reason, unblock_finder)));
        Finding {
            reason: answer.reason,
            refused: answer.refused,
            waits,
            detail: answer.detail,
            details: suggestion,
        }
    }
}

fn suggest(
    state: &RoundState,
    work: WorkIx,
    why: Reason,
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
        also: unblock_finder.also(state, work, why),
        unblock: unblock_finder.unblock(state, work, why),
    }
}

/// Returns the answer for work without a deferral.
fn first_blocker<'a>(
    state: &RoundState<'a>,
    work: WorkIx,
    wait: Option<Reason>,
    builder: &mut VerdictBuilder<'a>,
) -> Answer {
    let work_state = &state.work[work];
    let has = work_state.process_count();
    let fair = state.policy(work) == Some(Policy::FairShare);
    if work_state.ended {
        return Answer::new(Reason::Satisfied, Detail::ProcessGone);
    }
    if matches!(
        wait,
        Some(Reason::NoListedMachine | Reason::NoHostLargeEnough)
    ) {
        return why_never(state, work, &mut builder.never);
    }
    if work_state.missing() > 0 {
        return waiting(state, work, wait, &mut builder.explainer);
    }
    if state.work_record(work).max_processes == 0 {
        return Answer::new(Reason::Satisfied, Detail::HoldsItselfBack);
    }
    let base = work_state.cap.base;
    if has >= base {
        return Answer::new(Reason::Satisfied, Detail::AllItCanUse);
    }
    if has == 0 && fair && work_state.reach == 0 {
        return why_never(state, work, &mut builder.never);
    }
    if has >= work_state.cap.now && has > 0 {
        return growth_answer(work_state, has);
    }
    if has == 0 {
        return Answer::new(Reason::ZeroShare, Detail::NoProcess);
    }
    if fair {
        return Answer::new(Reason::AtFairShare, Detail::ItsShare);
    }
    Answer::new(Reason::InsufficientResources, Detail::NoMoreSpace { base })
}

fn why_never<'a>(state: &RoundState<'a>, work: WorkIx, known: &mut Never<'a>) -> Answer {
    let work_state = &state.work[work];
    let answer = || match find_permanent_reason(state, work) {
        Some((reason, why)) => Answer::new(reason, Detail::Never(why.into())),
        None => no_node(state, work).into(),
    };
    if work_state.has_node_list {
        return answer();
    }
    let shape = (
        state.home(work),
        state.policy(work),
        work_state.process_quanta,
        state.size(work),
    );
    known.entry(shape).or_insert_with(answer).clone()
}

fn waiting(
    state: &RoundState,
    work: WorkIx,
    wait: Option<Reason>,
    unblock_finder: &mut UnblockFinder,
) -> Answer {
    let work_state = &state.work[work];
    let (due, has) = (work_state.entitlement, work_state.process_count());
    if let Some(budget_stop) = state.find_budget_stop(work) {
        let sentence = Detail::words(budget_sentence(state, budget_stop, due, has));
        return Answer::new(Reason::WaitingForPreemption, sentence);
    }
    let literal = !state.settings.evict_for_somebody;
    if work_state.reserved == 0
        && wait == Some(Reason::KeptApart)
        && let Some(apart) = &state.work_record(work).constraints().anti_affinity
    {
        return Answer::new(
            Reason::KeptApart,
            Detail::words(anti_affinity_sentence(apart)),
        );
    }
    let counts_alone = wait == Some(Reason::WaitingForPreemption);
    if work_state.reserved > 0 || (counts_alone && literal) {
        return Answer::new(Reason::WaitingForPreemption, Detail::OthersLeaveFirst);
    }
    // Other work is not reported again when nodes change, so nodes must not influence its verdict.
    let near = wait
        .is_some()
        .then(|| unblock_finder.nearest(state, work))
        .flatten();
    let detail = match near.and_then(|near| near.uncounted) {
        Some(what) => Detail::LacksUncounted {
            what,
            counted: is_counted(state, work, what),
        },
        None => Detail::SpaceIsSplit,
    };
    Answer::new(Reason::WaitingForDefragmentation, detail)
}

/// Returns whether the quantum counts this dimension (D6).
fn is_counted(state: &RoundState, work: WorkIx, what: UncountedDimension) -> bool {
    let quantum = &state.index.quantum(state.home(work)).0;
    match what {
        UncountedDimension::Memory => quantum.memory_bytes > 0,
        UncountedDimension::Cpu => quantum.cpu_milli > 0,
        UncountedDimension::Gpu => quantum.gpu_milli > 0,
        UncountedDimension::Other => !quantum.extras.is_empty(),
    }
}

/// Returns the detail for work that waits for natural churn, because the preemption budget is spent
/// (B5).
fn budget_sentence(state: &RoundState, budget_stop: &BudgetStop, due: u64, has: u64) -> String {
    let pool = state.forest.name(budget_stop.pool);
    let subject = if budget_stop.is_user_budget {
        format!("a user whose processes would have to leave pool {pool:?}")
    } else {
        format!("pool {pool:?}")
    };
    let (spent, allowed, needed) = (budget_stop.spent, budget_stop.allowed, budget_stop.needed);
    format!(
        "due {}, has {has}: {subject} has given up {spent} of {} an hour, and needs to give up \
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

/// Returns the answer for work that its growth cap limits: by start-up, by doubling or by
/// prediction.
fn growth_answer(work: &WorkState, has: u64) -> Answer {
    if work.cap.starting {
        return Answer::new(Reason::InitializationCap, Detail::FirstTask);
    }
    if work.cap.steady <= has {
        return Answer::new(Reason::Satisfied, Detail::DoneBefore);
    }
    Answer::new(Reason::InitializationCap, Detail::Doubles)
}
