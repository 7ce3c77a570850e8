//! Why each piece of work has what it has: read off the books the deciding steps left (13.2).

use std::collections::BTreeMap;

use hayward_vocabulary::Size;

use crate::{
    books::{Books, Deferral, Request},
    explain::Explainer,
    plan::{Numbers, Reason, Verdict},
    reach::{never, nowhere},
    snapshot::Policy,
};

/// What no node can take, by home pool and size of one process.
type Known<'a> = BTreeMap<(Option<usize>, u64, &'a Size), Deferral>;

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
    let heavy = request.deferral.is_some() || books.waits.contains_key(&at) || nowhere;
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

/// Verdicts on this work, in the same order.
pub(crate) fn on(
    books: &Books,
    work: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Verdict> {
    let mut known = Known::new();
    let mut explainer = Explainer::default();
    work.map(move |at| verdict(books, at, &mut known, &mut explainer))
}

fn numbers(books: &Books, at: usize) -> Numbers {
    let request = &books.requests[at];
    Numbers {
        counted_processes: books.due(at),
        current_processes: request.has(),
        leaving_processes: request.leaving,
        order: request.order,
        wanted_processes: request.cap.now,
    }
}

fn verdict<'a>(
    books: &Books<'a>,
    at: usize,
    known: &mut Known<'a>,
    explainer: &mut Explainer<'a>,
) -> Verdict {
    let request = &books.requests[at];
    let has = request.has();
    let deferral = match &request.deferral {
        Some(deferral) => Deferral::clone(deferral),
        None => open(books, at, known),
    };
    let told = |reason| has == 0 || reason == Reason::WaitingForDefragmentation;
    let waits = request.deferral.is_some() || books.waits.get(&at).copied().is_some_and(told);
    let (also, unblock) = if waits {
        let reason = deferral.reason;
        (
            explainer.also(books, at, reason),
            explainer.unblock(books, at, reason),
        )
    } else {
        (Vec::new(), None)
    };
    Verdict {
        reason: deferral.reason,
        waits,
        refused: deferral.refused,
        class: request
            .class
            .map(|class| books.classes[class].name.to_owned()),
        detail: deferral.detail,
        numbers: numbers(books, at),
        also,
        unblock,
    }
}

/// The verdict on work that took part.
fn open<'a>(books: &Books<'a>, at: usize, known: &mut Known<'a>) -> Deferral {
    let request = &books.requests[at];
    let has = request.has();
    let fair = books.policy(at) == Some(Policy::FairShare);
    let say = |reason, detail| Deferral {
        reason,
        refused: false,
        detail,
    };
    if request.ended {
        let detail = "its process is gone; its owner has to ask anew";
        return say(Reason::Satisfied, detail.into());
    }
    if matches!(
        books.waits.get(&at),
        Some(Reason::NoListedMachine | Reason::NoHostLargeEnough)
    ) {
        return why_never(books, at, known);
    }
    if request.missing() > 0 {
        return waiting(books, at);
    }
    if books.demand(at).max_processes == 0 {
        return say(
            Reason::Satisfied,
            "holds itself back: it wants no process now".into(),
        );
    }
    if has >= request.cap.base {
        return say(
            Reason::Satisfied,
            format!("has all {has} processes it can use"),
        );
    }
    if has == 0 && fair && request.reach == 0 {
        return why_never(books, at, known);
    }
    if has >= request.cap.now && has > 0 {
        return growing(request, has);
    }
    if has == 0 {
        let detail = format!(
            "competition leaves it no process of {} quanta",
            request.order
        );
        return say(Reason::ZeroShare, detail);
    }
    if fair {
        let detail = format!("has its share of {has} processes; the rest belongs to others");
        return say(Reason::AtFairShare, detail);
    }
    let detail = format!("has {has} of {} processes; no more room", request.cap.base);
    say(Reason::InsufficientResources, detail)
}

fn why_never<'a>(books: &Books<'a>, at: usize, known: &mut Known<'a>) -> Deferral {
    let request = &books.requests[at];
    let here = || match never(books, at) {
        Some((reason, detail)) => Deferral {
            reason,
            refused: false,
            detail: format!("one process needs {} quanta: {detail}", request.order),
        },
        None => nowhere(books, at),
    };
    if request.listed {
        return here();
    }
    let shape = (books.home(at), request.order, books.size(at));
    known.entry(shape).or_insert_with(here).clone()
}

fn waiting(books: &Books, at: usize) -> Deferral {
    let request = &books.requests[at];
    let (due, has) = (request.counted, request.has());
    let literal = !books.settings.evict_for_somebody;
    let counts_alone = books.waits.get(&at) == Some(&Reason::WaitingForPreemption);
    let (reason, detail) = if request.coming > 0 || (counts_alone && literal) {
        let detail = format!("due {due} processes, has {has}: others have to leave first");
        (Reason::WaitingForPreemption, detail)
    } else {
        let detail = format!(
            "due {due} processes of {} quanta, has {has}: the free room is split over nodes",
            request.order
        );
        (Reason::WaitingForDefragmentation, detail)
    };
    Deferral {
        reason,
        refused: false,
        detail,
    }
}

/// Held back by start-up, by doubling or by prediction.
fn growing(request: &Request, has: u64) -> Deferral {
    let (reason, detail) = if request.cap.starting {
        let detail =
            format!("has {has} processes until its first task has shown how long one takes");
        (Reason::InitializationCap, detail)
    } else if request.cap.steady <= has {
        (
            Reason::Satisfied,
            format!("will be done before more than {has} processes could help"),
        )
    } else {
        let detail = format!("has {has} processes and at most doubles them from round to round");
        (Reason::InitializationCap, detail)
    };
    Deferral {
        reason,
        refused: false,
        detail,
    }
}
