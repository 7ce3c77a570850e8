//! A fake rm-scheduler, which only serves publications. The test sets their entries.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use hayward_publication::{Cursor, Update};
use hayward_rm_scheduler_api::{
    ALLOCATIONS, AllocationEntry, AllocationState, CLOSED, ClosedEntry, PROCESSORS, ProcessorEntry,
    Vacate, VacateReason,
};
use hayward_vocabulary::{
    AllocationId, Launch, NodeName, Program, Size, Timestamp, UserName, WorkId, WorkKind,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

struct PublishedEntry {
    /// Revision of the last change.
    revision: u64,
    /// `None` if the entry was removed.
    value: Option<Value>,
}

#[derive(Default)]
struct Publication {
    /// Entries by key. A removed entry is retained without a value.
    entries: BTreeMap<String, PublishedEntry>,
    revision: u64,
}

#[derive(Clone)]
pub struct FakeScheduler {
    address: SocketAddr,
    /// Publications by name.
    publications: Arc<Mutex<BTreeMap<String, Publication>>>,
    /// Number of changes of all publications. It wakes waiting requests.
    changes: watch::Sender<u64>,
}

#[derive(Deserialize)]
struct Since {
    since: Option<String>,
    wait: Option<u64>,
}

impl FakeScheduler {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheduler = Self {
            address,
            publications: Arc::default(),
            changes: watch::Sender::new(0),
        };
        let router = Router::new()
            .route("/v1/{name}/publication", get(serve_publication))
            .with_state(scheduler.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        scheduler
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Publishes a new or changed allocation.
    pub fn publish(&self, entry: &AllocationEntry) {
        let id = entry.id.to_string();
        self.set_entry(ALLOCATIONS, id, Some(json!(entry)));
    }

    pub fn remove(&self, id: &str) {
        self.set_entry(ALLOCATIONS, id.to_owned(), None);
    }

    pub fn publish_processor(&self, entry: &ProcessorEntry) {
        self.set_entry(PROCESSORS, entry.work.to_string(), Some(json!(entry)));
    }

    pub fn remove_processor(&self, work: &str) {
        self.set_entry(PROCESSORS, work.to_owned(), None);
    }

    /// Publishes that a node accepts no new work.
    pub fn close_node(&self, node: &str) {
        let entry = ClosedEntry {
            node: NodeName::new(node).unwrap(),
            work: None,
            reason: "it is blocked: test".into(),
            lost: false,
        };
        self.set_entry(CLOSED, node.to_owned(), Some(json!(entry)));
    }

    /// Declares a node lost.
    pub fn declare_node_lost(&self, node: &str) {
        let entry = ClosedEntry {
            node: NodeName::new(node).unwrap(),
            work: None,
            reason: "it is lost".into(),
            lost: true,
        };
        self.set_entry(CLOSED, node.to_owned(), Some(json!(entry)));
    }

    pub fn change_allocation(&self, id: &str, change: impl FnOnce(&mut AllocationEntry)) {
        let value = self.publications.lock()[ALLOCATIONS].entries[id]
            .value
            .clone();
        let mut entry = serde_json::from_value(value.unwrap()).unwrap();
        change(&mut entry);
        self.publish(&entry);
    }

    /// Orders an allocation to leave. With `purge` its end is not awaited.
    pub fn vacate(&self, id: &str, purge: bool) {
        self.change_allocation(id, |entry| {
            let reason = if purge {
                VacateReason::NodeLost
            } else {
                VacateReason::Preempted
            };
            let since = Timestamp::from_unix_ms(1);
            entry.vacate = Some(Vacate {
                reason,
                detail: "test".into(),
                since,
                purge,
            });
            if purge {
                entry.state = AllocationState::Ended;
            }
        });
    }

    fn set_entry(&self, name: &str, key: String, value: Option<Value>) {
        let mut publications = self.publications.lock();
        let publication = publications.entry(name.to_owned()).or_default();
        publication.revision += 1;
        let revision = publication.revision;
        publication
            .entries
            .insert(key, PublishedEntry { revision, value });
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn update_since(&self, name: &str, since: Option<u64>) -> Update<Value> {
        let mut publications = self.publications.lock();
        let publication = publications.entry(name.to_owned()).or_default();
        let cursor = Cursor {
            lineage: fixed_lineage(),
            revision: publication.revision,
        }
        .to_string();
        let mut update = Update {
            cursor,
            full: since.is_none(),
            changed: BTreeMap::new(),
            removed: Vec::new(),
        };
        for (key, entry) in &publication.entries {
            match &entry.value {
                _ if since.is_some_and(|since| entry.revision <= since) => {}
                Some(value) => {
                    update.changed.insert(key.clone(), value.clone());
                }
                None if since.is_some() => update.removed.push(key.clone()),
                None => {}
            }
        }
        update
    }
}

/// Returns the lineage of all publications, which is always the same.
fn fixed_lineage<T: std::str::FromStr>() -> T
where
    T::Err: std::fmt::Debug,
{
    "6f1c2a9e-3b7d-4c55-8a10-000000000001".parse().unwrap()
}

async fn serve_publication(
    State(scheduler): State<FakeScheduler>,
    Path(name): Path<String>,
    Query(query): Query<Since>,
) -> Json<Update<Value>> {
    let mut changes = scheduler.changes.subscribe();
    let since = query
        .since
        .as_deref()
        .and_then(Cursor::parse)
        .map(|cursor| cursor.revision);
    let max_wait = Duration::from_secs(query.wait.unwrap_or(0));
    let deadline = tokio::time::Instant::now() + max_wait;
    loop {
        let update = scheduler.update_since(&name, since);
        let remaining = deadline.saturating_duration_since(tokio::time::Instant::now());
        if !update.is_empty() || remaining.is_zero() {
            return Json(update);
        }
        let _ = tokio::time::timeout(remaining, changes.changed()).await;
    }
}

/// Creates an allocation of a job of the user ann, to be started on a node.
pub fn allocation(id: &str, node: &str) -> AllocationEntry {
    AllocationEntry {
        id: AllocationId::new(id).unwrap(),
        work: WorkId::new("job_1").unwrap(),
        kind: WorkKind::Job,
        user: UserName::new("ann").unwrap(),
        class: "normal".into(),
        node: NodeName::new(node).unwrap(),
        order: 1,
        size: Size::memory(1 << 30),
        incarnation: 1,
        granted_at: Timestamp::from_unix_ms(1),
        running_since: None,
        exclusive: false,
        predecessor: None,
        request: None,
        state: AllocationState::Assigned,
        vacate: None,
        marked: None,
        exit: None,
        launch: Some(Launch {
            program: Program::Command {
                argv: vec!["/bin/true".into()],
            },
            environment: BTreeMap::from([("SECRET".into(), "hush".into())]),
            working_directory: None,
            stop_grace_ms: 1000,
            traceparent: None,
            within: None,
            account: None,
            limits: None,
        }),
    }
}
