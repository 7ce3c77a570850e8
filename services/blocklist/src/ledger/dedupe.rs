//! A key that one request names twice is merged in order, and reported once with what came of it in
//! the end (5.3): one answer, and one line in the history.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hayward_blocklist_api::{BlockEvent, BlockOutcome};

use crate::model::{Done, Key};
use crate::store::ChangeRow;

/// One answer for each key, where it was named first.
pub(super) fn answers(done: Vec<(&Key, Done)>) -> Vec<Done> {
    let outcomes = [
        BlockOutcome::Added,
        BlockOutcome::Upgraded,
        BlockOutcome::Merged,
    ];
    let keyed = done.into_iter().map(|(key, done)| (key.published(), done));
    once(keyed, |first: &mut Done, next| {
        first.outcome = stronger(&outcomes, first.outcome, next.outcome);
        first.reason = match first.outcome {
            BlockOutcome::None => first.reason.or(next.reason),
            _ => None,
        };
        first.item = next.item;
        for warning in next.warnings {
            if !first.warnings.contains(&warning) {
                first.warnings.push(warning);
            }
        }
    })
}

/// One line for each key of what a request changed: the rows from `first` on.
pub(super) fn lines(changes: &mut Vec<ChangeRow>, first: usize) {
    let events = [BlockEvent::Added, BlockEvent::Upgraded, BlockEvent::Merged];
    let told = changes.split_off(first);
    let keyed = told.into_iter().map(|row| (row.item.key(), row));
    changes.extend(once(keyed, |first: &mut ChangeRow, next| {
        first.event = stronger(&events, first.event, next.event);
        first.item = next.item;
    }));
}

fn once<T>(all: impl Iterator<Item = (String, T)>, mut merge: impl FnMut(&mut T, T)) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (key, next) in all {
        match places.entry(key) {
            Entry::Occupied(place) => merge(&mut kept[*place.get()], next),
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(next);
            }
        }
    }
    kept
}

/// Whichever stands first in `order`; what is not in it is weakest.
fn stronger<T: Copy + PartialEq>(order: &[T], a: T, b: T) -> T {
    let rank = |it: T| order.iter().position(|known| *known == it);
    match (rank(a), rank(b)) {
        (Some(of_a), Some(of_b)) if of_b < of_a => b,
        (None, Some(_)) => b,
        _ => a,
    }
}
