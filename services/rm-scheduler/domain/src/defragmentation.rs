//! Mending split room (section 12): counted work that no node can take because free room is spread
//! in pieces. Churn is kept low by helping only up to a small threshold.

mod donor_candidates;
mod donors;
mod future_holes;
mod large_holders;
mod swap;

use crate::{
    entitlement::hole_table::Holes,
    input::snapshot::Policy,
    output::plan::Reason,
    placement::serve_order::{go_by_age, lacking_in_turn},
    state::Books,
};

use donor_candidates::Candidates;
pub(crate) use future_holes::Prospects;
pub(crate) use large_holders::Hoards;
pub(crate) use swap::exchange;

/// Pieces of work that are helped in one round where churn has a budget.
const HELPED_IN_A_ROUND: usize = 16;

/// One piece of work and the processes it lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Need {
    request: usize,
    processes: u64,
}

/// `turns` is who lacked something before others made room: nobody comes to lack anything by that.
pub(crate) fn mend(books: &mut Books, tree: usize, turns: &[(Policy, usize)]) {
    if !books.snapshot.tunables.defragmentation {
        return;
    }
    let potential = potentially_needy(books, tree, turns);
    debug_assert!({
        let anew = potentially_needy(books, tree, &lacking_in_turn(books, tree));
        anew == potential
    });
    let needy = potential.iter().map(|need| need.request);
    books.outcomes[tree].needy.extend(needy);
    if potential.is_empty() {
        return;
    }
    books.follow_prospects();
    let actual = actually_needy(books, potential);
    if !actual.is_empty() {
        // Donors go by the work they would lose.
        books.passes();
    }
    for need in &actual {
        books.requests[need.request].actually_needy = true;
    }
    // Where churn has a budget, the rest is mended in later rounds: a round has to end soon, and a
    // fleet that is mended everywhere at once does nothing else.
    let helped = match books.settings.churn_rounds {
        Some(_) => HELPED_IN_A_ROUND,
        None => usize::MAX,
    };
    let spacious = Spacious::of(books, tree, &actual);
    let mut candidates = Candidates::default();
    for need in actual.into_iter().take(helped) {
        let known = (&spacious, &mut candidates);
        let given = donors::from_donors(books, known, (need.request, need.processes));
        // Where nothing could be taken, what is free beside its own group is the reason.
        let is_short = books.requests[need.request].has() == 0 || given < need.processes;
        if is_short && (given > 0 || !books.is_kept_from_room(need.request)) {
            books.note_wait(need.request, Reason::WaitingForDefragmentation);
        }
    }
}

impl Books<'_> {
    /// Brings what will be free to what is decided so far.
    pub fn follow_prospects(&mut self) {
        let mut rooms = std::mem::take(&mut self.sets.rooms);
        rooms.follow_prospects(self);
        #[cfg(test)]
        rooms.assert_recounted(self);
        self.sets.rooms = rooms;
    }
}

/// Open nodes where enough room for any of them comes by itself, as it was when mending began.
struct Spacious {
    nodes: Vec<usize>,
    then: usize,
}

impl Spacious {
    fn of(books: &Books, tree: usize, needs: &[Need]) -> Self {
        let orders = needs.iter().map(|need| books.requests[need.request].order);
        let mut nodes = Vec::new();
        if let Some(least) = orders.min() {
            for pool in books.forest.subtree(tree) {
                nodes.extend(books.sets.rooms.prospects.with(*pool, least));
            }
        }
        let then = books.machines.now();
        Self { nodes, then }
    }

    /// With those of which something was taken or meant since; each once.
    fn nodes(&self, books: &Books) -> Vec<usize> {
        let mended = books.machines.since(self.then);
        let mut nodes: Vec<usize> = self.nodes.iter().copied().chain(mended).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// by priority, then age [C-16].
fn potentially_needy(books: &Books, tree: usize, turns: &[(Policy, usize)]) -> Vec<Need> {
    let threshold = books.snapshot.tunables.fragmentation_threshold;
    let mut pure = Pure::default();
    let mut found = Vec::with_capacity(turns.len());
    for (policy, at) in turns.iter().copied() {
        let request = &books.requests[at];
        let missing = request.missing().saturating_sub(request.coming);
        let is_cleared = policy == Policy::Reserve && books.settings.clear_promised;
        // Nodes of reservations may be cleared whole already.
        if missing == 0 || request.is_out() || is_cleared {
            continue;
        }
        let Some(class) = request.class else {
            continue;
        };
        // [C-13]: the pure share is in quanta.
        let mut is_rich = |has: u64| {
            !pure.is_far(books, class, has.saturating_mul(request.order))
                && has >= pure.of(books, at).div_ceil(request.order)
        };
        let processes = match policy {
            Policy::FairShare if request.has() >= threshold || is_rich(request.has()) => continue,
            Policy::FairShare => missing.min(threshold),
            Policy::FixedShare | Policy::Reserve => missing,
        };
        found.push(Need {
            request: at,
            processes,
        });
    }
    if !go_by_age(books, tree) {
        let rank = |need: &Need| {
            let class = books.requests[need.request].class;
            class.map(|class| {
                let class = books.classes[class].class;
                (class.priority, class.policy)
            })
        };
        found.sort_by(|a, b| {
            let by_age = || books.age(a.request).cmp(&books.age(b.request));
            rank(a).cmp(&rank(b)).then_with(by_age)
        });
    }
    found
}

/// The pure shares of work, which are the same for all work of a user in a class.
#[derive(Default)]
struct Pure {
    /// By user: that of the class he was asked for last.
    of: Vec<(Option<usize>, u64)>,
    /// By class: the least of any user.
    least: Vec<Option<u64>>,
}

impl Pure {
    fn of(&mut self, books: &Books, at: usize) -> u64 {
        let (class, user) = (books.requests[at].class, books.demand(at).user_at);
        if self.of.is_empty() {
            self.of.resize(books.register.users(), (None, 0));
        }
        let known = &mut self.of[user];
        if known.0 != class {
            *known = (class, books.pure(at));
        }
        known.1
    }

    /// Has it less than the least of any user of its class? Then nobody has to look whose it is.
    fn is_far(&mut self, books: &Books, class: usize, quanta: u64) -> bool {
        if self.least.is_empty() {
            self.least.resize(books.classes.len(), None);
        }
        let least = || {
            let book = &books.classes[class];
            let most = book.users.values().map(|work| work.len() as u64).max();
            book.pure / (book.users.len() as u64).max(1) / most.unwrap_or(0).max(1)
        };
        quanta < *self.least[class].get_or_insert_with(least)
    }
}

/// What will be free, by pool: with everything below it, and its own nodes alone.
struct Eventual {
    within: Vec<Holes>,
    own: Vec<Holes>,
    /// Of its own nodes, those that will be empty.
    whole: Vec<Holes>,
}

impl Eventual {
    ///
    fn of(books: &Books) -> Self {
        let mut within = vec![Holes::default(); books.forest.len()];
        let (mut own, mut whole) = (within.clone(), within.clone());
        for ((pool, hole, is_whole), nodes) in books.sets.rooms.prospects.alike() {
            own[pool].add(hole, nodes);
            if is_whole {
                whole[pool].add(hole, nodes);
            }
            for above in books.forest.upwards(pool) {
                within[above].add(hole, nodes);
            }
        }
        Self { within, own, whole }
    }

    /// Takes out what covers needs of one kind, one after the other, and leaves of each what is
    /// lacking. What covers one leaves so much less for the next, so all is taken out at once.
    fn cover(&mut self, books: &Books, kind: &Kind, alike: &[(usize, usize)], needs: &mut [Need]) {
        let needs_of = alike.iter().map(|(_, at)| *at);
        let Some(home) = kind.home else {
            needs_of.for_each(|at| needs[at].processes = 0);
            return;
        };
        let order = kind.order;
        let there = match kind.policy {
            Some(Policy::FairShare) => self.within[home].processes(order),
            // Only an empty node of exactly its order is room for a reservation: with a
            // larger hole in view it would wait for ever.
            Some(Policy::Reserve) => self.whole[home]
                .count(order)
                .min(self.own[home].count(order)),
            // Other work than fair shares cannot use the pools below [C-15].
            _ => self.own[home].processes(order),
        };
        let there = there.min(kind.picky.map_or(u64::MAX, |at| where_it_may(books, at)));
        let mut left = there;
        for at in needs_of {
            let need = &mut needs[at];
            let covered = left.min(need.processes);
            left -= covered;
            need.processes -= covered;
        }
        let covered = there - left;
        if covered == 0 {
            return;
        }
        // A hole of exactly the order is the first that is taken.
        if kind.policy == Some(Policy::Reserve) {
            self.whole[home].take(covered, order);
        }
        self.own[home].take(covered, order);
        for above in books.forest.upwards(home) {
            self.within[above].take(covered, order);
        }
    }
}

/// What it depends on what room there is in sight for a need. With a list of nodes, or kept apart
/// from others, each is its own.
struct Kind {
    class: Option<usize>,
    home: Option<usize>,
    policy: Option<Policy>,
    order: u64,
    picky: Option<usize>,
}

impl Kind {
    fn of(books: &Books, at: usize) -> Self {
        let request = &books.requests[at];
        Self {
            class: request.class,
            home: books.home(at),
            policy: books.policy(at),
            order: request.order,
            picky: request.is_picky().then_some(at),
        }
    }

    fn is_of(&self, books: &Books, at: usize) -> bool {
        let request = &books.requests[at];
        let is_alike = || self.home == books.home(at) && self.policy == books.policy(at);
        self.order == request.order
            && self.picky == request.is_picky().then_some(at)
            && (self.class == request.class || is_alike())
    }
}

/// What will be free elsewhere is no room for work that has a list (W-12), nor what will be free
/// beside others of its group, once what leaves of them has left. Who could stand nowhere apart
/// from them is not helped by room, and would only keep others from being helped.
fn where_it_may(books: &Books, at: usize) -> u64 {
    let request = &books.requests[at];
    let is_listed = request.listed && books.settings.count_what_fits;
    if !is_listed && !request.apart {
        return u64::MAX;
    }
    let is_open = |machine: &usize| {
        let place = &books.machines[*machine];
        place.is_schedulable()
            && place.order >= request.order
            && books.could_use(at, *machine)
            && !(request.apart && books.stays_parted(at, *machine))
    };
    let room = |machine: usize| books.coming_order_for(machine, Some(at)) / request.order;
    if is_listed {
        let listed = books.demand(at).wishes().machines.iter();
        let listed = listed.filter_map(|name| books.register.machine(name));
        return listed.filter(is_open).map(room).sum();
    }
    let open = (0..books.machines.len()).filter(is_open);
    open.map(room)
        .reduce(|sum, more| sum + more)
        .unwrap_or(u64::MAX)
}

/// from the deepest pools upwards; what fits into freed room consumes it [C-6].
fn actually_needy(books: &Books, mut needs: Vec<Need>) -> Vec<Need> {
    let mut eventual = Eventual::of(books);
    let turn = |(at, need): (usize, &Need)| {
        let home = books.home(need.request);
        (home.map_or(0, |home| books.forest.turn(home)), at)
    };
    let mut by_pool: Vec<(usize, usize)> = needs.iter().enumerate().map(turn).collect();
    by_pool.sort_unstable();
    let mut rest = by_pool.as_slice();
    while let Some((_, first)) = rest.first() {
        let kind = Kind::of(books, needs[*first].request);
        let is_alike = |(_, at): &&(usize, usize)| kind.is_of(books, needs[*at].request);
        let (alike, others) = rest.split_at(rest.iter().take_while(is_alike).count());
        eventual.cover(books, &kind, alike, &mut needs);
        rest = others;
    }
    needs.retain(|need| need.processes > 0);
    needs
}
