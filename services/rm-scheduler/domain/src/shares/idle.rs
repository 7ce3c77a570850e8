//! Why free room is free: nobody asks, who asks does not fit, who would fit is held to a cap.
//!
//! Each node has one reason for what is free on it, besides what is meant for somebody. What nobody
//! could ever be given is not asked for.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::Size;

use crate::{
    books::{Books, Machine},
    plan::{Idle, Reason},
    snapshot::Policy,
};

/// What is asked for and not held, by home pool.
#[derive(Default)]
pub(super) struct Wishes<'a> {
    homes: BTreeMap<usize, Wish<'a>>,
    /// Work with a machine list, one by one.
    listed: Vec<usize>,
}

#[derive(Default)]
struct Wish<'a> {
    /// Quanta and size of one process, of work that may use pools below as well.
    fair: BTreeSet<(u64, &'a Size)>,
    /// The same of work that may not.
    fixed: BTreeSet<(u64, &'a Size)>,
    /// Least quanta of a whole node.
    whole: Option<u64>,
    /// Somebody would ask for more, but for a cap; the first may use pools below as well.
    capped: (bool, bool),
}

impl<'a> Wishes<'a> {
    pub fn of(books: &'a Books) -> Self {
        let mut wishes = Self::default();
        // Work of one shape finds the same nodes, so it is looked at once.
        let mut seen = vec![false; books.register.shapes.len()];
        for at in books.restless() {
            let request = &books.requests[at];
            let Some(home) = books.home(at) else { continue };
            match asks(books, at) {
                Asks::Nothing => {}
                Asks::Listed => wishes.listed.push(at),
                Asks::More => {
                    let known = std::mem::replace(&mut seen[request.shape], true);
                    if known && !request.upgraded {
                        continue;
                    }
                    let wish = wishes.homes.entry(home).or_default();
                    let shape = (request.order, books.size(at));
                    match books.policy(at) {
                        Some(Policy::FairShare) => drop(wish.fair.insert(shape)),
                        Some(Policy::Reserve) => {
                            let least = wish.whole.map_or(shape.0, |least| least.min(shape.0));
                            wish.whole = Some(least);
                        }
                        _ => drop(wish.fixed.insert(shape)),
                    }
                }
                Asks::Capped => {
                    let wish = wishes.homes.entry(home).or_default();
                    let fair = books.policy(at) == Some(Policy::FairShare);
                    let capped = &mut wish.capped;
                    *(if fair { &mut capped.0 } else { &mut capped.1 }) = true;
                }
            }
        }
        wishes
    }

    /// Adds what is free on a node to its reasons.
    pub fn explain(&self, books: &Books, at: usize, idle: &mut Idle) {
        let machine = &books.machines[at];
        let free = machine.free.order;
        if free == 0 {
            return;
        }
        let meant = match machine.promised_to {
            Some(_) => free,
            None => machine
                .spoken
                .iter()
                .map(|it| it.order)
                .sum::<u64>()
                .min(free),
        };
        idle.meant += meant;
        let rest = match self.why(books, at) {
            Why::Kept => &mut idle.kept,
            Why::Split => &mut idle.split,
            Why::Capped => &mut idle.capped,
            Why::Unasked => &mut idle.unasked,
        };
        *rest += free - meant;
    }

    fn why(&self, books: &Books, at: usize) -> Why {
        let machine = &books.machines[at];
        let Some(pool) = machine.pool else {
            return Why::Unasked;
        };
        let listed = self.listed.iter().filter(|it| books.is_permitted(**it, at));
        let listed = listed.map(|it| fits(books, machine, *it));
        let mut why = listed.map(asked).max().unwrap_or(Why::Unasked);
        for home in books.forest.upwards(pool) {
            let Some(wish) = self.homes.get(&home) else {
                continue;
            };
            why = why.max(wish.why(machine, home == pool));
        }
        why
    }
}

impl Wish<'_> {
    fn why(&self, machine: &Machine, at_home: bool) -> Why {
        let mut why = match self.capped {
            (true, _) => Why::Capped,
            (_, true) if at_home => Why::Capped,
            _ => Why::Unasked,
        };
        if let Some(fits) = any_fits(machine, &self.fair) {
            why = why.max(asked(fits));
        }
        if let Some(fits) = any_fits(machine, &self.fixed).filter(|_| at_home) {
            why = why.max(asked(fits));
        }
        if let Some(least) = self.whole.filter(|_| at_home) {
            let empty = machine.free.order == machine.order;
            why = why.max(asked(empty && machine.order >= least));
        }
        why
    }
}

/// Worse news for who asks first; the greatest is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Unasked,
    Capped,
    Split,
    Kept,
}

fn asked(fits: bool) -> Why {
    if fits { Why::Kept } else { Why::Split }
}

fn fits(books: &Books, machine: &Machine, at: usize) -> bool {
    machine
        .free
        .fitting(books.requests[at].order, books.size(at))
        > 0
}

fn any_fits(machine: &Machine, shapes: &BTreeSet<(u64, &Size)>) -> Option<bool> {
    shapes.first()?;
    let small = shapes.iter().take_while(|it| it.0 <= machine.free.order);
    let mut small = small;
    Some(small.any(|(order, size)| machine.free.fitting(*order, size) > 0))
}

enum Asks {
    Nothing,
    More,
    Capped,
    Listed,
}

fn asks(books: &Books, at: usize) -> Asks {
    let request = &books.requests[at];
    let never = |reason| {
        matches!(
            reason,
            Reason::NoHostLargeEnough
                | Reason::NoHostOfSize
                | Reason::NoListedMachine
                | Reason::AllBlocked
        )
    };
    let reason = request.deferral.as_ref().map(|deferral| deferral.reason);
    let unreachable = books.policy(at) == Some(Policy::FairShare) && request.reach == 0;
    if request.ended || unreachable || reason.is_some_and(never) {
        return Asks::Nothing;
    }
    if reason == Some(Reason::AllotmentExceeded) {
        return Asks::Capped;
    }
    // Work that already fills the room it could ever have asks for more of it.
    if request.has() < request.cap.own {
        let listed = request.listed;
        return if listed { Asks::Listed } else { Asks::More };
    }
    if request.has() < request.cap.base {
        return Asks::Capped;
    }
    Asks::Nothing
}
