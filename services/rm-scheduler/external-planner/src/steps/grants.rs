//! Grants: as many processes of a step as its work wants and its node has room for.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Plan, Room,
    plan::{Grant, outside::Refusal},
    snapshot::{
        Node, Policy,
        outside::{Answer, Place},
    },
};
use hayward_vocabulary::{NodeName, WorkId};

use super::{Step, Steps};
use crate::{pool_view::Book, response::MOST_STEPS, trees::quantum_of};

type Why = (Refusal, String);
type Rooms<'a> = BTreeMap<&'a NodeName, Room>;

pub(super) fn look_at(book: &mut Book, (answer, plan): (&Answer, &Plan), steps: &mut Steps) {
    let mut rooms = rooms(book, answer, plan);
    for (at, place) in answer.grants.iter().enumerate() {
        let step = Step {
            at: format!("/grants/{at}"),
            what: &place.work,
            node: Some(&place.node),
        };
        let (work, target) = match meant(book, place) {
            Ok(found) => found,
            Err((work, why)) => {
                match work {
                    Some(work) => steps.refuse_for(&work, &step, why),
                    None => steps.refuse(&step, why),
                }
                continue;
            }
        };
        let placed = place_all(book, (at, place), (&work, target), (&mut rooms, steps));
        if let Err(why) = placed {
            steps.refuse_for(&work, &step, why);
        }
    }
}

/// What is free on each node that the answer names.
fn rooms<'a>(book: &Book<'a>, answer: &Answer, plan: &Plan) -> Rooms<'a> {
    let named: BTreeSet<&str> = answer.grants.iter().map(|it| it.node.as_str()).collect();
    let nodes = book
        .nodes()
        .filter(|(name, _)| named.contains(name.as_str()));
    let mut rooms: Rooms = nodes
        .map(|(name, node)| {
            let order = quantum_of(book.snapshot, &node.pool).node_order(&node.capacity);
            (name, Room::new(order, &node.capacity))
        })
        .collect();
    for held in book.snapshot.allocations.values() {
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

fn meant<'a>(
    book: &Book<'a>,
    place: &Place,
) -> Result<(WorkId, Target<'a>), (Option<WorkId>, Why)> {
    let Some((work, _)) = book.snapshot.demand.get_key_value(place.work.as_str()) else {
        let detail = "no such work asks for anything".to_owned();
        return Err((None, (Refusal::UnknownWork, detail)));
    };
    if !book.work.contains_key(work) {
        let detail = format!("it is not planned for in pool {}", book.top);
        return Err((None, (Refusal::NotItsOwn, detail)));
    }
    let own = |why: Why| (Some(work.clone()), why);
    let Some(target) = book.snapshot.nodes.get_key_value(place.node.as_str()) else {
        let detail = format!("there is no node {}", clip(&place.node));
        return Err(own((Refusal::UnknownNode, detail)));
    };
    if book.trees.of_pool(&target.1.pool) != Some(book.top) {
        let detail = format!("node {} is not in pool {}", target.0, book.top);
        return Err(own((Refusal::OutsidePool, detail)));
    }
    if !target.1.is_schedulable() {
        let detail = format!("node {} takes no new work", target.0);
        return Err(own((Refusal::NodeClosed, detail)));
    }
    Ok((work.clone(), target))
}

fn clip(name: &str) -> String {
    crate::response::clipped(name, super::NAME)
}

fn place_all<'a>(
    book: &mut Book<'a>,
    (at, place): (usize, &Place),
    (work, (name, node)): (&WorkId, Target<'a>),
    (rooms, steps): (&mut Rooms<'a>, &mut Steps),
) -> Result<(), Why> {
    let (quantum, wished) = (book.quantum, place.processes);
    let (Some(room), Some(wish)) = (rooms.get_mut(name), book.work.get_mut(work)) else {
        return Err((Refusal::NotAllowed, "it cannot be placed".to_owned()));
    };
    if !wish.may_use_its_class() {
        let (user, class) = (&wish.demand.user, wish.class_name);
        let detail = format!("user {user} may not use class {class:?}");
        return Err((Refusal::NotAuthorised, detail));
    }
    let (order, size) = if wish.class.policy == Policy::Reserve {
        (quantum.node_order(&node.capacity), node.capacity.clone())
    } else {
        (wish.order, wish.size.clone())
    };
    let missing = wish.missing();
    let mut placed = 0;
    while placed < wished.min(missing) {
        if steps.grants.len() >= MOST_STEPS {
            let detail = format!("one answer places at most {MOST_STEPS} processes");
            return Err((Refusal::NotAllowed, detail));
        }
        if room.fitting(order, &size) == 0 {
            let detail = format!("node {name} has room for {placed} of {wished} processes");
            return Err((Refusal::NoRoom, detail));
        }
        let gpus = room.choose_gpus(size.gpu_milli);
        room.take(order, &size, &gpus);
        let grant = Grant {
            work: work.clone(),
            kind: wish.demand.kind,
            user: wish.demand.user.clone(),
            class: wish.class_name.into(),
            node: name.clone(),
            order,
            size: size.clone(),
            fixed: wish.class.policy != Policy::FairShare,
            gpus,
            // There are no queues here.
            group: None,
        };
        steps.grants.push((at, grant));
        wish.has += 1;
        placed += 1;
    }
    if wished > missing {
        let wanted = wish.wanted();
        let detail = format!("{wished} processes where {missing} are missing to {wanted}");
        return Err((Refusal::NotWanted, detail));
    }
    Ok(())
}
