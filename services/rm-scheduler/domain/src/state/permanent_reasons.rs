//! Reasons why a piece of work cannot start, even if everything left its nodes. Either no listed
//! node exists, or no node is large enough.

use std::borrow::Cow;

use hayward_vocabulary::Size;
use rustc_hash::FxHashMap;

use super::{RoundState, WorkShape};
use crate::{
    ids::{NodeIx, WorkIx},
    output::plan::Reason,
};

/// Part of a sentence for users.
pub(crate) type ReasonDetail = Cow<'static, str>;

/// Permanent reasons by shape, each found once in a round.
#[derive(Default)]
pub(crate) struct PermanentReasons {
    by_shape: FxHashMap<WorkShape, Option<Reason>>,
}

impl PermanentReasons {
    /// Returns the permanent reason of a piece of work, if it has one.
    pub fn find(&mut self, state: &RoundState, work: WorkIx) -> Option<Reason> {
        let find_reason = || find_permanent_reason(state, work).map(|(reason, _)| reason);
        if state.work[work].has_node_list {
            return find_reason();
        }
        let stored = self.by_shape.entry(WorkShape::new(state, work));
        *stored.or_insert_with(find_reason)
    }
}

/// Finds a reason that does not change with time: no listed node exists, or none is large enough.
pub(crate) fn find_permanent_reason(
    state: &RoundState,
    work: WorkIx,
) -> Option<(Reason, ReasonDetail)> {
    let listed = state.work[work].has_node_list;
    if listed && permitted_nodes(state, work).next().is_none() {
        let constraints = state.work_record(work).constraints();
        let detail: ReasonDetail = if constraints.avoided.is_empty() {
            match constraints.nodes.len() {
                1 => "the one node of its list is not in its pool".into(),
                listed => format!("none of the {listed} nodes of its list is in its pool").into(),
            }
        } else {
            "its pool has no node that it may use".into()
        };
        return Some((Reason::NoListedMachine, detail));
    }
    if large_enough_nodes(state, work).next().is_none() {
        let detail = match find_missing_resource(state, work) {
            Some(name) => format!("no node it may use offers `{name}`").into(),
            None => "no node it may use is large enough".into(),
        };
        return Some((Reason::NoHostLargeEnough, detail));
    }
    None
}

/// Returns a resource that the work needs and none of its nodes has. It is a GPU, a container
/// engine, or a directory that no pool lists.
pub(crate) fn find_missing_resource<'b>(state: &'b RoundState, work: WorkIx) -> Option<&'b str> {
    let some_node_has = |has: &dyn Fn(&Size) -> bool| {
        state.nodes.indices().any(|node| {
            let pool = state.nodes[node].pool;
            pool.is_some_and(|pool| state.may_use(work, pool))
                && has(&state.node_record(node).node.capacity)
        })
    };
    if state.size(work).gpu_milli > 0 && !some_node_has(&|capacity| capacity.gpu_milli > 0) {
        return Some("gpu");
    }
    let needed = state.size(work).extras.iter();
    let mut needed = needed.filter(|(_, amount)| **amount > 0);
    let (name, _) =
        needed.find(|(name, _)| !some_node_has(&|capacity| capacity.extras.contains_key(*name)))?;
    Some(name)
}

/// Returns the nodes that the work may use. A block for this work alone is ignored, because it
/// ends.
fn permitted_nodes<'b>(state: &'b RoundState, work: WorkIx) -> impl Iterator<Item = NodeIx> + 'b {
    state.nodes.indices().filter(move |node| {
        let pool = state.nodes[*node].pool;
        let reachable = || pool.is_some_and(|pool| state.may_use(work, pool));
        let avoided = || state.avoids(work, *node) && reachable();
        state.could_use(work, *node) || avoided()
    })
}

/// Returns the nodes in pools of the work that could take one process if they were empty. With the
/// setting `count_what_fits`, node lists and all resources are checked, otherwise only quanta.
pub(crate) fn large_enough_nodes<'b>(
    state: &'b RoundState,
    work: WorkIx,
) -> impl Iterator<Item = NodeIx> + 'b {
    let work_state = &state.work[work];
    let checks_all_dimensions = state.settings.count_what_fits;
    state.nodes.indices().filter(move |node| {
        let node_state = &state.nodes[*node];
        let capacity = &state.node_record(*node).node.capacity;
        let is_listed = state.admits(work, *node) || state.avoids(work, *node);
        let fits_node = || is_listed && state.size(work).fits(capacity);
        node_state.quanta >= work_state.process_quanta
            && node_state
                .pool
                .is_some_and(|pool| state.may_use(work, pool))
            && (!checks_all_dimensions || fits_node())
    })
}
