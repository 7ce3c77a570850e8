//! Room on the one node that an ask may use (10.4): guarantees do not count, priorities do. The
//! walk starts from what is free on the node, so nobody leaves who need not.

use std::cmp::Reverse;

use super::{
    tell,
    victims::{is_originator, is_willing, needed},
};
use crate::{
    future_nodes::{Room, Yard},
    reserve::{book_cleared, gangs},
    resource_vec::share_a_type,
    round_state::{Books, Why},
    tree::ROOT,
};

pub(super) fn run(books: &mut Books, yard: &Yard) {
    for ask in books.aside.clone() {
        let it = &books.asks[ask];
        let waits = it.why == Some(Why::NoNode) && !it.starts_whole();
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
        // Quota may have been promised to others since it was looked at.
        let may = books.may_run(books.asks[ask].app).is_ok() && books.may_hold(ask).is_ok();
        if !possible || !may || taken || books.kept.attempts.contains_key(books.asks[ask].work) {
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
                book_cleared(books, (ask, node));
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
            let owner = held.ask?;
            let other = &books.asks[owner];
            let priority = seen(held.queue, other.queued.priority)?;
            let may = other.app != it.app
                && !books.is_of_a_cleared_gang(owner)
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
    let soon = Room::soon(books, yard, node);
    let fits_without = |victims: &[usize]| {
        let mut room = soon.clone();
        for at in victims {
            room.free(books, *at);
        }
        room.fits(vector)
    };
    let mut chosen = Vec::new();
    for (.., at) in candidates {
        if fits_without(&chosen) {
            break;
        }
        chosen.push(at);
    }
    chosen.reverse();
    fits_without(&chosen).then(|| needed(chosen, fits_without))
}
