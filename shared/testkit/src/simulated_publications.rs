//! Publications of simulated neighbours. They contain what a test puts there, and support deltas
//! and long polls like real ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hayward_publication::{Cursor, Update};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

/// Lineage of every feed. The value is arbitrary.
const LINEAGE: &str = "6f1c2a9e-3b7d-4c55-8a10-000000000001";
/// Maximum wait of a poll. It is shorter than that of a real neighbour, so that tests are fast.
const MAX_WAIT: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Map {
    entries: BTreeMap<String, Entry>,
    revision: u64,
}

struct Entry {
    /// Revision of the last change.
    revision: u64,
    /// `None` for a removed entry.
    body: Option<Value>,
}

/// One publication of a simulated neighbour.
#[derive(Clone)]
pub struct Feed {
    map: Arc<Mutex<Map>>,
    revision_sender: watch::Sender<u64>,
    /// Whether requests get a response.
    responding: watch::Sender<bool>,
    /// The revision that the follower named in its latest request.
    known: watch::Sender<Option<u64>>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            map: Arc::default(),
            revision_sender: watch::Sender::new(0),
            responding: watch::Sender::new(true),
            known: watch::Sender::new(None),
        }
    }
}

impl Feed {
    /// Creates a feed that responds to no request until [`Self::set_responding`] is called.
    pub fn unresponsive() -> Self {
        let feed = Self::default();
        feed.set_responding(false);
        feed
    }

    pub fn set_responding(&self, responding: bool) {
        self.responding.send_replace(responding);
    }

    pub fn put<T: Serialize>(&self, key: &str, entry: &T) {
        self.set([(key.to_owned(), Some(to_value(entry)))]);
    }

    /// Puts all entries in one transaction.
    pub fn put_all<T: Serialize>(&self, entries: &[(String, T)]) {
        let entries = entries.iter();
        self.set(entries.map(|(key, entry)| (key.clone(), Some(to_value(entry)))));
    }

    pub fn remove(&self, key: &str) {
        self.set([(key.to_owned(), None)]);
    }

    /// Returns the entry that was put last.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let body = self.map.lock().entries.get(key)?.body.clone()?;
        serde_json::from_value(body).ok()
    }

    /// Waits until the follower has absorbed the last change, which it commits before the next
    /// request. Returns at once if the feed does not respond.
    pub async fn wait_until_absorbed(&self) {
        let has_all = |known: &Option<u64>| {
            !*self.responding.borrow()
                || known.is_some_and(|known| known >= self.map.lock().revision)
        };
        // This value owns the sender, so the channel cannot close.
        let _ = self.known.subscribe().wait_for(has_all).await;
    }

    fn set(&self, entries: impl IntoIterator<Item = (String, Option<Value>)>) {
        let mut map = self.map.lock();
        map.revision += 1;
        let revision = map.revision;
        for (key, body) in entries {
            map.entries.insert(key, Entry { revision, body });
        }
        self.revision_sender.send_replace(revision);
    }

    fn since(&self, known: Option<u64>) -> Update<Value> {
        let map = self.map.lock();
        let cursor = Cursor {
            lineage: LINEAGE.parse().expect("a lineage"),
            revision: map.revision,
        };
        let mut update = Update {
            cursor: cursor.to_string(),
            full: known.is_none(),
            changed: BTreeMap::new(),
            removed: Vec::new(),
        };
        for (key, entry) in &map.entries {
            match &entry.body {
                _ if known.is_some_and(|known| entry.revision <= known) => {}
                Some(body) => drop(update.changed.insert(key.clone(), body.clone())),
                None if known.is_some() => update.removed.push(key.clone()),
                None => {}
            }
        }
        update
    }
}

fn to_value<T: Serialize>(entry: &T) -> Value {
    serde_json::to_value(entry).expect("an entry")
}

/// Serves publications by name and returns the address.
///
/// # Panics
/// If no port is free.
pub async fn start_neighbour(feeds: &[(&str, &Feed)]) -> String {
    let mut router = Router::new();
    for (name, feed) in feeds {
        let path = format!("/v1/{name}/publication");
        let route = Router::new().route(&path, get(publication));
        router = router.merge(route.with_state((*feed).clone()));
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[derive(Deserialize)]
struct PollQuery {
    since: Option<String>,
    wait: Option<u64>,
}

async fn publication(State(feed): State<Feed>, Query(query): Query<PollQuery>) -> Response {
    let (mut revisions, mut responding) = (
        feed.revision_sender.subscribe(),
        feed.responding.subscribe(),
    );
    let known = query.since.as_deref().and_then(Cursor::parse);
    let known = known.map(|cursor| cursor.revision);
    feed.known.send_replace(known);
    let wait = Duration::from_secs(query.wait.unwrap_or(0)).min(MAX_WAIT);
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        if !*responding.borrow_and_update() {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        revisions.mark_unchanged();
        let update = feed.since(known);
        let remaining = deadline.saturating_duration_since(tokio::time::Instant::now());
        if !update.is_empty() || remaining.is_zero() {
            return Json(update).into_response();
        }
        let change = async {
            tokio::select! {
                _ = revisions.changed() => {}
                _ = responding.changed() => {}
            }
        };
        let _ = tokio::time::timeout(remaining, change).await;
    }
}
