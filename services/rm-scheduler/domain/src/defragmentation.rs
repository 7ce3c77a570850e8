//! Step 7: entitled work waits although enough space is free, because the space is split over
//! nodes.
//!
//! In: work that still waits, in serve order. Out: orders to vacate for donors, reservations for
//! the work that is helped, and who is needy in the next round.
//! Only work far below its share is helped, up to a small threshold. Donors are rich, and
//! give the allocation that loses the least work.
//!
//! Never: helps work that gets its space anyway once leaving allocations are gone.

mod donor_candidates;
mod donors;
mod future_holes;
mod large_holders;
mod swap;

use crate::{
    entitlement::hole_table::HoleTable,
    input::snapshot::Policy,
    output::plan::Reason,
    placement::serve_order::{is_by_age, lacking_in_order},
    preemption,
    state::RoundState,
};

use donor_candidates::DonorCandidates;
pub(crate) use future_holes::FutureHoles;
pub(crate) use large_holders::LargeHolders;
use swap::swap;

/// Pieces of work that are helped in one round where churn has a budget.
const HELPED_IN_A_ROUND: usize = 16;

/// One piece of work and the processes it lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NeedyWork {
    work: usize,
    processes: u64,
}

/// Step 7 for one tree. `queue` is the work that lacked processes before preemption, in serve
/// order.
pub(crate) fn run(state: &mut RoundState, tree: usize, queue: &[(Policy, usize)]) {
    let receipts_before = state.receipts.len();
    defragment(state, tree, queue);
    if state.settings.evict_for_somebody && state.receipts.len() > receipts_before {
        // Donors may preempt in the same round, from work that exceeds its entitlement.
        preemption::evict(state, tree, &lacking_in_order(state, tree));
    }
    swap(state, tree);
}

fn defragment(state: &mut RoundState, tree: usize, queue: &[(Policy, usize)]) {
    if !state.snapshot.tunables.defragmentation {
        return;
    }
    let potential = potentially_needy(state, tree, queue);
    debug_assert!({
        let rebuilt = potentially_needy(state, tree, &lacking_in_order(state, tree));
        rebuilt == potential
    });
    let needy = potential.iter().map(|item| item.work);
    state.outcomes[tree].needy.extend(needy);
    if potential.is_empty() {
        return;
    }
    state.update_future_holes();
    let actual = actually_needy(state, potential);
    if !actual.is_empty() {
        // Donors go by the work they would lose.
        state.note_time_dependence();
    }
    for item in &actual {
        state.work[item.work].actually_needy = true;
    }
    // Where churn has a budget, the rest is mended in later rounds: a round has to end soon, and a
    // fleet that is mended everywhere at once does nothing else.
    let helped = match state.settings.churn_rounds {
        Some(_) => HELPED_IN_A_ROUND,
        None => usize::MAX,
    };
    let spacious = Spacious::of(state, tree, &actual);
    let mut candidates = DonorCandidates::default();
    for item in actual.into_iter().take(helped) {
        let known = (&spacious, &mut candidates);
        let given = donors::from_donors(state, known, (item.work, item.processes));
        // Where nothing could be taken, what is free beside its own group is the reason.
        let is_short = state.work[item.work].has() == 0 || given < item.processes;
        if is_short && (given > 0 || !state.anti_affinity_blocks(item.work)) {
            state.set_wait_reason(item.work, Reason::WaitingForDefragmentation);
        }
    }
}

impl RoundState<'_> {
    /// Brings what will be free to what is decided so far.
    pub fn update_future_holes(&mut self) {
        let mut node_index = std::mem::take(&mut self.derived.node_index);
        node_index.update_future_holes(self);
        #[cfg(test)]
        node_index.assert_recounted(self);
        self.derived.node_index = node_index;
    }
}

/// Open nodes where enough room for any of them comes by itself, as it was when mending began.
struct Spacious {
    nodes: Vec<usize>,
    then: usize,
}

impl Spacious {
    fn of(state: &RoundState, tree: usize, needy: &[NeedyWork]) -> Self {
        let orders = needy
            .iter()
            .map(|item| state.work[item.work].process_quanta);
        let mut nodes = Vec::new();
        if let Some(least) = orders.min() {
            for pool in state.forest.subtree(tree) {
                nodes.extend(state.derived.node_index.future_holes.with(*pool, least));
            }
        }
        let then = state.nodes.now();
        Self { nodes, then }
    }

    /// With those of which something was taken or meant since; each once.
    fn nodes(&self, state: &RoundState) -> Vec<usize> {
        let mended = state.nodes.since(self.then);
        let mut nodes: Vec<usize> = self.nodes.iter().copied().chain(mended).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// by priority, then age [C-16].
fn potentially_needy(state: &RoundState, tree: usize, queue: &[(Policy, usize)]) -> Vec<NeedyWork> {
    let threshold = state.snapshot.tunables.fragmentation_threshold;
    let mut pure = Pure::default();
    let mut found = Vec::with_capacity(queue.len());
    for (policy, at) in queue.iter().copied() {
        let work = &state.work[at];
        let missing = work.missing().saturating_sub(work.reserved);
        let is_cleared = policy == Policy::Reserve && state.settings.clear_promised;
        // Nodes of reservations may be cleared whole already.
        if missing == 0 || work.is_excluded() || is_cleared {
            continue;
        }
        let Some(class) = work.class else {
            continue;
        };
        // [C-13]: the pure share is in quanta.
        let mut is_rich = |has: u64| {
            !pure.is_far(state, class, has.saturating_mul(work.process_quanta))
                && has >= pure.of(state, at).div_ceil(work.process_quanta)
        };
        let processes = match policy {
            Policy::FairShare if work.has() >= threshold || is_rich(work.has()) => continue,
            Policy::FairShare => missing.min(threshold),
            Policy::FixedShare | Policy::Reserve => missing,
        };
        found.push(NeedyWork {
            work: at,
            processes,
        });
    }
    if !is_by_age(state, tree) {
        let rank = |item: &NeedyWork| {
            let class = state.work[item.work].class;
            class.map(|class| {
                let class = state.classes[class].class;
                (class.priority, class.policy)
            })
        };
        found.sort_by(|a, b| {
            let by_age = || state.age(a.work).cmp(&state.age(b.work));
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
    fn of(&mut self, state: &RoundState, at: usize) -> u64 {
        let (class, user) = (state.work[at].class, state.work_record(at).user);
        if self.of.is_empty() {
            self.of.resize(state.index.user_count(), (None, 0));
        }
        let known = &mut self.of[user];
        if known.0 != class {
            *known = (class, state.pure(at));
        }
        known.1
    }

    /// Has it less than the least of any user of its class? Then nobody has to look whose it is.
    fn is_far(&mut self, state: &RoundState, class: usize, quanta: u64) -> bool {
        if self.least.is_empty() {
            self.least.resize(state.classes.len(), None);
        }
        let least = || {
            let class_state = &state.classes[class];
            let most = class_state
                .users
                .values()
                .map(|work| work.len() as u64)
                .max();
            class_state.pure / (class_state.users.len() as u64).max(1) / most.unwrap_or(0).max(1)
        };
        quanta < *self.least[class].get_or_insert_with(least)
    }
}

/// What will be free, by pool: with everything below it, and its own nodes alone.
struct EventualSpace {
    within: Vec<HoleTable>,
    own: Vec<HoleTable>,
    /// Of its own nodes, those that will be empty.
    whole: Vec<HoleTable>,
}

impl EventualSpace {
    ///
    fn of(state: &RoundState) -> Self {
        let mut within = vec![HoleTable::default(); state.forest.len()];
        let (mut own, mut whole) = (within.clone(), within.clone());
        for ((pool, hole, is_whole), nodes) in state.derived.node_index.future_holes.alike() {
            own[pool].add(hole, nodes);
            if is_whole {
                whole[pool].add(hole, nodes);
            }
            for above in state.forest.upwards(pool) {
                within[above].add(hole, nodes);
            }
        }
        Self { within, own, whole }
    }

    /// Takes out what covers needs of one kind, one after the other, and leaves of each what is
    /// lacking. What covers one leaves so much less for the next, so all is taken out at once.
    fn cover(
        &mut self,
        state: &RoundState,
        kind: &Kind,
        alike: &[(usize, usize)],
        needy: &mut [NeedyWork],
    ) {
        let needs_of = alike.iter().map(|(_, at)| *at);
        let Some(home) = kind.home else {
            needs_of.for_each(|at| needy[at].processes = 0);
            return;
        };
        let quanta = kind.process_quanta;
        let there = match kind.policy {
            Some(Policy::FairShare) => self.within[home].processes(quanta),
            // Only an empty node of exactly its order is room for a reservation: with a
            // larger hole in view it would wait for ever.
            Some(Policy::Reserve) => self.whole[home]
                .count(quanta)
                .min(self.own[home].count(quanta)),
            // Other work than fair shares cannot use the pools below [C-15].
            _ => self.own[home].processes(quanta),
        };
        let there = there.min(kind.picky.map_or(u64::MAX, |at| where_it_may(state, at)));
        let mut left = there;
        for at in needs_of {
            let item = &mut needy[at];
            let covered = left.min(item.processes);
            left -= covered;
            item.processes -= covered;
        }
        let covered = there - left;
        if covered == 0 {
            return;
        }
        // A hole of exactly the order is the first that is taken.
        if kind.policy == Some(Policy::Reserve) {
            self.whole[home].take(covered, quanta);
        }
        self.own[home].take(covered, quanta);
        for above in state.forest.upwards(home) {
            self.within[above].take(covered, quanta);
        }
    }
}

/// What it depends on what room there is in sight for a need. With a list of nodes, or kept apart
/// from others, each is its own.
struct Kind {
    class: Option<usize>,
    home: Option<usize>,
    policy: Option<Policy>,
    process_quanta: u64,
    picky: Option<usize>,
}

impl Kind {
    fn of(state: &RoundState, at: usize) -> Self {
        let work = &state.work[at];
        Self {
            class: work.class,
            home: state.home(at),
            policy: state.policy(at),
            process_quanta: work.process_quanta,
            picky: work.is_constrained().then_some(at),
        }
    }

    fn is_of(&self, state: &RoundState, at: usize) -> bool {
        let work = &state.work[at];
        let is_alike = || self.home == state.home(at) && self.policy == state.policy(at);
        self.process_quanta == work.process_quanta
            && self.picky == work.is_constrained().then_some(at)
            && (self.class == work.class || is_alike())
    }
}

/// What will be free elsewhere is no room for work that has a list (W-12), nor what will be free
/// beside others of its group, once what leaves of them has left. Who could stand nowhere apart
/// from them is not helped by room, and would only keep others from being helped.
fn where_it_may(state: &RoundState, at: usize) -> u64 {
    let work = &state.work[at];
    let is_listed = work.has_node_list && state.settings.count_what_fits;
    if !is_listed && !work.has_anti_affinity {
        return u64::MAX;
    }
    let is_open = |node: &usize| {
        let node_state = &state.nodes[*node];
        node_state.is_schedulable()
            && node_state.quanta >= work.process_quanta
            && state.could_use(at, *node)
            && !(work.has_anti_affinity && state.will_violate_anti_affinity(at, *node))
    };
    let space = |node: usize| state.future_quanta_for(node, Some(at)) / work.process_quanta;
    if is_listed {
        let listed = state.work_record(at).constraints().nodes.iter();
        let listed = listed.filter_map(|name| state.index.find_node(name));
        return listed.filter(is_open).map(space).sum();
    }
    let open = (0..state.nodes.len()).filter(is_open);
    open.map(space)
        .reduce(|sum, more| sum + more)
        .unwrap_or(u64::MAX)
}

/// from the deepest pools upwards; what fits into freed room consumes it [C-6].
fn actually_needy(state: &RoundState, mut needy: Vec<NeedyWork>) -> Vec<NeedyWork> {
    let mut eventual = EventualSpace::of(state);
    let entry = |(at, item): (usize, &NeedyWork)| {
        let home = state.home(item.work);
        (home.map_or(0, |home| state.forest.rank(home)), at)
    };
    let mut by_pool: Vec<(usize, usize)> = needy.iter().enumerate().map(entry).collect();
    by_pool.sort_unstable();
    let mut rest = by_pool.as_slice();
    while let Some((_, first)) = rest.first() {
        let kind = Kind::of(state, needy[*first].work);
        let is_alike = |(_, at): &&(usize, usize)| kind.is_of(state, needy[*at].work);
        let (alike, others) = rest.split_at(rest.iter().take_while(is_alike).count());
        eventual.cover(state, &kind, alike, &mut needy);
        rest = others;
    }
    needy.retain(|item| item.processes > 0);
    needy
}
