//! Step 7: makes space for entitled work that fits no node because free space is fragmented.
//!
//! In: entitled work that is still unserved, and the space that will be free on each node. Out:
//! preemptions of donors, reservations of the space they leave, and wait reasons.
//!
//! Only work below a small threshold of processes is helped, which limits churn. First the step
//! finds out which work future space serves without help. Then [`donors`] takes processes from
//! other work: first from work that has at least the threshold, then from work of lower
//! priority. [`swap`] exchanges processes between nodes, so no owner loses any. Defragmentation
//! never takes from work that is needy itself.

mod donor_candidates;
mod donors;
mod swap;

use crate::{
    ids::{ClassIx, NodeIx, PoolIx, TypedVec, UserIx, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
    state::{
        RoundState,
        hole_table::HoleTable,
        serve_order::{QueuedWork, is_ordered_by_age, to_serve_in_order},
    },
};

use donor_candidates::DonorCandidates;
pub(crate) use swap::swap;

/// Maximum number of pieces of work helped in one round, if `churn_rounds` is set.
const MAX_HELPED_PER_ROUND: usize = 16;

/// Piece of work and the number of processes that it lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NeedyWork {
    work: WorkIx,
    processes: u64,
}

/// Takes processes from donors in one tree. `queue` is the work that lacked processes before
/// preemption, in serve order.
pub(crate) fn take_from_donors(state: &mut RoundState, tree: PoolIx, queue: &[QueuedWork]) {
    if !state.snapshot.tunables.defragmentation {
        return;
    }
    let potentially_needy_work = potentially_needy(state, tree, queue);
    // The queue from before preemption gives the same work as the present queue.
    debug_assert!({
        let rebuilt = potentially_needy(state, tree, &to_serve_in_order(state, tree));
        rebuilt == potentially_needy_work
    });
    let needy = potentially_needy_work.iter().map(|item| item.work);
    state.outcomes[tree].needy.extend(needy);
    if potentially_needy_work.is_empty() {
        return;
    }
    state.update_future_holes();
    let actually_needy_work = actually_needy(state, potentially_needy_work);
    if !actually_needy_work.is_empty() {
        // The choice of donors depends on work lost, which grows with time.
        state.record_time_dependence();
    }
    for item in &actually_needy_work {
        state.work[item.work].is_needy = true;
    }
    // The rest is helped in later rounds, so that rounds stay short and churn is spread.
    let max_helped = match state.settings.churn_rounds {
        Some(_) => MAX_HELPED_PER_ROUND,
        None => usize::MAX,
    };
    let spacious = SpaciousNodes::new(state, tree, &actually_needy_work);
    let mut candidates = DonorCandidates::default();
    for item in actually_needy_work.into_iter().take(max_helped) {
        let freed = donors::free_space_from_donors(
            state,
            &spacious,
            &mut candidates,
            item.work,
            item.processes,
        );
        // Without donors, anti-affinity is the reason if it blocks the free nodes.
        let is_short = state.work[item.work].process_count() == 0 || freed < item.processes;
        if is_short && (freed > 0 || !state.anti_affinity_blocks(item.work)) {
            state.set_wait_reason(item.work, Reason::WaitingForDefragmentation);
        }
    }
}

/// Nodes where space for the smallest needy process becomes free without preemption. The list is
/// that of the beginning of the step.
struct SpaciousNodes {
    nodes: Vec<NodeIx>,
    /// Position in the log of written node rows up to which `nodes` is current.
    written_position: usize,
}

impl SpaciousNodes {
    fn new(state: &RoundState, tree: PoolIx, needy: &[NeedyWork]) -> Self {
        let quanta = needy
            .iter()
            .map(|item| state.work[item.work].process_quanta);
        let mut nodes = Vec::new();
        if let Some(least) = quanta.min() {
            for pool in state.forest.subtree(tree) {
                nodes.extend(
                    state
                        .derived
                        .node_index
                        .future_holes
                        .nodes_with(*pool, least),
                );
            }
        }
        let written_position = state.nodes.journal_position();
        Self {
            nodes,
            written_position,
        }
    }

    /// Returns these nodes and the nodes written since, each once.
    fn nodes(&self, state: &RoundState) -> Vec<NodeIx> {
        let touched = state.nodes.written_since(self.written_position);
        let mut nodes: Vec<NodeIx> = self.nodes.iter().copied().chain(touched).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// Returns the work that may be helped, by priority, then age.
fn potentially_needy(state: &RoundState, tree: PoolIx, queue: &[QueuedWork]) -> Vec<NeedyWork> {
    let threshold = state.snapshot.tunables.fragmentation_threshold;
    let mut weighted_shares = WeightedShares::default();
    let mut needy = Vec::with_capacity(queue.len());
    for QueuedWork { policy, work } in queue.iter().copied() {
        let work_state = &state.work[work];
        let missing = work_state.missing().saturating_sub(work_state.reserved);
        let is_cleared = policy == Policy::Reserve && state.settings.clear_promised;
        // Whole nodes may already be cleared for reservations.
        if missing == 0 || work_state.is_excluded() || is_cleared {
            continue;
        }
        let Some(class) = work_state.class else {
            continue;
        };
        // The weighted share is in quanta (C-13).
        let mut has_weighted_share = |process_count: u64| {
            !weighted_shares.is_below_least(
                state,
                class,
                process_count.saturating_mul(work_state.process_quanta),
            ) && process_count
                >= weighted_shares
                    .share_of(state, work)
                    .div_ceil(work_state.process_quanta)
        };
        let processes = match policy {
            Policy::FairShare
                if work_state.process_count() >= threshold
                    || has_weighted_share(work_state.process_count()) =>
            {
                continue;
            }
            Policy::FairShare => missing.min(threshold),
            Policy::FixedShare | Policy::Reserve => missing,
        };
        needy.push(NeedyWork { work, processes });
    }
    if !is_ordered_by_age(state, tree) {
        let rank = |item: &NeedyWork| {
            let class = state.work[item.work].class;
            class.map(|class| {
                let class = state.classes[class].class;
                (class.priority, class.policy)
            })
        };
        needy.sort_by(|a, b| {
            let by_age = || state.age_key(a.work).cmp(&state.age_key(b.work));
            rank(a).cmp(&rank(b)).then_with(by_age)
        });
    }
    needy
}

/// Cache of the weighted shares, in quanta of one piece of work. A weighted share follows from the
/// weights alone, so it is equal for all work of a user in a class.
#[derive(Default)]
struct WeightedShares {
    by_user: TypedVec<UserIx, CachedShare>,
    /// Least share of any user, by class.
    least_shares: TypedVec<ClassIx, Option<u64>>,
}

/// Share of the work of one user, in the class of the last lookup.
#[derive(Clone, Copy, Default)]
struct CachedShare {
    class: Option<ClassIx>,
    quanta: u64,
}

impl WeightedShares {
    fn share_of(&mut self, state: &RoundState, work: WorkIx) -> u64 {
        let (class, user) = (state.work[work].class, state.work_record(work).user);
        if self.by_user.is_empty() {
            let user_count = state.index.user_count();
            self.by_user.resize(user_count, CachedShare::default());
        }
        let cached = &mut self.by_user[user];
        if cached.class != class {
            let quanta = state.weighted_share(work);
            *cached = CachedShare { class, quanta };
        }
        cached.quanta
    }

    /// Returns whether `quanta` is below the least share of any user in the class.
    fn is_below_least(&mut self, state: &RoundState, class: ClassIx, quanta: u64) -> bool {
        if self.least_shares.is_empty() {
            self.least_shares.resize(state.classes.len(), None);
        }
        let least = || {
            let class_state = &state.classes[class];
            let largest_count = class_state
                .users
                .values()
                .map(|work| work.len() as u64)
                .max();
            class_state.weighted_share
                / (class_state.users.len() as u64).max(1)
                / largest_count.unwrap_or(0).max(1)
        };
        quanta < *self.least_shares[class].get_or_insert_with(least)
    }
}

/// Future space by pool.
struct FutureSpace {
    /// Space on the nodes of a pool and of all pools below it, by pool.
    within: TypedVec<PoolIx, HoleTable>,
    /// Space on the own nodes of a pool, by pool.
    own: TypedVec<PoolIx, HoleTable>,
    /// Space on the own nodes of a pool that will be empty, by pool.
    empty_nodes: TypedVec<PoolIx, HoleTable>,
}

impl FutureSpace {
    /// Counts the future space of all pools.
    fn new(state: &RoundState) -> Self {
        let mut within = TypedVec::filled(HoleTable::default(), state.forest.len());
        let (mut own, mut empty_nodes) = (within.clone(), within.clone());
        for ((pool, hole, is_whole), nodes) in state.derived.node_index.future_holes.groups() {
            own[pool].add(hole, nodes);
            if is_whole {
                empty_nodes[pool].add(hole, nodes);
            }
            for ancestor in state.forest.path_to_root(pool) {
                within[ancestor].add(hole, nodes);
            }
        }
        Self {
            within,
            own,
            empty_nodes,
        }
    }

    /// Serves needy work of one kind from future space. Subtracts the used space from the future
    /// space, and the served processes from `needy`. `group` has pool rank and index of each work.
    fn subtract_served(
        &mut self,
        state: &RoundState,
        kind: &NeedyKind,
        group: &[(usize, usize)],
        needy: &mut [NeedyWork],
    ) {
        let members = group.iter().map(|(_, index)| *index);
        let Some(home) = kind.home else {
            members.for_each(|index| needy[index].processes = 0);
            return;
        };
        let quanta = kind.process_quanta;
        let available = match kind.policy {
            Some(Policy::FairShare) => self.within[home].count_processes(quanta),
            // A reservation needs an empty node of exactly its quanta.
            Some(Policy::Reserve) => self.empty_nodes[home]
                .count(quanta)
                .min(self.own[home].count(quanta)),
            // Only fair-share work can use the pools below (C-15).
            _ => self.own[home].count_processes(quanta),
        };
        let available = available.min(
            kind.constrained
                .map_or(u64::MAX, |work| processes_on_permitted_nodes(state, work)),
        );
        let mut remaining = available;
        for index in members {
            let item = &mut needy[index];
            let covered = remaining.min(item.processes);
            remaining -= covered;
            item.processes -= covered;
        }
        let covered = available - remaining;
        if covered == 0 {
            return;
        }
        // A hole of exactly this size is taken first.
        if kind.policy == Some(Policy::Reserve) {
            self.empty_nodes[home].fill_exact_first(covered, quanta);
        }
        self.own[home].fill_exact_first(covered, quanta);
        for ancestor in state.forest.path_to_root(home) {
            self.within[ancestor].fill_exact_first(covered, quanta);
        }
    }
}

/// Properties that decide which future space can serve work. Each constrained piece of work is a
/// kind of its own.
struct NeedyKind {
    class: Option<ClassIx>,
    home: Option<PoolIx>,
    policy: Option<Policy>,
    process_quanta: u64,
    /// The work itself, if it is constrained.
    constrained: Option<WorkIx>,
}

impl NeedyKind {
    fn new(state: &RoundState, work: WorkIx) -> Self {
        let work_state = &state.work[work];
        Self {
            class: work_state.class,
            home: state.home(work),
            policy: state.policy(work),
            process_quanta: work_state.process_quanta,
            constrained: work_state.is_constrained().then_some(work),
        }
    }

    fn includes(&self, state: &RoundState, work: WorkIx) -> bool {
        let work_state = &state.work[work];
        let is_same_kind = || self.home == state.home(work) && self.policy == state.policy(work);
        self.process_quanta == work_state.process_quanta
            && self.constrained == work_state.is_constrained().then_some(work)
            && (self.class == work_state.class || is_same_kind())
    }
}

/// Returns the number of processes that future space can serve on the nodes this work may use:
/// nodes of its list, and nodes without its anti-affinity group. Returns `u64::MAX` if the work is
/// unconstrained, or if anti-affinity leaves no node, because space does not help then (W-12).
fn processes_on_permitted_nodes(state: &RoundState, work: WorkIx) -> u64 {
    let work_state = &state.work[work];
    let is_listed = work_state.has_node_list && state.settings.count_what_fits;
    if !is_listed && !work_state.has_anti_affinity {
        return u64::MAX;
    }
    let is_open = |node: &NodeIx| {
        let node_state = &state.nodes[*node];
        node_state.is_schedulable()
            && node_state.quanta >= work_state.process_quanta
            && state.could_use(work, *node)
            && !(work_state.has_anti_affinity && state.will_violate_anti_affinity(work, *node))
    };
    let space =
        |node: NodeIx| state.future_quanta_for(node, Some(work)) / work_state.process_quanta;
    if is_listed {
        let listed = state.work_record(work).constraints().nodes.iter();
        let listed = listed.filter_map(|name| state.index.find_node(name));
        return listed.filter(is_open).map(space).sum();
    }
    let open = state.nodes.indices().filter(is_open);
    open.map(space)
        .reduce(|sum, more| sum + more)
        .unwrap_or(u64::MAX)
}

/// Removes the work that future space serves, from the deepest pools upwards.
fn actually_needy(state: &RoundState, mut needy: Vec<NeedyWork>) -> Vec<NeedyWork> {
    let mut future_space = FutureSpace::new(state);
    let rank_and_index = |(index, item): (usize, &NeedyWork)| {
        let home = state.home(item.work);
        (home.map_or(0, |home| state.forest.rank(home)), index)
    };
    let mut by_pool: Vec<(usize, usize)> = needy.iter().enumerate().map(rank_and_index).collect();
    by_pool.sort_unstable();
    let mut remaining = by_pool.as_slice();
    while let Some((_, first)) = remaining.first() {
        let kind = NeedyKind::new(state, needy[*first].work);
        let is_same_kind = |(_, index): &&(usize, usize)| kind.includes(state, needy[*index].work);
        let (group, others) = remaining.split_at(remaining.iter().take_while(is_same_kind).count());
        future_space.subtract_served(state, &kind, group, &mut needy);
        remaining = others;
    }
    needy.retain(|item| item.processes > 0);
    needy
}
