//! Gangs that can never start, because they exceed their queue, the limit of their user or all
//! nodes. The result has the largest number of processes that could start.
//!
//! Only certain contradictions are found. Each part is tested on its own, and all parts together
//! against the sum of the nodes. Packings of mixed parts are not tried.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::plan::QuotaNumbers;

use crate::{
    amount::amount_text,
    resource_vec::{LimitVector, add},
    round_state::{GangNeeds, PartNeeds, RoundState},
};

/// Why a gang can never start.
pub(crate) struct ImpossibleGang {
    /// The exceeded limit and the feasible number, as a sentence.
    pub detail: String,
    pub quota: Option<QuotaNumbers>,
    /// Number of processes that could start.
    feasible: u64,
}

/// Returns the exceeded limit that allows the fewest processes, or `None` if the gang may start
/// later.
pub(crate) fn explain_impossible_gang(round: &RoundState, item: usize) -> Option<ImpossibleGang> {
    let work_item = &round.items[item];
    let app = &round.apps[work_item.app];
    work_item.queued.gang.as_ref()?;
    let needs = GangNeeds::new(round, round.gang_parts(item));
    let limit_check = LimitCheck {
        round,
        needs: &needs,
    };
    let path = app.queue.as_ref().ok().copied();
    let path = path.into_iter().flat_map(|queue| round.tree.path(queue));
    let queues = path.filter_map(|index| {
        let queue_state = &round.tree.entries[index];
        limit_check.check_limit(&queue_state.max, &format!("queue {}", queue_state.path))
    });
    let owner_limits = app.owner_limits.iter().filter_map(|owner_limit| {
        let owner_limit = &round.owner_limits.entries[*owner_limit];
        limit_check.check_limit(&owner_limit.max, &owner_limit.owner.to_string())
    });
    let total_capacity: LimitVector = round
        .total_capacity
        .iter()
        .map(|amount| Some(*amount))
        .collect();
    let pool = limit_check.check_limit(&total_capacity, "its pool with all nodes");
    let nodes = needs
        .parts
        .iter()
        .filter_map(|part| limit_check.check_nodes(part));
    let named_nodes = check_named_nodes(round, &needs);
    let contradictions = queues
        .chain(owner_limits)
        .chain(pool)
        .chain(nodes)
        .chain(named_nodes);
    contradictions.min_by_key(|gang| gang.feasible)
}

/// Compares the needs of one gang with limits.
struct LimitCheck<'b, 'a> {
    round: &'b RoundState<'a>,
    needs: &'b GangNeeds<'b>,
}

impl LimitCheck<'_, '_> {
    /// Returns a contradiction if the gang needs more of a resource than the limit allows.
    fn check_limit(&self, max: &LimitVector, owner: &str) -> Option<ImpossibleGang> {
        let exceeded = self.needs.find_exceeded(max)?;
        let resource = match self.round.dims.name(exceeded.dim) {
            "" => "quanta",
            name => name,
        };
        let (feasible, processes) = (exceeded.feasible, self.needs.count_processes());
        let (needed, limit) = (
            amount_text(resource, exceeded.needed),
            amount_text(resource, exceeded.limit),
        );
        let detail = format!(
            "it needs {needed} {resource} at once, and {owner} may have {limit}: it can never \
             start; {feasible} of the {processes} processes could"
        );
        Some(ImpossibleGang {
            detail,
            feasible,
            quota: Some(QuotaNumbers {
                limit: exceeded.limit,
                used: 0,
                needed: exceeded.needed,
            }),
        })
    }

    /// Tests one part alone on all its allowed nodes, as if they were empty.
    fn check_nodes(&self, part: &PartNeeds) -> Option<ImpossibleGang> {
        let node_states = &self.round.nodes.node_states;
        let count_fitting = |nodes: &mut dyn Iterator<Item = usize>| {
            let fitting = nodes.map(|node| node_states[node].capacity_for(part.vector));
            fitting.fold(0, u64::saturating_add)
        };
        let allowed = self.round.candidates(part.item);
        let (fitting, nodes) = if let Some(allowed_nodes) = allowed {
            let fitting = count_fitting(&mut allowed_nodes.iter().copied());
            (
                fitting,
                format!("the {} nodes it may use", allowed_nodes.len()),
            )
        } else {
            let shape = &self.round.shapes[self.round.items[part.item].shape];
            let fitting = *shape
                .max_processes
                .get_or_init(|| count_fitting(&mut (0..node_states.len())));
            (fitting, format!("{} nodes", node_states.len()))
        };
        (fitting < part.min_processes).then(|| ImpossibleGang {
            detail: format!(
                "{} processes of one size are needed at once, and {nodes} have room for {fitting} \
                 when they are empty: it can never start; {fitting} could",
                part.min_processes
            ),
            quota: None,
            feasible: fitting,
        })
    }
}

/// Compares the sum of all parts that name nodes with the sum of those nodes.
fn check_named_nodes(round: &RoundState, needs: &GangNeeds) -> Option<ImpossibleGang> {
    let mut nodes: BTreeSet<usize> = BTreeSet::new();
    let mut items = Vec::new();
    for part in &needs.parts {
        if let Some(allowed_nodes) = round.candidates(part.item) {
            nodes.extend(allowed_nodes);
            items.push(part.item);
        }
    }
    if items.is_empty() {
        return None;
    }
    let mut capacity = round.dims.zero();
    for node in nodes {
        add(&mut capacity, &round.nodes.node_states[node].capacity);
    }
    let capacity: LimitVector = capacity.into_iter().map(Some).collect();
    let needs = &GangNeeds::new(round, items.into_iter());
    LimitCheck { round, needs }.check_limit(&capacity, "the nodes that its parts name")
}
