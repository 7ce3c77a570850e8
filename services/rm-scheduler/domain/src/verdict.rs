//! Why each piece of work has what it has: read off the books the deciding steps left (13.2).

use std::collections::BTreeMap;

use hayward_vocabulary::{Apart, Size};

use crate::{
    books::{Books, Deferral, Request},
    budget::Brake,
    explain::{Beside, Explainer},
    plan::{BudgetNumbers, Numbers, Reason, Unblock, Verdict},
    reach::{never, nowhere},
    register::Register,
    snapshot::Policy,
};

mod detail;

use detail::Detail;

/// What no node can take, by home pool, policy and size of one process.
type Known<'a> = BTreeMap<(Option<usize>, Option<Policy>, u64, &'a Size), Answer>;

/// A verdict as it is kept: sentences and names are made when somebody reads them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    answer: Answer,
    waits: bool,
    class: Option<usize>,
    counts: Counts,
    help: Option<Box<Help>>,
}

/// Of [`Numbers`] those that everybody has.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts {
    counted: u64,
    current: u64,
    leaving: u64,
    order: u64,
    wanted: u64,
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
            detail: Detail::Sentence(deferral.detail.into()),
        }
    }
}

impl Finding {
    pub fn told(&self, register: &Register) -> Verdict {
        let help = self.help.as_deref().cloned().unwrap_or_default();
        Verdict {
            reason: self.answer.reason,
            waits: self.waits,
            refused: self.answer.refused,
            class: self.class.map(|class| register.classes[class].name.clone()),
            detail: self.answer.detail.sentence(),
            numbers: Numbers {
                counted_processes: self.counts.counted,
                current_processes: self.counts.current,
                leaving_processes: self.counts.leaving,
                order: self.counts.order,
                wanted_processes: self.counts.wanted,
                budget: help.budget,
                quota: None,
            },
            also: help.also,
            unblock: help.unblock,
        }
    }
}

/// What a verdict and a share rest on beside what the register says. While both stay, they stay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    counted: u64,
    reach: u64,
    order: u64,
    ended: bool,
    coming: bool,
}

/// None where something was placed, promised or told to leave in this round; and where somebody
/// waits or is refused, as that can depend on anything.
pub(crate) fn basis(books: &Books, at: usize) -> Option<Basis> {
    let request = &books.requests[at];
    let nowhere = request.has() == 0 && request.reach == 0;
    let heavy = request.deferral.is_some()
        || books.wait_of(at).is_some()
        || books.brake_on(at).is_some()
        || nowhere;
    let moves = request.placed > 0 || request.gave;
    let basis = Basis {
        counted: request.counted,
        reach: request.reach,
        order: request.order,
        ended: request.ended,
        coming: request.coming > 0,
    };
    (!heavy && !moves && books.promised_to(at).is_empty()).then_some(basis)
}

/// What is found about this work, in the same order.
pub(crate) fn on(
    books: &Books,
    work: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Finding> {
    let mut known = Known::new();
    let mut explainer = Explainer::default();
    work.map(move |at| finding(books, at, &mut known, &mut explainer))
}

fn counts(books: &Books, at: usize) -> Counts {
    let request = &books.requests[at];
    Counts {
        counted: books.due(at),
        current: request.has(),
        leaving: request.leaving,
        order: request.order,
        wanted: request.cap.now,
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

fn finding<'a>(
    books: &Books<'a>,
    at: usize,
    known: &mut Known<'a>,
    explainer: &mut Explainer,
) -> Finding {
    let request = &books.requests[at];
    let has = request.has();
    let wait = books.wait_of(at);
    let answer = match &request.deferral {
        Some(deferral) => Deferral::clone(deferral).into(),
        None => open(books, (at, wait), known, explainer),
    };
    let told = |reason| has == 0 || reason == Reason::WaitingForDefragmentation;
    let waits =
        request.deferral.is_some() || books.brake_on(at).is_some() || wait.is_some_and(told);
    let help = waits.then(|| Box::new(help(books, at, answer.reason, explainer)));
    Finding {
        answer,
        waits,
        class: request.class,
        counts: counts(books, at),
        help,
    }
}

/// The verdict on work that took part, and waits for that.
fn open<'a>(
    books: &Books<'a>,
    (at, wait): (usize, Option<Reason>),
    known: &mut Known<'a>,
    explainer: &mut Explainer,
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
        return why_never(books, at, known);
    }
    if request.missing() > 0 {
        return waiting(books, (at, wait), explainer);
    }
    if books.demand(at).max_processes == 0 {
        return Answer::of(Reason::Satisfied, Detail::HoldsItselfBack);
    }
    let base = request.cap.base;
    if has >= base {
        return Answer::of(Reason::Satisfied, Detail::AllItCanUse { has });
    }
    if has == 0 && fair && request.reach == 0 {
        return why_never(books, at, known);
    }
    if has >= request.cap.now && has > 0 {
        return growing(request, has);
    }
    if has == 0 {
        let order = request.order;
        return Answer::of(Reason::ZeroShare, Detail::NoProcess { order });
    }
    if fair {
        return Answer::of(Reason::AtFairShare, Detail::ItsShare { has });
    }
    Answer::of(
        Reason::InsufficientResources,
        Detail::NoMoreRoom { has, base },
    )
}

fn why_never<'a>(books: &Books<'a>, at: usize, known: &mut Known<'a>) -> Answer {
    let request = &books.requests[at];
    let here = || match never(books, at) {
        Some((reason, why)) => {
            let order = request.order;
            Answer::of(reason, Detail::Never { order, why })
        }
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
    let (due, has, order) = (request.counted, request.has(), request.order);
    if let Some(brake) = books.brake_on(at) {
        let sentence = braked(books, brake, (due, has)).into();
        return Answer::of(Reason::WaitingForPreemption, Detail::Sentence(sentence));
    }
    let literal = !books.settings.evict_for_somebody;
    if request.coming == 0
        && wait == Some(Reason::KeptApart)
        && let Some(apart) = &books.demand(at).wishes().apart
    {
        let sentence = kept_apart(apart).into();
        return Answer::of(Reason::KeptApart, Detail::Sentence(sentence));
    }
    let counts_alone = wait == Some(Reason::WaitingForPreemption);
    if request.coming > 0 || (counts_alone && literal) {
        let detail = Detail::OthersLeaveFirst { due, has };
        return Answer::of(Reason::WaitingForPreemption, detail);
    }
    // Who does not wait is not told anew when nodes change.
    let near = wait
        .is_some()
        .then(|| explainer.nearest(books, at))
        .flatten();
    let detail = match near.and_then(|near| near.beside) {
        Some(what) => Detail::LacksBeside {
            due,
            has,
            what,
            counted: is_counted(books, at, what),
        },
        None => Detail::RoomIsSplit { due, has, order },
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
        "due {due} processes, has {has}: {who} has given up {spent} of {allowed} quanta an hour, \
         and {needed} more are needed; it waits until others end by themselves"
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
        return Answer::of(Reason::InitializationCap, Detail::FirstTask { has });
    }
    if request.cap.steady <= has {
        return Answer::of(Reason::Satisfied, Detail::DoneBefore { has });
    }
    Answer::of(Reason::InitializationCap, Detail::Doubles { has })
}
