//! Gangs, all or nothing (17.1): every part gets the processes without which the gang is of no use,
//! each level of queues, users and groups and the nodes agreeing, or none gets any. So two gangs
//! that each fit alone never wait for each other with a part of the room in hand.

use std::cmp::Reverse;

use crate::{
    books::{Books, Why},
    cycle::seat,
};

/// Asks of the same gang that are neither served nor aside.
pub(crate) fn parts(books: &Books, ask: usize) -> Vec<usize> {
    let it = &books.asks[ask];
    let name = it.queued.gang.as_ref().map(|gang| &gang.name);
    let all = books.apps[it.app].asks.iter().copied();
    all.filter(|at| {
        let part = &books.asks[*at];
        let same = part.queued.gang.as_ref().map(|gang| &gang.name) == name;
        same && part.why.is_none() && part.missing() > 0
    })
    .collect()
}

/// Places what the gang lacks, or nothing.
///
/// Large parts go first: what is left between them can still take the small ones. Where the sort
/// policy of the nodes scatters so much that the rest does not fit, parts are put where they leave
/// the least behind.
pub(crate) fn place(books: &mut Books, ask: usize) -> Result<(), Why> {
    let mut parts = parts(books, ask);
    parts.retain(|part| books.asks[*part].gang_lacks() > 0);
    parts.sort_by_key(|part| Reverse(bulk(books, *part)));
    let app = books.asks[ask].app;
    let of = parts
        .iter()
        .map(|part| books.asks[*part].gang_lacks())
        .sum();
    let starts = !books.apps[app].running;
    let before = books.placed.len();
    let mut best = (0, Why::NoNode);
    for tightly in [false, true] {
        let failure = attempt(books, &parts, tightly);
        let Some(why) = failure else {
            return Ok(());
        };
        let fit = (books.placed.len() - before) as u64;
        books.undo(before, starts);
        if fit >= best.0 {
            best = (fit, why);
        }
        if best.1 != Why::NoNode {
            break;
        }
    }
    let (fit, because) = best;
    let because = Some(Box::new(because));
    Err(Why::Gang { fit, of, because })
}

fn attempt(books: &mut Books, parts: &[usize], tightly: bool) -> Option<Why> {
    for part in parts {
        for _ in 0..books.asks[*part].gang_lacks() {
            let node = if tightly {
                books.may_hold(*part).and_then(|()| tightest(books, *part))
            } else {
                seat(books, *part)
            };
            match node {
                Ok(node) => books.place(*part, node),
                Err(why) => return Some(why),
            }
        }
    }
    None
}

/// How much of an average node it takes, by its largest dimension.
fn bulk(books: &Books, part: usize) -> u64 {
    const PARTS: u128 = 1 << 20;
    let vector = books.vector(part);
    let shares = vector
        .iter()
        .zip(&books.whole)
        .filter(|(_, whole)| **whole > 0);
    let shares = shares.map(|(ask, whole)| u128::from(*ask) * PARTS / u128::from(*whole));
    u64::try_from(shares.max().unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The node where the least is left of what there is least of.
fn tightest(books: &Books, part: usize) -> Result<usize, Why> {
    let vector = books.vector(part);
    let fits = |at: &usize| {
        let station = &books.nodes.stations[*at];
        let open = station.node.is_schedulable() && !station.reserved;
        open && station.fits(vector) && books.suits(part, *at)
    };
    let left = |at: &usize| {
        let station = &books.nodes.stations[*at];
        let asked = vector.iter().enumerate().filter(|(_, ask)| **ask > 0);
        let left = asked.map(|(dim, ask)| {
            (station.capacity[dim] - station.used[dim] - ask).saturating_mul(1_000) / ask.max(&1)
        });
        (left.min().unwrap_or(0), *at)
    };
    let all = 0..books.nodes.stations.len();
    all.filter(fits).min_by_key(left).ok_or(Why::NoNode)
}
