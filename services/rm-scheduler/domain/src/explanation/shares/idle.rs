//! Why free room is free: nobody asks, who asks does not fit, who would fit is held to a cap.
//!
//! Each node has one reason for what is free on it, besides what is meant for somebody. What nobody
//! could ever be given is not asked for.

use std::collections::BTreeSet;

use crate::{
    incremental::prefetch::fetch_rows,
    input::snapshot::Policy,
    output::plan::Reason,
    placement::serve_order::reserved,
    state::{Books, Machine},
};

/// What is asked for and not held.
#[derive(Default, PartialEq)]
pub(super) struct Wishes {
    /// By home pool.
    homes: Vec<Wish>,
    /// Work with a machine list, one by one.
    listed: Vec<usize>,
}

/// Quanta of one process, and its shape; ascending.
type Shapes = Vec<(u64, usize)>;

#[derive(Default, Clone, PartialEq)]
struct Wish {
    /// Of work that may use pools below as well.
    fair: Shapes,
    /// Of work that may not.
    fixed: Shapes,
    /// Least quanta of a whole node.
    whole: Option<u64>,
    /// Somebody would ask for more, but for a cap; the first may use pools below as well.
    capped: (bool, bool),
}

/// What each piece of work asks for, counted by shape, and kept from round to round. Work of
/// RESERVE classes is not here: its orders may be those of nodes that were promised.
#[derive(Default)]
pub(super) struct Wishers {
    /// By shape: work that asks for more, and work that is held to a cap.
    by_shape: Vec<(u32, u32)>,
    listed: BTreeSet<usize>,
    /// By request: what it adds.
    parts: Vec<(u32, Asks)>,
}

impl Wishers {
    /// Takes up what is not what it was, of this work.
    pub fn renew(&mut self, books: &Books, work: impl Iterator<Item = usize> + Clone) {
        self.by_shape.resize(books.register.shapes.len(), (0, 0));
        self.parts.resize(books.requests.len(), (0, Asks::Nothing));
        fetch_rows(work.clone().map(|at| self.parts[at].0 as usize));
        work.for_each(|at| self.enter(books, at));
    }

    /// What is kept is what asking all work anew gives.
    #[cfg(test)]
    pub fn assert_recounted(&self, books: &Books) {
        let mut afresh = Self::default();
        afresh.by_shape.resize(self.by_shape.len(), (0, 0));
        afresh.parts.resize(self.parts.len(), (0, Asks::Nothing));
        (0..books.requests.len()).for_each(|at| afresh.enter(books, at));
        assert_eq!(self.by_shape, afresh.by_shape, "what is asked for by shape");
        assert_eq!(self.listed, afresh.listed, "who asks for listed machines");
    }

    fn enter(&mut self, books: &Books, at: usize) {
        let now = match books.policy(at) {
            None | Some(Policy::Reserve) => Asks::Nothing,
            Some(_) => asks(books, at),
        };
        let shape = u32::try_from(books.requests[at].shape).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.parts[at], (shape, now));
        if before != (shape, now) {
            self.count(at, before, |sum| *sum -= 1);
            self.count(at, (shape, now), |sum| *sum += 1);
            if now == Asks::Listed {
                self.listed.insert(at);
            }
        }
    }

    fn count(&mut self, at: usize, (shape, asks): (u32, Asks), count: impl Fn(&mut u32)) {
        let shape = &mut self.by_shape[shape as usize];
        match asks {
            Asks::Nothing => {}
            Asks::More => count(&mut shape.0),
            Asks::Capped => count(&mut shape.1),
            Asks::Listed => drop(self.listed.remove(&at)),
        }
    }
}

impl Wishes {
    pub fn of(books: &Books, wishers: &Wishers) -> Self {
        let listed = wishers.listed.iter().copied();
        let mut wishes = Self {
            homes: vec![Wish::default(); books.forest.len()],
            listed: listed.collect(),
        };
        let shapes = books.register.shapes.iter().zip(&wishers.by_shape);
        for (shape, ((home, fair, order, _), (more, capped))) in shapes.enumerate() {
            let Some(home) = home.filter(|_| more + capped > 0) else {
                continue;
            };
            let wish = &mut wishes.homes[home];
            if *more > 0 {
                let shapes = if *fair {
                    &mut wish.fair
                } else {
                    &mut wish.fixed
                };
                shapes.push((*order, shape));
            }
            wish.capped.0 |= *capped > 0 && *fair;
            wish.capped.1 |= *capped > 0 && !*fair;
        }
        for wish in &mut wishes.homes {
            wish.fair.sort_unstable();
            wish.fixed.sort_unstable();
        }
        for at in reserved(books) {
            wishes.reserve(books, at);
        }
        wishes
    }

    fn reserve(&mut self, books: &Books, at: usize) {
        let Some(home) = books.home(at) else { return };
        match asks(books, at) {
            Asks::Nothing => {}
            Asks::Listed => self.listed.push(at),
            Asks::More => {
                let order = books.requests[at].order;
                let whole = &mut self.homes[home].whole;
                *whole = Some(whole.map_or(order, |least| least.min(order)));
            }
            Asks::Capped => self.homes[home].capped.1 = true,
        }
    }

    /// While others ask for the same as these, a node has the same reason as before: work with a
    /// machine list is asked about each node by itself.
    pub fn are_those(&self, before: &Self) -> bool {
        self == before && self.listed.is_empty()
    }

    /// Why what is free on a node, and meant for nobody, is free.
    pub fn why(&self, books: &Books, at: usize) -> Why {
        let machine = &books.machines[at];
        let Some(pool) = machine.pool else {
            return Why::Unasked;
        };
        let listed = self.listed.iter().filter(|it| books.is_permitted(**it, at));
        let listed = listed.map(|it| fits(books, machine, *it));
        let mut why = listed.map(asked).max().unwrap_or(Why::Unasked);
        for home in books.forest.upwards(pool) {
            why = why.max(self.homes[home].why(books, machine, home == pool));
        }
        why
    }
}

/// Quanta of a node that are meant for somebody. What nobody wrote in this round is for nobody, and
/// where it would say so is not waited for.
pub(super) fn meant(books: &Books, at: usize) -> u64 {
    let machine = &books.machines[at];
    if !books.machines.is_written(at) {
        return 0;
    }
    if machine.promised_to.is_some() {
        return machine.order;
    }
    machine.spoken.iter().map(|it| it.order).sum()
}

impl Wish {
    fn why(&self, books: &Books, machine: &Machine, at_home: bool) -> Why {
        let mut why = match self.capped {
            (true, _) => Why::Capped,
            (_, true) if at_home => Why::Capped,
            _ => Why::Unasked,
        };
        if let Some(fits) = any_fits(books, machine, &self.fair) {
            why = why.max(asked(fits));
        }
        if let Some(fits) = any_fits(books, machine, &self.fixed).filter(|_| at_home) {
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
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    #[default]
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

fn any_fits(books: &Books, machine: &Machine, shapes: &[(u64, usize)]) -> Option<bool> {
    shapes.first()?;
    let mut small = shapes.iter().take_while(|it| it.0 <= machine.free.order);
    Some(small.any(|(order, shape)| {
        let size = &books.register.shapes[*shape].3;
        machine.free.fitting(*order, size) > 0
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
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
