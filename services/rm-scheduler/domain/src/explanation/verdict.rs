//! Why each piece of work has what it has: read off the books the deciding steps left (13.2).

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{
    Apart, Size,
    counted::{processes, quanta},
};

use super::unblock::Explainer;
use crate::{
    entitlement::reachable::{never, nowhere},
    index::Served,
    input::snapshot::Policy,
    output::{
        plan::{BudgetNumbers, Numbers, Reason, Unblock, Verdict},
        reason::Deferral,
        sentence::{Beside, Detail, Sentence},
        shares::Counts,
    },
    preemption::budget::Brake,
    state::{Books, Request},
};

/// What no node can take, by home pool, policy and size of one process.
type Never<'a> = BTreeMap<(Option<usize>, Option<Policy>, u64, &'a Size), Answer>;

/// A verdict as it is kept, beside its class and counts.
#[derive(PartialEq, Eq)]
pub(crate) struct Finding {
    reason: Reason,
    refused: bool,
    waits: bool,
    detail: Detail,
    help: Option<Box<Help>>,
}

/// What is said only of work that waits.
#[derive(Clone, Default, PartialEq, Eq)]
struct Help {
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
    fn of(reason: Reason, detail: Detail) -> Self {
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
    pub fn told(&self, class: Option<&Served>, counts: &Counts) -> Verdict {
        let help = self.help.as_deref().cloned().unwrap_or_default();
        Verdict {
            reason: self.reason,
            waits: self.waits,
            refused: self.refused,
            class: class.map(|class| Arc::clone(&class.name)),
            detail: Sentence::of(&self.detail, counts),
            numbers: Numbers {
                counted_processes: counts.counted,
                current_processes: counts.current,
                leaving_processes: counts.leaving,
                order: counts.order,
                wanted_processes: counts.wanted,
                budget: help.budget,
                quota: None,
            },
            also: help.also,
            unblock: help.unblock,
        }
    }
}

/// Somebody waits or is refused, which can depend on anything.
pub(crate) fn is_unsettled(books: &Books, (at, wait): (usize, Option<Reason>)) -> bool {
    let request = &books.requests[at];
    let nowhere = request.has() == 0 && request.reach == 0;
    request.deferral.is_some()
        || wait.is_some()
        || books.brake_on(at).is_some()
        || nowhere
        || !books.promised_to(at).is_empty()
}

/// Answers that many pieces of work share, in one round.
#[derive(Default)]
pub(crate) struct Finder<'a> {
    never: Never<'a>,
    pub explainer: Explainer,
}

impl<'a> Finder<'a> {
    /// What is found about this work, which waits for that.
    pub fn find(&mut self, books: &Books<'a>, (at, wait): (usize, Option<Reason>)) -> Finding {
        let request = &books.requests[at];
        let has = request.has();
        let answer = match &request.deferral {
            Some(deferral) => Deferral::clone(deferral).into(),
            None => open(books, (at, wait), self),
        };
        let told = |reason| has == 0 || reason == Reason::WaitingForDefragmentation;
        let waits =
            request.deferral.is_some() || books.brake_on(at).is_some() || wait.is_some_and(told);
        let explainer = &mut self.explainer;
        let help = waits.then(|| Box::new(help(books, at, answer.reason, explainer)));
        Finding {
            reason: answer.reason,
            refused: answer.refused,
            waits,
            detail: answer.detail,
            help,
        }
    }
}

fn help(books: &Books, at: usize, why: Reason, explainer: &mut Explainer) -> Help {
    Help {
        budget: books.brake_on(at).map(|brake| BudgetNumbers {
            allowed_quanta: brake.allowed,
            spent_quanta: brake.spent,
            needed_quanta: brake.needed,
        }),
        also: explainer.also(books, at, why),
        unblock: explainer.unblock(books, at, why),
    }
}

/// The verdict on work that took part, and waits for that.
fn open<'a>(
    books: &Books<'a>,
    (at, wait): (usize, Option<Reason>),
    finder: &mut Finder<'a>,
) -> Answer {
    let request = &books.requests[at];
    let has = request.has();
    let fair = books.policy(at) == Some(Policy::FairShare);
    if request.ended {
        return Answer::of(Reason::Satisfied, Detail::ProcessGone);
    }
    if matches!(
        wait,
        Some(Reason::NoListedMachine | Reason::NoHostLargeEnough)
    ) {
        return why_never(books, at, &mut finder.never);
    }
    if request.missing() > 0 {
        return waiting(books, (at, wait), &mut finder.explainer);
    }
    if books.demand(at).max_processes == 0 {
        return Answer::of(Reason::Satisfied, Detail::HoldsItselfBack);
    }
    let base = request.cap.base;
    if has >= base {
        return Answer::of(Reason::Satisfied, Detail::AllItCanUse);
    }
    if has == 0 && fair && request.reach == 0 {
        return why_never(books, at, &mut finder.never);
    }
    if has >= request.cap.now && has > 0 {
        return growing(request, has);
    }
    if has == 0 {
        return Answer::of(Reason::ZeroShare, Detail::NoProcess);
    }
    if fair {
        return Answer::of(Reason::AtFairShare, Detail::ItsShare);
    }
    Answer::of(Reason::InsufficientResources, Detail::NoMoreRoom { base })
}

fn why_never<'a>(books: &Books<'a>, at: usize, known: &mut Never<'a>) -> Answer {
    let request = &books.requests[at];
    let here = || match never(books, at) {
        Some((reason, why)) => Answer::of(reason, Detail::Never(why.into())),
        None => nowhere(books, at).into(),
    };
    if request.listed {
        return here();
    }
    let shape = (
        books.home(at),
        books.policy(at),
        request.order,
        books.size(at),
    );
    known.entry(shape).or_insert_with(here).clone()
}

fn waiting(
    books: &Books,
    (at, wait): (usize, Option<Reason>),
    explainer: &mut Explainer,
) -> Answer {
    let request = &books.requests[at];
    let (due, has) = (request.counted, request.has());
    if let Some(brake) = books.brake_on(at) {
        let sentence = Detail::words(braked(books, brake, (due, has)));
        return Answer::of(Reason::WaitingForPreemption, sentence);
    }
    let literal = !books.settings.evict_for_somebody;
    if request.coming == 0
        && wait == Some(Reason::KeptApart)
        && let Some(apart) = &books.demand(at).wishes().apart
    {
        return Answer::of(Reason::KeptApart, Detail::words(kept_apart(apart)));
    }
    let counts_alone = wait == Some(Reason::WaitingForPreemption);
    if request.coming > 0 || (counts_alone && literal) {
        return Answer::of(Reason::WaitingForPreemption, Detail::OthersLeaveFirst);
    }
    // Who does not wait is not told anew when nodes change.
    let near = wait
        .is_some()
        .then(|| explainer.nearest(books, at))
        .flatten();
    let detail = match near.and_then(|near| near.beside) {
        Some(what) => Detail::LacksBeside {
            what,
            counted: is_counted(books, at, what),
        },
        None => Detail::RoomIsSplit,
    };
    Answer::of(Reason::WaitingForDefragmentation, detail)
}

/// D6: does the quantum name it?
fn is_counted(books: &Books, at: usize, what: Beside) -> bool {
    let quantum = &books.register.quantum(books.home(at)).0;
    match what {
        Beside::Memory => quantum.memory_bytes > 0,
        Beside::Cpu => quantum.cpu_milli > 0,
        Beside::Gpu => quantum.gpu_milli > 0,
        Beside::Other => !quantum.extras.is_empty(),
    }
}

/// B5: fairness waits for natural churn.
fn braked(books: &Books, brake: &Brake, (due, has): (u64, u64)) -> String {
    let pool = books.forest.name(brake.pool);
    let who = if brake.user {
        format!("a user whose processes would have to leave pool {pool:?}")
    } else {
        format!("pool {pool:?}")
    };
    let (spent, allowed, needed) = (brake.spent, brake.allowed, brake.needed);
    format!(
        "due {}, has {has}: {who} has given up {spent} of {} an hour, and needs to give up \
         {needed} more; it waits until others end by themselves",
        processes(due),
        quanta(allowed)
    )
}

fn kept_apart(apart: &Apart) -> String {
    let group = &apart.group;
    match &apart.by_label {
        None => format!(
            "every node with room for it has {group} or what stands by for it, and it is kept \
             apart from them"
        ),
        Some(label) => format!(
            "every node with room for it has the same value of label {label:?} as {group} or what \
             stands by for it, or none, and it is kept apart from them"
        ),
    }
}

/// Held back by start-up, by doubling or by prediction.
fn growing(request: &Request, has: u64) -> Answer {
    if request.cap.starting {
        return Answer::of(Reason::InitializationCap, Detail::FirstTask);
    }
    if request.cap.steady <= has {
        return Answer::of(Reason::Satisfied, Detail::DoneBefore);
    }
    Answer::of(Reason::InitializationCap, Detail::Doubles)
}
