//! Room on the one node that an ask may use (10.4): guarantees do not count, priorities do. The
//! walk starts from what is free on the node, so nobody leaves who need not.

use std::cmp::Reverse;

use super::{
    tell,
    victims::{is_originator, is_willing},
};
use crate::{
    books::{Books, Why},
    dims::{Vector, add, share_a_type, take},
    reserve::{book, gangs},
    room::Yard,
    tree::ROOT,
};

pub(super) fn run(books: &mut Books, yard: &Yard) {
    for ask in books.aside.clone() {
        let it = &books.asks[ask];
        let waits = it.why == Some(Why::NoNode) && it.queued.gang.is_none();
        let Some(required) = it.queued.required_node.as_ref().filter(|_| waits) else {
            continue;
        };
        let Some(node) = books.nodes.find(required) else {
            continue;
        };
        let station = &books.nodes.stations[node];
        let possible = station.node.is_schedulable()
            && station.could_hold(books.vector(ask))
            && books.suits(ask, node);
        let reservation = books.kept.reservations.get(required);
        // Room that was cleared for somebody is theirs; a node that is merely kept is not.
        let taken = reservation.is_some_and(|it| it.cleared || it.work == *books.asks[ask].work)
            || gangs::is_cleared(books, node);
        if !possible || taken || books.kept.attempts.contains_key(books.asks[ask].work) {
            continue;
        }
        match victims(books, yard, (ask, node)) {
            None => {
                let (work, now) = (books.asks[ask].work.clone(), books.snapshot.now);
                books.kept.attempts.insert(work, now);
            }
            Some(victims) => {
                books.kept.reservations.remove(required);
                for victim in victims {
                    let detail = format!(
                        "work {} may run on node {required} and nowhere else",
                        books.asks[ask].work
                    );
                    tell(books, victim, (ask, detail));
                }
                books.asks[ask].why = Some(Why::Cleared { node });
                book(books, (ask, node), (1, true));
            }
        }
    }
}

fn victims(books: &Books, yard: &Yard, (ask, node): (usize, usize)) -> Option<Vec<usize>> {
    let vector = books.vector(ask);
    let it = &books.asks[ask];
    let seen = |queue: Option<usize>, priority: i32| {
        queue.map(|queue| books.tree.priority_below(ROOT, queue, priority))
    };
    let mine = seen(books.queue_of(ask), it.queued.priority)?;
    let mut candidates: Vec<(bool, bool, i32, usize)> = yard
        .on(node)
        .filter_map(|at| {
            let held = &books.held[at];
            let other = &books.asks[held.ask?];
            let priority = seen(held.queue, other.queued.priority)?;
            let may = other.app != it.app
                && !held.leaves
                && !held.allocation.fixed
                && other.queued.required_node.is_none()
                && priority <= mine
                && share_a_type(&held.vector, vector);
            let manner = (is_originator(books, at), !is_willing(books, at));
            may.then_some((manner.0, manner.1, priority, at))
        })
        .collect();
    candidates.sort_by_key(|(originator, unwilling, priority, at)| {
        let held = &books.held[*at];
        let newer = Reverse((held.allocation.granted_at, held.id));
        (
            *originator,
            *unwilling,
            *priority,
            newer,
            held.allocation.order,
        )
    });
    let station = &books.nodes.stations[node];
    let mut used = station.used.clone();
    take(&mut used, &station.going);
    let fits = |used: &Vector| {
        let mut with = used.clone();
        add(&mut with, vector);
        with.iter()
            .zip(&station.capacity)
            .all(|(with, most)| with <= most)
    };
    let mut chosen = Vec::new();
    for (.., at) in candidates {
        if fits(&used) {
            break;
        }
        take(&mut used, &books.held[at].vector);
        chosen.push(at);
    }
    fits(&used).then_some(chosen)
}
