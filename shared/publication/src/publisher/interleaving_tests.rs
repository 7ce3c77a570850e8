//! Readers that wait during commits, in many thread interleavings. Time limits never pass here, so
//! a reader that is not woken is a deadlock, which fails the test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_interleavings::{check, future, thread};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::*;

const MAP: &str = "map";
const WAIT: Duration = Duration::from_secs(25);
const LEASE: Duration = Duration::from_hours(1);
const LAST_REVISION: u64 = 4;

fn leading_publisher() -> Arc<Publisher> {
    let publisher = Publisher::new();
    let lineage = Uuid::from_u128(1);
    publisher.replace(
        Cursor {
            lineage,
            revision: 0,
        },
        [],
        0,
    );
    publisher.set_lease(1, Instant::now() + LEASE);
    publisher
}

fn entry(scope: &str, key: &str, revision: u64) -> Entry {
    let body = RawValue::from_string(revision.to_string()).expect("a number is JSON");
    Entry {
        key: EntryKey {
            publication: MAP,
            scope: scope.to_owned(),
            key: key.to_owned(),
        },
        body: Some(body.into()),
    }
}

fn poll<'a>(scope: &'a str, cursor: Option<&'a str>) -> Poll<'a> {
    Poll {
        publication: MAP,
        scope,
        cursor,
        wait: WAIT,
        trusted: true,
    }
}

/// Reads until the key has the value of the last commit of its scope. Each response has all of a
/// commit or none of it.
async fn read_until(publisher: &Publisher, scope: &str, last: u64) {
    let (mut cursor, mut entries) = (None, BTreeMap::new());
    while entries.get("a") != Some(&last) {
        let result = publisher.updates(poll(scope, cursor.as_deref())).await;
        let (delta, now) = result.expect("it leads");
        if delta.full {
            entries.clear();
        }
        for (key, body) in delta.changed {
            entries.insert(
                key.to_string(),
                body.get().parse::<u64>().expect("a number"),
            );
        }
        assert_eq!(entries.get("a"), entries.get("b"), "half of a commit");
        cursor = Some(now.to_string());
    }
}

fn commit(publisher: &Publisher, revision: u64) {
    // Commits alternate between the scopes. Each commit deletes older removals.
    let scope = if revision.is_multiple_of(2) {
        "even"
    } else {
        "odd"
    };
    let entries = ["a", "b"].map(|key| entry(scope, key, revision)).to_vec();
    publisher.advance(revision, entries, revision.checked_sub(1));
}

#[test]
fn a_waiting_reader_sees_every_commit_in_any_interleaving() {
    check(2_000, || {
        let publisher = leading_publisher();
        let readers = [
            ("odd", LAST_REVISION - 1),
            ("even", LAST_REVISION),
            ("even", LAST_REVISION),
        ];
        let readers = readers.map(|(scope, last)| {
            let publisher = Arc::clone(&publisher);
            thread::spawn(move || future::block_on(read_until(&publisher, scope, last)))
        });
        let waiter = Arc::clone(&publisher);
        let waiter =
            thread::spawn(move || future::block_on(waiter.wait_for_revision(LAST_REVISION, WAIT)));
        for revision in 1..=LAST_REVISION {
            commit(&publisher, revision);
        }
        for reader in readers {
            reader.join().expect("it has read everything");
        }
        assert!(waiter.join().expect("it is woken"));
    });
}

#[test]
fn a_waiting_reader_sees_the_end_of_the_term_in_any_interleaving() {
    check(2_000, || {
        let publisher = leading_publisher();
        let readers = [0; 2].map(|_| {
            let publisher = Arc::clone(&publisher);
            thread::spawn(move || {
                let cursor = Cursor {
                    lineage: publisher.lineage(),
                    revision: publisher.revision(),
                };
                let cursor = cursor.to_string();
                let updates = publisher.updates(poll("odd", Some(&cursor)));
                future::block_on(updates).map(|(delta, _)| delta.changed.len())
            })
        });
        commit(&publisher, 1);
        publisher.step_down();
        for reader in readers {
            let result = reader.join().expect("it is woken");
            assert!(
                matches!(result, Ok(2) | Err(CommitError::Standby)),
                "{result:?}"
            );
        }
    });
}
