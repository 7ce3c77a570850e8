//! Merges the results of a key that one request names twice: one result and one history entry per
//! key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hayward_blocklist_api::{BlockEvent, BlockOutcome};

use crate::model::{AddResult, Key};
use crate::store::ChangeRow;

/// One result per key, at the position of its first mention.
pub(super) fn merge_results(done: Vec<(&Key, AddResult)>) -> Vec<AddResult> {
    let outcomes = [
        BlockOutcome::Added,
        BlockOutcome::Upgraded,
        BlockOutcome::Merged,
    ];
    let keyed = done.into_iter().map(|(key, done)| (key.published(), done));
    merge_by_key(keyed, |first: &mut AddResult, next| {
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

/// One history entry per key among the rows from `first` on.
pub(super) fn merge_changes(changes: &mut Vec<ChangeRow>, first: usize) {
    let events = [BlockEvent::Added, BlockEvent::Upgraded, BlockEvent::Merged];
    let added = changes.split_off(first);
    let keyed = added.into_iter().map(|row| (row.item.key(), row));
    changes.extend(merge_by_key(keyed, |first: &mut ChangeRow, next| {
        first.event = stronger(&events, first.event, next.event);
        first.item = next.item;
    }));
}

fn merge_by_key<T>(
    all: impl Iterator<Item = (String, T)>,
    mut merge: impl FnMut(&mut T, T),
) -> Vec<T> {
    let mut merged: Vec<T> = Vec::new();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for (key, next) in all {
        match positions.entry(key) {
            Entry::Occupied(position) => merge(&mut merged[*position.get()], next),
            Entry::Vacant(position) => {
                position.insert(merged.len());
                merged.push(next);
            }
        }
    }
    merged
}

/// The one that comes first in `order`; a value not in `order` is the weakest.
fn stronger<T: Copy + PartialEq>(order: &[T], a: T, b: T) -> T {
    let rank = |it: T| order.iter().position(|known| *known == it);
    match (rank(a), rank(b)) {
        (Some(of_a), Some(of_b)) if of_b < of_a => b,
        (None, Some(_)) => b,
        _ => a,
    }
}
