//! Verification of requested grants. Work gets at most the processes that it lacks and that the
//! node has space for. The rest is refused.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    NodeSpace, Plan,
    plan::{Grant, external_planner_effects::Refusal},
    snapshot::{
        Node, Policy,
        external_planners::{PlannerResponse, RequestedGrant},
    },
};
use hayward_vocabulary::{NodeName, Quantum, Size, WorkId};

use super::{AcceptedGrant, RefusalDetail, Step, Steps};
use crate::{
    external_pool_trees::quantum_of,
    pool_view::{PoolView, WorkItem},
    response::MAX_STEPS,
};

/// Free space by node.
type FreeSpace<'a> = BTreeMap<&'a NodeName, NodeSpace>;

pub(super) fn verify(
    view: &mut PoolView,
    response: &PlannerResponse,
    plan: &Plan,
    steps: &mut Steps,
) {
    let mut free = free_space(view, response, plan);
    for (position, requested_grant) in response.grants.iter().enumerate() {
        let step = Step {
            pointer: format!("/grants/{position}"),
            subject: &requested_grant.work,
            node: Some(&requested_grant.node),
        };
        let work = match find_work(view, requested_grant) {
            Ok(work) => work,
            Err(refusal) => {
                steps.refuse(&step, refusal);
                continue;
            }
        };
        let result = find_node(view, requested_grant).and_then(|target| {
            let request = Request {
                position,
                processes: requested_grant.processes,
                work: &work,
                target,
            };
            grant_processes(view, &request, &mut free, steps)
        });
        if let Err(refusal) = result {
            steps.refuse_for(&work, &step, refusal);
        }
    }
}

/// Returns the free space of each node that the response names.
fn free_space<'a>(view: &PoolView<'a>, response: &PlannerResponse, plan: &Plan) -> FreeSpace<'a> {
    let node_names: BTreeSet<&str> = response.grants.iter().map(|it| it.node.as_str()).collect();
    let nodes = view
        .nodes()
        .filter(|(name, _)| node_names.contains(name.as_str()));
    let mut free: FreeSpace = nodes
        .map(|(name, node)| {
            let node_quanta = quantum_of(view.snapshot, &node.pool).quanta_of_node(&node.capacity);
            (name, NodeSpace::new(node_quanta, &node.capacity))
        })
        .collect();
    for allocation in view.snapshot.allocations.values() {
        if let Some(space) = free.get_mut(&allocation.node) {
            space.take(allocation.quanta, &allocation.size, &allocation.gpus);
        }
    }
    for grant in &plan.grants {
        if let Some(space) = free.get_mut(&grant.node) {
            space.take(grant.quanta, &grant.size, &grant.gpus);
        }
    }
    free
}

fn find_work(view: &PoolView, requested_grant: &RequestedGrant) -> Result<WorkId, RefusalDetail> {
    let Some((work, _)) = view
        .snapshot
        .demand
        .get_key_value(requested_grant.work.as_str())
    else {
        let detail = "unknown work, or work without missing processes";
        return Err(RefusalDetail::new(Refusal::UnknownWork, detail));
    };
    if !view.work.contains_key(work) {
        let detail = format!("it is not planned for in pool {}", view.top);
        return Err(RefusalDetail::new(Refusal::NotItsOwn, detail));
    }
    Ok(work.clone())
}

#[derive(Clone, Copy)]
struct Target<'a> {
    name: &'a NodeName,
    node: &'a Node,
}

fn find_node<'a>(
    view: &PoolView<'a>,
    requested_grant: &RequestedGrant,
) -> Result<Target<'a>, RefusalDetail> {
    let Some((name, node)) = view
        .snapshot
        .nodes
        .get_key_value(requested_grant.node.as_str())
    else {
        let detail = format!("there is no node {}", clip(&requested_grant.node));
        return Err(RefusalDetail::new(Refusal::UnknownNode, detail));
    };
    if view.trees.top_of_pool(&node.pool) != Some(view.top) {
        let detail = format!("node {name} is not in pool {}", view.top);
        return Err(RefusalDetail::new(Refusal::OutsidePool, detail));
    }
    if !node.is_schedulable() {
        let detail = format!("node {name} takes no new work");
        return Err(RefusalDetail::new(Refusal::NodeClosed, detail));
    }
    Ok(Target { name, node })
}

/// Returns the quanta and size of one process on this node.
fn process_size(quantum: &Quantum, item: &WorkItem, node: &Node) -> (u64, Size) {
    if item.class.policy == Policy::Reserve {
        (
            quantum.quanta_of_node(&node.capacity),
            node.capacity.clone(),
        )
    } else {
        (item.quanta, item.size.clone())
    }
}

fn clip(name: &str) -> String {
    crate::response::clip(name, super::MAX_NAME)
}

/// A requested grant of known work on a known node.
struct Request<'r, 'a> {
    /// Position in the response.
    position: usize,
    processes: u64,
    work: &'r WorkId,
    target: Target<'a>,
}

fn grant_processes<'a>(
    view: &mut PoolView<'a>,
    request: &Request<'_, 'a>,
    free: &mut FreeSpace<'a>,
    steps: &mut Steps,
) -> Result<(), RefusalDetail> {
    let (quantum, requested) = (view.quantum, request.processes);
    let name = request.target.name;
    let (Some(space), Some(item)) = (free.get_mut(name), view.work.get_mut(request.work)) else {
        let detail = "it cannot be granted";
        return Err(RefusalDetail::new(Refusal::NotAllowed, detail));
    };
    if !item.may_use_its_class() {
        let (user, class) = (&item.demand.user, item.class_name);
        let detail = format!("user {user} may not use class {class:?}");
        return Err(RefusalDetail::new(Refusal::NotAuthorised, detail));
    }
    let (quanta, size) = process_size(quantum, item, request.target.node);
    let missing = item.missing();
    let mut granted = 0;
    while granted < requested.min(missing) {
        if steps.grants.len() >= MAX_STEPS {
            let detail = format!("one answer places at most {MAX_STEPS} processes");
            return Err(RefusalDetail::new(Refusal::NotAllowed, detail));
        }
        if space.count_fitting(quanta, &size) == 0 {
            let detail = format!("node {name} has room for {granted} of {requested} processes");
            return Err(RefusalDetail::new(Refusal::NoRoom, detail));
        }
        let gpus = space.choose_gpus(size.gpu_milli);
        space.take(quanta, &size, &gpus);
        let grant = Grant {
            work: request.work.clone(),
            kind: item.demand.kind,
            user: item.demand.user.clone(),
            class: item.class_name.into(),
            node: name.clone(),
            quanta,
            size: size.clone(),
            fixed: item.class.policy != Policy::FairShare,
            gpus,
            // External planners have no queues.
            group: None,
        };
        steps.grants.push(AcceptedGrant {
            position: request.position,
            grant,
        });
        item.current += 1;
        granted += 1;
    }
    if requested > missing {
        let wanted = item.wanted();
        let detail = format!("{requested} processes where {missing} are missing to {wanted}");
        return Err(RefusalDetail::new(Refusal::NotWanted, detail));
    }
    Ok(())
}
