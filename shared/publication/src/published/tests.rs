//! Properties of a publication for any history, readers and pruning. All readers reach the same
//! end state and see whole transactions. They never go backwards. Delta and full updates are
//! equivalent.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{Change, Cursor, Followed, Update};

/// One transaction: each key is set to a number, or removed.
type Transaction = Vec<(u8, Option<u32>)>;

fn raw(number: u32) -> Arc<RawValue> {
    RawValue::from_string(number.to_string())
        .expect("a number is JSON")
        .into()
}

fn update(delta: Delta, revision: u64) -> Update<u32> {
    Update {
        cursor: Cursor {
            lineage: Uuid::nil(),
            revision,
        }
        .to_string(),
        full: delta.full,
        changed: delta
            .changed
            .into_iter()
            .map(|(key, body)| (key.to_string(), body.get().parse().expect("a number")))
            .collect(),
        removed: delta.removed.iter().map(ToString::to_string).collect(),
    }
}

fn entries(reader: &Followed<u32>) -> BTreeMap<String, u32> {
    reader
        .iter()
        .map(|(key, value)| (key.clone(), *value))
        .collect()
}

/// One step of a history. The eager reader reads in every step.
#[derive(Debug, Clone)]
struct Step {
    transaction: Transaction,
    slow_reader_reads: bool,
    slow_reader_loses_cursor: bool,
    prunes_removals: bool,
}

fn histories() -> impl Strategy<Value = Vec<Step>> {
    let transaction = prop::collection::vec((0..12_u8, prop::option::of(0..4_u32)), 0..6);
    let rarely = || prop::bool::weighted(0.1);
    let step = (transaction, any::<bool>(), rarely(), rarely()).prop_map(
        |(transaction, slow_reader_reads, prunes_removals, slow_reader_loses_cursor)| Step {
            transaction,
            slow_reader_reads,
            slow_reader_loses_cursor,
            prunes_removals,
        },
    );
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn every_reader_ends_with_the_state_of_the_writer(history in histories()) {
        let mut published = Published::default();
        let mut expected: BTreeMap<String, u32> = BTreeMap::new();
        let mut snapshots = vec![expected.clone()];
        let (mut eager, mut slow) = (Followed::default(), Followed::default());
        let (mut eager_revision, mut slow_revision): (Option<u64>, Option<u64>) = (None, None);
        let mut revision = 0;
        for step in history {
            revision += 1;
            for (key, value) in step.transaction {
                let key = format!("k{key}");
                published.set("", &key, revision, value.map(raw));
                match value {
                    Some(value) => expected.insert(key, value),
                    None => expected.remove(&key),
                };
            }
            snapshots.push(expected.clone());
            if step.prunes_removals {
                published.prune_removals(revision.saturating_sub(3));
            }
            eager.absorb(update(published.since("", eager_revision), revision), 0);
            eager_revision = Some(revision);
            prop_assert_eq!(&entries(&eager), &expected);
            if step.slow_reader_loses_cursor {
                slow_revision = None;
            }
            if step.slow_reader_reads {
                // Never backwards: the new cursor is never smaller than the requested one.
                prop_assert!(slow_revision.is_none_or(|previous| previous <= revision));
                slow.absorb(update(published.since("", slow_revision), revision), 0);
                slow_revision = Some(revision);
                // Whole transactions: the state of a reader is exactly the state after one commit.
                prop_assert_eq!(&entries(&slow), &snapshots[usize::try_from(revision).unwrap()]);
            }
        }
        slow.absorb(update(published.since("", slow_revision), revision), 0);
        prop_assert_eq!(entries(&slow), expected.clone());
        prop_assert_eq!(published.len(""), expected.len());
    }

    #[test]
    fn full_and_delta_updates_give_the_same_changes(
        before in prop::collection::btree_map("[a-e]", 0..4_u32, 0..5),
        after in prop::collection::btree_map("[a-e]", 0..4_u32, 0..5),
    ) {
        let full_update = |changed| Update {
            cursor: String::new(),
            full: true,
            changed,
            removed: vec![],
        };
        let initial_reader = || {
            let mut reader = Followed::default();
            reader.absorb(full_update(before.clone()), 0);
            reader
        };
        let delta = Update {
            cursor: String::new(),
            full: false,
            changed: after
                .clone()
                .into_iter()
                .filter(|(key, value)| before.get(key) != Some(value))
                .collect(),
            removed: before.keys().filter(|key| !after.contains_key(*key)).cloned().collect(),
        };
        let full = full_update(after.clone());
        let (mut by_delta, mut by_full) = (initial_reader(), initial_reader());
        let delta_changes = by_delta.absorb(delta, 0);
        let full_changes = by_full.absorb(full.clone(), 0);
        prop_assert_eq!(delta_changes, full_changes);
        prop_assert_eq!(entries(&by_delta), after);
        // Idempotent: the same update again changes nothing.
        prop_assert_eq!(by_full.absorb(full, 0), Vec::<Change<u32>>::new());
    }
}

#[test]
fn a_scope_shows_only_its_own_changes() {
    let mut published = Published::default();
    published.set("a", "k", 1, Some(raw(1)));
    published.set("b", "k", 2, Some(raw(1)));
    assert!(published.since("a", Some(1)).is_empty());
    assert_eq!(published.since("b", Some(1)).changed.len(), 1);
}
