//! Verification of grants: as many processes as the work lacks and the node has space for.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    NodeSpace, Plan,
    plan::{Grant, outside::Refusal},
    snapshot::{
        Node, Policy,
        outside::{Answer, Place},
    },
};
use hayward_vocabulary::{NodeName, WorkId};

use super::{Step, Steps};
use crate::{pool_view::PoolView, response::MAX_STEPS, trees::quantum_of};

type Why = (Refusal, String);
type Rooms<'a> = BTreeMap<&'a NodeName, NodeSpace>;

pub(super) fn verify(view: &mut PoolView, (answer, plan): (&Answer, &Plan), steps: &mut Steps) {
    let mut rooms = rooms(view, answer, plan);
    for (at, place) in answer.grants.iter().enumerate() {
        let step = Step {
            at: format!("/grants/{at}"),
            what: &place.work,
            node: Some(&place.node),
        };
        let (work, target) = match resolve(view, place) {
            Ok(found) => found,
            Err((work, why)) => {
                match work {
                    Some(work) => steps.refuse_for(&work, &step, why),
                    None => steps.refuse(&step, why),
                }
                continue;
            }
        };
        let placed = place_all(view, (at, place), (&work, target), (&mut rooms, steps));
        if let Err(why) = placed {
            steps.refuse_for(&work, &step, why);
        }
    }
}

/// Free space of each node that the response names.
fn rooms<'a>(view: &PoolView<'a>, answer: &Answer, plan: &Plan) -> Rooms<'a> {
    let named: BTreeSet<&str> = answer.grants.iter().map(|it| it.node.as_str()).collect();
    let nodes = view
        .nodes()
        .filter(|(name, _)| named.contains(name.as_str()));
    let mut rooms: Rooms = nodes
        .map(|(name, node)| {
            let order = quantum_of(view.snapshot, &node.pool).node_order(&node.capacity);
            (name, NodeSpace::new(order, &node.capacity))
        })
        .collect();
    for held in view.snapshot.allocations.values() {
        if let Some(room) = rooms.get_mut(&held.node) {
            room.take(held.order, &held.size, &held.gpus);
        }
    }
    for grant in &plan.grants {
        if let Some(room) = rooms.get_mut(&grant.node) {
            room.take(grant.order, &grant.size, &grant.gpus);
        }
    }
    rooms
}

type Target<'a> = (&'a NodeName, &'a Node);

fn resolve<'a>(
    view: &PoolView<'a>,
    place: &Place,
) -> Result<(WorkId, Target<'a>), (Option<WorkId>, Why)> {
    let Some((work, _)) = view.snapshot.demand.get_key_value(place.work.as_str()) else {
        let detail = "unknown work, or work without missing processes".to_owned();
        return Err((None, (Refusal::UnknownWork, detail)));
    };
    if !view.work.contains_key(work) {
        let detail = format!("it is not planned for in pool {}", view.top);
        return Err((None, (Refusal::NotItsOwn, detail)));
    }
    let own = |why: Why| (Some(work.clone()), why);
    let Some(target) = view.snapshot.nodes.get_key_value(place.node.as_str()) else {
        let detail = format!("there is no node {}", clip(&place.node));
        return Err(own((Refusal::UnknownNode, detail)));
    };
    if view.trees.of_pool(&target.1.pool) != Some(view.top) {
        let detail = format!("node {} is not in pool {}", target.0, view.top);
        return Err(own((Refusal::OutsidePool, detail)));
    }
    if !target.1.is_schedulable() {
        let detail = format!("node {} takes no new work", target.0);
        return Err(own((Refusal::NodeClosed, detail)));
    }
    Ok((work.clone(), target))
}

fn clip(name: &str) -> String {
    crate::response::clip(name, super::MAX_NAME)
}

fn place_all<'a>(
    view: &mut PoolView<'a>,
    (at, place): (usize, &Place),
    (work, (name, node)): (&WorkId, Target<'a>),
    (rooms, steps): (&mut Rooms<'a>, &mut Steps),
) -> Result<(), Why> {
    let (quantum, requested) = (view.quantum, place.processes);
    let (Some(room), Some(item)) = (rooms.get_mut(name), view.work.get_mut(work)) else {
        return Err((Refusal::NotAllowed, "it cannot be placed".to_owned()));
    };
    if !item.may_use_its_class() {
        let (user, class) = (&item.demand.user, item.class_name);
        let detail = format!("user {user} may not use class {class:?}");
        return Err((Refusal::NotAuthorised, detail));
    }
    let (order, size) = if item.class.policy == Policy::Reserve {
        (quantum.node_order(&node.capacity), node.capacity.clone())
    } else {
        (item.order, item.size.clone())
    };
    let missing = item.missing();
    let mut placed = 0;
    while placed < requested.min(missing) {
        if steps.grants.len() >= MAX_STEPS {
            let detail = format!("one answer places at most {MAX_STEPS} processes");
            return Err((Refusal::NotAllowed, detail));
        }
        if room.fitting(order, &size) == 0 {
            let detail = format!("node {name} has room for {placed} of {requested} processes");
            return Err((Refusal::NoRoom, detail));
        }
        let gpus = room.choose_gpus(size.gpu_milli);
        room.take(order, &size, &gpus);
        let grant = Grant {
            work: work.clone(),
            kind: item.demand.kind,
            user: item.demand.user.clone(),
            class: item.class_name.into(),
            node: name.clone(),
            order,
            size: size.clone(),
            fixed: item.class.policy != Policy::FairShare,
            gpus,
            // External planners have no queues.
            group: None,
        };
        steps.grants.push((at, grant));
        item.has += 1;
        placed += 1;
    }
    if requested > missing {
        let wanted = item.wanted();
        let detail = format!("{requested} processes where {missing} are missing to {wanted}");
        return Err((Refusal::NotWanted, detail));
    }
    Ok(())
}
