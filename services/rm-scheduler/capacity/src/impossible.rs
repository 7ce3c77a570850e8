//! Gangs that can never start, because they exceed their queue, the limit of their user or all
//! nodes. The answer has the largest number of processes that could start.
//!
//! Only certain contradictions are found. Each part is tested on its own, and all parts together
//! against the sum of the nodes. Packings of mixed parts are not tried.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::plan::QuotaNumbers;

use crate::{
    amount::amount_text,
    resource_vec::{Sparse, add},
    round_state::{GangNeeds, PartNeeds, RoundState},
};

/// Why a gang can never start.
pub(crate) struct Impossible {
    /// The exceeded limit and the feasible number, as a sentence.
    pub detail: String,
    pub quota: Option<QuotaNumbers>,
    /// Number of processes that could start.
    feasible: u64,
}

/// Returns the exceeded limit that allows the fewest processes, or `None` if the gang may start one
/// day.
pub(crate) fn impossible_gang(round: &RoundState, item: usize) -> Option<Impossible> {
    let it = &round.items[item];
    let app = &round.apps[it.app];
    it.queued.gang.as_ref()?;
    let needs = GangNeeds::new(round, round.gang_parts(item));
    let limits = Limits {
        round,
        needs: &needs,
    };
    let path = app.queue.as_ref().ok().copied();
    let path = path.into_iter().flat_map(|queue| round.tree.path(queue));
    let queues = path.filter_map(|at| {
        let queue_state = &round.tree.entries[at];
        limits.over(&queue_state.max, &format!("queue {}", queue_state.path))
    });
    let gates = app.gates.iter().filter_map(|gate| {
        let gate = &round.gates.gates[*gate];
        limits.over(&gate.max, &gate.owner.to_string())
    });
    let all: Sparse = round.whole.iter().map(|it| Some(*it)).collect();
    let pool = limits.over(&all, "its pool with all nodes");
    let nodes = needs.parts.iter().filter_map(|part| limits.nodes(part));
    let named = named(round, &needs);
    let found = queues.chain(gates).chain(pool).chain(nodes).chain(named);
    found.min_by_key(|impossible| impossible.feasible)
}

struct Limits<'b, 'a> {
    round: &'b RoundState<'a>,
    needs: &'b GangNeeds<'b>,
}

impl Limits<'_, '_> {
    /// Returns a resource that the gang needs more of than the limit allows.
    fn over(&self, max: &Sparse, owner: &str) -> Option<Impossible> {
        let over = self.needs.exceeded(max)?;
        let resource = match self.round.dims.name(over.dim) {
            "" => "quanta",
            name => name,
        };
        let (feasible, all) = (over.feasible, self.needs.members());
        let (needed, most) = (
            amount_text(resource, over.needed),
            amount_text(resource, over.limit),
        );
        let detail = format!(
            "it needs {needed} {resource} at once, and {owner} may have {most}: it can never \
             start; {feasible} of the {all} processes could"
        );
        Some(Impossible {
            detail,
            feasible,
            quota: Some(QuotaNumbers {
                limit: over.limit,
                used: 0,
                needed: over.needed,
            }),
        })
    }

    /// Tests one part alone on all its allowed nodes, as if they were empty.
    fn nodes(&self, part: &PartNeeds) -> Option<Impossible> {
        let node_states = &self.round.nodes.node_states;
        let sum = |nodes: &mut dyn Iterator<Item = usize>| {
            let fit = nodes.map(|node| node_states[node].capacity_for(part.vector));
            fit.fold(0, u64::saturating_add)
        };
        let named = self.round.candidates(part.item);
        let (fit, nodes) = if let Some(few) = named {
            let fit = sum(&mut few.iter().copied());
            (fit, format!("the {} nodes it may use", few.len()))
        } else {
            let shape = &self.round.shapes[self.round.items[part.item].shape];
            let fit = *shape.most.get_or_init(|| sum(&mut (0..node_states.len())));
            (fit, format!("{} nodes", node_states.len()))
        };
        (fit < part.least).then(|| Impossible {
            detail: format!(
                "{} processes of one size are needed at once, and {nodes} have room for {fit} \
                 when they are empty: it can never start; {fit} could",
                part.least
            ),
            quota: None,
            feasible: fit,
        })
    }
}

/// Tests all parts that name nodes, together on those nodes.
fn named(round: &RoundState, needs: &GangNeeds) -> Option<Impossible> {
    let mut nodes: BTreeSet<usize> = BTreeSet::new();
    let mut items = Vec::new();
    for part in &needs.parts {
        if let Some(few) = round.candidates(part.item) {
            nodes.extend(few);
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
    let capacity: Sparse = capacity.into_iter().map(Some).collect();
    let needs = &GangNeeds::new(round, items.into_iter());
    Limits { round, needs }.over(&capacity, "the nodes that its parts name")
}
