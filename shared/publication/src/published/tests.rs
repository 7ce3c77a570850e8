//! Properties of a publication for any history, readers and trimming. All readers reach the same
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

fn update(news: Delta, revision: u64) -> Update<u32> {
    Update {
        cursor: Cursor {
            lineage: Uuid::nil(),
            revision,
        }
        .to_string(),
        full: news.full,
        changed: news
            .changed
            .into_iter()
            .map(|(key, body)| (key.to_string(), body.get().parse().expect("a number")))
            .collect(),
        removed: news.removed.iter().map(ToString::to_string).collect(),
    }
}

fn entries(reader: &Followed<u32>) -> BTreeMap<String, u32> {
    reader
        .iter()
        .map(|(key, value)| (key.clone(), *value))
        .collect()
}

fn histories() -> impl Strategy<Value = Vec<(Transaction, bool, bool, bool)>> {
    let transaction = prop::collection::vec((0..12_u8, prop::option::of(0..4_u32)), 0..6);
    // Each step: a transaction, whether the slow reader reads, whether removals are trimmed, and
    // whether the slow reader lost its cursor.
    prop::collection::vec(
        (
            transaction,
            any::<bool>(),
            prop::bool::weighted(0.1),
            prop::bool::weighted(0.1),
        ),
        0..60,
    )
}

proptest! {
    #[test]
    fn every_reader_ends_with_the_state_of_the_writer(history in histories()) {
        let mut published = Published::default();
        let mut truth: BTreeMap<String, u32> = BTreeMap::new();
        let mut snapshots = vec![truth.clone()];
        let (mut eager, mut slow) = (Followed::default(), Followed::default());
        let (mut eager_at, mut slow_at): (Option<u64>, Option<u64>) = (None, None);
        let mut revision = 0;
        for (transaction, slow_reads, trim, lost) in history {
            revision += 1;
            for (key, value) in transaction {
                let key = format!("k{key}");
                published.set("", &key, revision, value.map(raw));
                match value {
                    Some(value) => truth.insert(key, value),
                    None => truth.remove(&key),
                };
            }
            snapshots.push(truth.clone());
            if trim {
                published.forget(revision.saturating_sub(3));
            }
            eager.absorb(update(published.since("", eager_at), revision), 0);
            eager_at = Some(revision);
            prop_assert_eq!(&entries(&eager), &truth);
            if lost {
                slow_at = None;
            }
            if slow_reads {
                // Never backwards: the new cursor is never smaller than the requested one.
                prop_assert!(slow_at.is_none_or(|at| at <= revision));
                slow.absorb(update(published.since("", slow_at), revision), 0);
                slow_at = Some(revision);
                // Whole transactions: the state of a reader is exactly the state after one commit.
                prop_assert_eq!(&entries(&slow), &snapshots[usize::try_from(revision).unwrap()]);
            }
        }
        slow.absorb(update(published.since("", slow_at), revision), 0);
        prop_assert_eq!(entries(&slow), truth.clone());
        prop_assert_eq!(published.len(""), truth.len());
    }

    #[test]
    fn full_and_delta_updates_give_the_same_changes(
        before in prop::collection::btree_map("[a-e]", 0..4_u32, 0..5),
        after in prop::collection::btree_map("[a-e]", 0..4_u32, 0..5),
    ) {
        let whole = |changed| Update {
            cursor: String::new(),
            full: true,
            changed,
            removed: vec![],
        };
        let start = || {
            let mut reader = Followed::default();
            reader.absorb(whole(before.clone()), 0);
            reader
        };
        let delta = Update {
            cursor: String::new(),
            full: false,
            changed: after.clone().into_iter().filter(|(k, v)| before.get(k) != Some(v)).collect(),
            removed: before.keys().filter(|key| !after.contains_key(*key)).cloned().collect(),
        };
        let full = whole(after.clone());
        let (mut by_delta, mut by_full) = (start(), start());
        let (told_delta, told_full) = (by_delta.absorb(delta, 0), by_full.absorb(full.clone(), 0));
        prop_assert_eq!(told_delta, told_full);
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
