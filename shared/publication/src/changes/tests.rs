//! The pure part of the change stream: order, whole commits, visibility.

use std::sync::Arc;
use std::time::Duration;

use hayward_service::{Principal, Shutdown};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::reader::{Reader, ReaderContext, Since};
use super::*;
use crate::Cursor;
use crate::publisher::{Entry, EntryKey};

const WORK: &str = "work";

fn raw(text: &str) -> Arc<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap().into()
}

fn entry(scope: &str, key: &str, body: Option<&str>) -> Entry {
    Entry {
        key: EntryKey {
            publication: WORK,
            scope: scope.to_owned(),
            key: key.to_owned(),
        },
        body: body.map(raw),
    }
}

/// Publishes commits. Every commit has one entry, except for the last, which has two.
fn publisher_with_commits() -> Arc<Publisher> {
    let publisher = Publisher::new();
    publisher.track_owner(WORK, parse_user);
    let body = r#"{"user":"ann"}"#;
    for (revision, scope, key) in [(1, "ann", "a"), (2, "bob", "b"), (3, "ann", "c")] {
        publisher.advance(revision, vec![entry(scope, key, Some(body))], None);
    }
    let last = vec![entry("ann", "a", None), entry("bob", "d", Some(body))];
    publisher.advance(4, last, None);
    publisher
}

fn keys(publisher: &Publisher, scope: Option<&str>, after: u64, limit: usize) -> Vec<String> {
    let page = publisher.changes_after(&[(WORK, scope)], after, limit);
    let keys = page.changes.iter();
    keys.map(|(_, change)| format!("{}{}", change.key, change.revision))
        .collect()
}

/// Only the last state of an entry is shown (A7).
#[test]
fn changes_are_in_order_of_revision_across_scopes() {
    let publisher = publisher_with_commits();
    let mut all = keys(&publisher, None, 0, 10);
    assert_eq!(
        all[..2],
        ["b2", "c3"],
        "only the last state of `a` is shown"
    );
    all[2..].sort();
    assert_eq!(all[2..], ["a4", "d4"]);
    assert_eq!(keys(&publisher, Some("ann"), 0, 10), ["c3", "a4"]);
    assert!(keys(&publisher, None, 4, 10).is_empty());
    assert!(keys(&publisher, Some("eve"), 0, 10).is_empty());
}

/// A page may exceed its limit to include a whole commit (A7).
#[test]
fn a_commit_is_never_split() {
    let publisher = publisher_with_commits();
    let page = publisher.changes_after(&[(WORK, None)], 0, 1);
    assert_eq!((page.changes.len(), page.until, page.more), (1, 2, true));
    let page = publisher.changes_after(&[(WORK, None)], 3, 1);
    assert_eq!((page.changes.len(), page.until, page.more), (2, 4, false));
}

/// An unknown owner is different from another owner (S12).
#[test]
fn a_removal_is_visible_to_the_owner_of_the_entry() {
    let publisher = publisher_with_commits();
    let kind = Kind {
        name: "work",
        publication: WORK,
        prefix: "",
        visible_to: Visibility::EntryUser,
        show: show_unchanged,
    };
    let removal = |publisher: &Publisher| {
        let page = publisher.changes_after(&[(WORK, Some("ann"))], 3, 10);
        page.changes.into_iter().next().unwrap().1
    };
    assert_eq!(kind.is_visible_to("ann", &removal(&publisher)), Some(true));
    assert_eq!(kind.is_visible_to("bob", &removal(&publisher)), Some(false));
    // A replica that takes over does not know the owner of a removed entry.
    let cursor = Cursor {
        lineage: Uuid::nil(),
        revision: 4,
    };
    publisher.replace(cursor, [(4, entry("ann", "a", None))], 0);
    assert_eq!(kind.is_visible_to("ann", &removal(&publisher)), None);
}

/// The status is 410 (A7).
#[tokio::test]
async fn a_reader_too_far_behind_gets_the_oldest_revision() {
    let publisher = publisher_with_commits();
    let cursor = Cursor {
        lineage: Uuid::from_u128(7),
        revision: 100,
    };
    publisher.replace(cursor, [(90, entry("ann", "a", Some("{}")))], 50);
    publisher.set_lease(1, std::time::Instant::now() + Duration::from_mins(1));
    let open_reader = async |since| {
        let ann = Arc::new(Principal::new("ann", [Scope::Submitter]));
        let context = ReaderContext {
            caller: Caller(ann),
            kinds: Vec::new(),
            token: None,
            shutdown: Shutdown::new(),
        };
        Reader::new(Arc::clone(&publisher), since, context)
            .await
            .map(drop)
    };
    assert!(open_reader(Since::Revision(50)).await.is_ok());
    assert!(open_reader(Since::Cursor(cursor)).await.is_ok());
    let old = open_reader(Since::Revision(49)).await.unwrap_err();
    assert_eq!(
        (old.status().as_u16(), old.extension("oldest_revision")),
        (410, Some(&50.into()))
    );
    let lineage = Uuid::nil();
    let other = Since::Cursor(Cursor { lineage, ..cursor });
    assert_eq!(open_reader(other).await.unwrap_err().status(), 410);
    publisher.step_down();
    assert_eq!(open_reader(Since::Now).await.unwrap_err().status(), 503);
}

#[test]
fn a_position_is_a_revision_a_cursor_or_now() {
    assert_eq!(Since::parse("now").unwrap(), Since::Now);
    assert_eq!(Since::parse("17").unwrap(), Since::Revision(17));
    let cursor = Cursor {
        lineage: Uuid::from_u128(7),
        revision: 9,
    };
    assert_eq!(
        Since::parse(&cursor.to_string()).unwrap(),
        Since::Cursor(cursor)
    );
    for bad in ["", "-1", "yesterday", "1-2"] {
        assert_eq!(Since::parse(bad).unwrap_err().status(), 400, "{bad}");
    }
}
