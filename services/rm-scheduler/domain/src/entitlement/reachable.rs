//! What each request could hold if everything preemptable gave way: the full size vector against
//! every node it may use. Orders alone would count for work that no node can take (W-1, W-12), and
//! what is counted for it would be kept from others for ever.

use std::borrow::Cow;

use hayward_vocabulary::{
    Size,
    counted::{nodes, quanta},
};

use crate::{
    collections::dense_set::Members,
    index::{Kinds, Shape},
    input::snapshot::Policy,
    output::{plan::Reason, reason::Deferral},
    state::Books,
};

/// Part of a sentence for people.
pub(crate) type Why = Cow<'static, str>;

/// What was measured last, by shape: it stays while no node changes what could be had on it.
#[derive(Default)]
pub(crate) struct Reaches {
    by_shape: Vec<Option<u64>>,
    /// By shape: the most that any of its work could use since all was read anew. Whether it
    /// reaches farther than that makes no difference to anybody.
    of_use: Vec<u64>,
    /// Work that is measured by itself.
    alone: Members,
    /// Measured with what faults left, which is so in one round alone.
    after_faults: bool,
}

impl Reaches {
    /// Measures shapes anew; tells those for whose work that makes a difference.
    fn renew(&mut self, books: &Books, kinds: &Kinds) -> Vec<bool> {
        let shapes = &books.register.shapes;
        let known = self.by_shape.iter_mut().zip(&self.of_use).zip(&**shapes);
        let differs = known.map(|((known, of_use), shape)| {
            let Some(before) = *known else { return false };
            let now = among(books, kinds, (shape, shape.2));
            *known = Some(now);
            now.min(*of_use) != before.min(*of_use)
        });
        differs.collect()
    }
}

/// Measures work against the room that is not held for good, and holds its cap to that.
pub(crate) fn measure(books: &mut Books) {
    if !books.settings.count_what_fits {
        return;
    }
    let register = books.register;
    let mut reaches = std::mem::take(&mut books.sets.reaches);
    let changed = kinds_after_faults(books);
    let kinds = changed.as_ref().unwrap_or(&register.kinds);
    let is_otherwise = register.kinds_moved || changed.is_some() || reaches.after_faults;
    reaches.after_faults = changed.is_some();
    let mut again: Vec<usize> = books.requests.stirred().collect();
    if is_otherwise && !register.anew {
        let differs = reaches.renew(books, kinds);
        if differs.contains(&true) {
            let all = books.requests.iter().enumerate();
            let of_shape = all.filter(|(_, request)| differs.get(request.shape) == Some(&true));
            again.extend(of_shape.map(|(at, _)| at));
        }
        again.extend(reaches.alone.iter());
    }
    reaches.by_shape.resize(register.shapes.len(), None);
    reaches.of_use.resize(register.shapes.len(), 1);
    for at in again {
        measure_one(books, &mut reaches, kinds, at);
    }
    books.sets.reaches = reaches;
}

fn measure_one(books: &mut Books, reaches: &mut Reaches, kinds: &Kinds, at: usize) {
    let request = &books.requests[at];
    let shape = request.shape;
    reaches.alone.set(at, request.listed || request.upgraded);
    let reach = if request.class.is_none() {
        0
    } else if request.listed {
        among_listed(books, at)
    } else if request.upgraded {
        among(books, kinds, (&books.register.shapes[shape], request.order))
    } else if let Some(reach) = reaches.by_shape[shape] {
        reach
    } else {
        let order = books.register.shapes[shape].2;
        let reach = among(books, kinds, (&books.register.shapes[shape], order));
        reaches.by_shape[shape] = Some(reach);
        reach
    };
    let changed = books.changed_caps.get(&at);
    let mut cap = changed.map_or(books.demand(at).holding.cap, |(cap, _)| *cap);
    let of_use = cap.most().max(request.current).max(1);
    reaches.of_use[shape] = reaches.of_use[shape].max(of_use);
    if books.policy(at) == Some(Policy::FairShare) {
        let most = reach.saturating_add(request.resting);
        (cap.steady, cap.now) = (cap.steady.min(most), cap.now.min(most));
    }
    let reach = reach.min(of_use);
    if (request.reach, request.cap) != (reach, cap) {
        let request = books.requests.settle(at);
        (request.reach, request.cap) = (reach, cap);
    }
}

/// Room that fixed shares leave can be counted on where that is looked at so closely.
fn kinds_after_faults(books: &Books) -> Option<Kinds> {
    if books.changed_rooms.is_empty() {
        return None;
    }
    let mut kinds = books.register.kinds.clone();
    for (machine, room) in &books.changed_rooms {
        let station = &books.register.machines[*machine];
        if let Some(pool) = station.pool.filter(|_| station.schedulable) {
            if let Some(nodes) = kinds.get_mut(&(pool, station.room.clone())) {
                *nodes -= 1;
            }
            *kinds.entry((pool, room.clone())).or_default() += 1;
        }
    }
    Some(kinds)
}

/// Nodes alike are counted once.
fn among(books: &Books, kinds: &Kinds, (shape, order): (&Shape, u64)) -> u64 {
    let (home, fair, _, size) = shape;
    let may_use = |pool: usize| match *home {
        Some(home) if *fair => books.forest.is_within(pool, home),
        home => home == Some(pool),
    };
    kinds
        .iter()
        .filter(|((pool, _), _)| may_use(*pool))
        .map(|((_, room), nodes)| room.fitting(order, size).saturating_mul(*nodes))
        .fold(0, u64::saturating_add)
}

fn among_listed(books: &Books, request: usize) -> u64 {
    let work = &books.requests[request];
    let listed = &books.demand(request).wishes().machines;
    listed
        .iter()
        .filter_map(|name| books.register.machine(name))
        .filter(|at| books.machines[*at].is_schedulable() && books.could_use(request, *at))
        .map(|at| books.room(at).fitting(work.order, books.size(request)))
        .fold(0, u64::saturating_add)
}

/// Why no node can take even one process of it. Every node of its pools is looked at, whatever its
/// state: too large is for ever, blocked is not [C-8].
pub(crate) fn nowhere(books: &Books, at: usize) -> Deferral {
    let order = books.requests[at].order;
    let (reason, detail): (_, Why) = if !books.settings.count_what_fits {
        let (reason, detail) = by_order_alone(books, at);
        (reason, detail.into())
    } else if let Some(never) = never(books, at) {
        never
    } else {
        let blocked = |machine: &usize| {
            let avoided = books.avoids(at, *machine);
            books.station(*machine).node.block.is_some() || avoided
        };
        let could_hold: Vec<usize> = large_enough(books, at).collect();
        if !could_hold.is_empty() && could_hold.iter().all(blocked) {
            (Reason::AllBlocked, all_blocked(books, &could_hold).into())
        } else {
            let detail = "no node has that much room that is free or could be freed";
            (Reason::InsufficientResources, detail.into())
        }
    };
    Deferral {
        reason,
        refused: false,
        detail: format!("one process needs {}: {detail}", quanta(order)),
    }
}

/// Blocks are for all work. A node may also be closed to this work alone: by a block of it, by its
/// request, or because a partner of it runs there.
fn all_blocked(books: &Books, could_hold: &[usize]) -> String {
    let is_blocked = |at: &&usize| books.station(**at).node.block.is_some();
    let blocked = could_hold.iter().filter(is_blocked).count();
    let all = nodes(could_hold.len() as u64);
    match (blocked, could_hold.len() - blocked) {
        (_, 0) => format!("{all} could hold it, and none is free of blocks"),
        (0, _) => format!("{all} could hold it, and this work may not go there now"),
        (_, avoided) => {
            format!("{all} could hold it; {blocked} blocked, {avoided} closed to this work")
        }
    }
}

/// machine lists are no matter of counting.
fn by_order_alone(books: &Books, at: usize) -> (Reason, &'static str) {
    if large_enough(books, at).next().is_some() {
        let detail = "no node has that much room that is free or could be freed";
        (Reason::InsufficientResources, detail)
    } else {
        let detail = "no node it may use is large enough";
        (Reason::NoHostLargeEnough, detail)
    }
}

/// What no passing of time changes: no node it may use is listed, or none is large enough.
pub(crate) fn never(books: &Books, at: usize) -> Option<(Reason, Why)> {
    let listed = books.requests[at].listed;
    if listed && permitted(books, at).next().is_none() {
        let wishes = books.demand(at).wishes();
        let detail: Why = if wishes.avoids.is_empty() {
            match wishes.machines.len() {
                1 => "the one node of its list is not in its pool".into(),
                listed => format!("none of the {listed} nodes of its list is in its pool").into(),
            }
        } else {
            "its pool has no node that it may use".into()
        };
        return Some((Reason::NoListedMachine, detail));
    }
    if large_enough(books, at).next().is_none() {
        let detail = match not_offered(books, at) {
            Some(name) => format!("no node it may use offers `{name}`").into(),
            None => "no node it may use is large enough".into(),
        };
        return Some((Reason::NoHostLargeEnough, detail));
    }
    None
}

/// A resource that it needs and none of the nodes it may use has, whatever they hold now: a gpu, a
/// container engine, or a directory that no pool lists.
pub(crate) fn not_offered<'b>(books: &'b Books, at: usize) -> Option<&'b str> {
    let anywhere = |has: &dyn Fn(&Size) -> bool| {
        (0..books.machines.len()).any(|machine| {
            let pool = books.machines[machine].pool;
            pool.is_some_and(|pool| books.may_use(at, pool))
                && has(&books.station(machine).node.capacity)
        })
    };
    if books.size(at).gpu_milli > 0 && !anywhere(&|capacity| capacity.gpu_milli > 0) {
        return Some("gpu");
    }
    let needed = books.size(at).extras.iter();
    let mut needed = needed.filter(|(_, amount)| **amount > 0);
    let (name, _) =
        needed.find(|(name, _)| !anywhere(&|capacity| capacity.extras.contains_key(*name)))?;
    Some(name)
}

/// What is blocked for it alone counts: that passes.
fn permitted<'b>(books: &'b Books, at: usize) -> impl Iterator<Item = usize> + 'b {
    (0..books.machines.len()).filter(move |machine| {
        let pool = books.machines[*machine].pool;
        let reachable = || pool.is_some_and(|pool| books.may_use(at, pool));
        let avoided = || books.avoids(at, *machine) && reachable();
        books.could_use(at, *machine) || avoided()
    })
}

/// Nodes of its pools that one process would fit on if they were empty, whatever its policy. By the
/// rules neither the machine list nor any size but the order matters here (13.2).
fn large_enough<'b>(books: &'b Books, at: usize) -> impl Iterator<Item = usize> + 'b {
    let request = &books.requests[at];
    let closely = books.settings.count_what_fits;
    (0..books.machines.len()).filter(move |machine| {
        let place = &books.machines[*machine];
        let capacity = &books.station(*machine).node.capacity;
        let may = books.admits(at, *machine) || books.avoids(at, *machine);
        let could = || may && books.size(at).fits(capacity);
        place.order >= request.order
            && place.pool.is_some_and(|pool| books.may_use(at, pool))
            && (!closely || could())
    })
}
