//! A request may name a key several times. This module merges the results and the history entries
//! of such a key, so that the request has one of each per key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hayward_blocklist_api::{BlockEvent, BlockOutcome};

use crate::model::{AddResult, Key};
use crate::store::ChangeRow;

/// Merges results to one per key, in order of the first result of each key.
pub(super) fn merge_results(results: Vec<(&Key, AddResult)>) -> Vec<AddResult> {
    // The strongest outcome of a key comes first.
    let outcomes = [
        BlockOutcome::Added,
        BlockOutcome::Upgraded,
        BlockOutcome::Merged,
    ];
    let keyed = results
        .into_iter()
        .map(|(key, result)| (key.publication_key(), result));
    merge_by_key(keyed, |first: &mut AddResult, next| {
        first.outcome = first_by_order(&outcomes, first.outcome, next.outcome);
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

/// Merges the history rows from index `start` to one per key.
pub(super) fn merge_changes(changes: &mut Vec<ChangeRow>, start: usize) {
    let events = [BlockEvent::Added, BlockEvent::Upgraded, BlockEvent::Merged];
    let added = changes.split_off(start);
    let keyed = added.into_iter().map(|row| (row.item.key(), row));
    changes.extend(merge_by_key(keyed, |first: &mut ChangeRow, next| {
        first.event = first_by_order(&events, first.event, next.event);
        first.item = next.item;
    }));
}

/// Merges values with equal keys, in order of the first value of each key.
fn merge_by_key<T>(
    keyed: impl Iterator<Item = (String, T)>,
    mut merge: impl FnMut(&mut T, T),
) -> Vec<T> {
    let mut merged: Vec<T> = Vec::new();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for (key, next) in keyed {
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

/// Returns the value that comes first in `order`. A value that is not in `order` comes last.
fn first_by_order<T: Copy + PartialEq>(order: &[T], first: T, second: T) -> T {
    let rank = |wanted: T| {
        let position = order.iter().position(|value| *value == wanted);
        position.unwrap_or(order.len())
    };
    if rank(second) < rank(first) {
        second
    } else {
        first
    }
}
