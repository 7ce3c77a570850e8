//! A pretended rm-scheduler: its three publications for blocklist, with deltas and long polls, and
//! nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hayward_publication::{Cursor, Update};
use hayward_rm_scheduler_api::evidence::{
    Attempt, CLEARINGS, ClearingEntry, FAILURES, FactEntry, MACHINES, MachineEntry, What,
};
use hayward_service::clock::{Clock as _, SystemClock};
use hayward_vocabulary::{AllocationId, ExitCause, NodeName, UserName, WorkId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

#[derive(Default)]
struct Map {
    entries: BTreeMap<String, (u64, Option<Value>)>,
    revision: u64,
}

/// One publication. It answers nobody until something was put into it.
#[derive(Clone)]
pub struct Feed {
    map: Arc<Mutex<Map>>,
    news: watch::Sender<u64>,
}

impl Feed {
    fn new() -> Self {
        Self {
            map: Arc::default(),
            news: watch::Sender::new(0),
        }
    }

    /// All at once, as one transaction.
    pub fn put<T: Serialize>(&self, entries: &[(String, T)]) {
        let mut map = self.map.lock();
        map.revision += 1;
        let revision = map.revision;
        for (key, entry) in entries {
            let entry = serde_json::to_value(entry).unwrap();
            map.entries.insert(key.clone(), (revision, Some(entry)));
        }
        self.news.send_replace(revision);
    }

    pub fn remove(&self, key: &str) {
        let mut map = self.map.lock();
        map.revision += 1;
        let revision = map.revision;
        map.entries.insert(key.to_owned(), (revision, None));
        self.news.send_replace(revision);
    }

    fn since(&self, known: Option<u64>) -> Option<Update<Value>> {
        let map = self.map.lock();
        if map.revision == 0 {
            return None;
        }
        let lineage = "6f1c2a9e-3b7d-4c55-8a10-000000000001".parse().unwrap();
        let revision = map.revision;
        let cursor = Cursor { lineage, revision }.to_string();
        let mut update = Update {
            cursor,
            full: known.is_none(),
            changed: BTreeMap::new(),
            removed: Vec::new(),
        };
        for (key, (revision, entry)) in &map.entries {
            match entry {
                _ if known.is_some_and(|known| *revision <= known) => {}
                Some(entry) => drop(update.changed.insert(key.clone(), entry.clone())),
                None if known.is_some() => update.removed.push(key.clone()),
                None => {}
            }
        }
        Some(update)
    }
}

#[derive(Deserialize)]
struct Since {
    since: Option<String>,
    wait: Option<u64>,
}

async fn publication(State(feed): State<Feed>, Query(query): Query<Since>) -> Response {
    let mut news = feed.news.subscribe();
    let known = query.since.as_deref().and_then(Cursor::parse);
    let known = known.map(|cursor| cursor.revision);
    let wait = Duration::from_secs(query.wait.unwrap_or(0));
    let until = tokio::time::Instant::now() + wait;
    loop {
        let Some(update) = feed.since(known) else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let rest = until.saturating_duration_since(tokio::time::Instant::now());
        if !update.is_empty() || rest.is_zero() {
            return Json(update).into_response();
        }
        let _ = tokio::time::timeout(rest, news.changed()).await;
    }
}

#[derive(Clone)]
pub struct Scheduler {
    address: SocketAddr,
    pub machines: Feed,
    pub failures: Feed,
    pub clearings: Feed,
}

impl Scheduler {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheduler = Self {
            address: listener.local_addr().unwrap(),
            machines: Feed::new(),
            failures: Feed::new(),
            clearings: Feed::new(),
        };
        let route = |name: &str, feed: &Feed| {
            let path = format!("/v1/{name}/publication");
            Router::new()
                .route(&path, get(publication))
                .with_state(feed.clone())
        };
        let router = route(MACHINES, &scheduler.machines)
            .merge(route(FAILURES, &scheduler.failures))
            .merge(route(CLEARINGS, &scheduler.clearings));
        tokio::spawn(async move { axum::serve(listener, router).await });
        scheduler
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ready machines `n0` and so on, of one pool.
    pub fn has_machines(&self, count: usize) {
        let machine = |number| machine(&format!("n{number}"), true);
        self.machines
            .put(&(0..count).map(machine).collect::<Vec<_>>());
    }

    /// These happened on the node, each an attempt of its own.
    pub fn tells(&self, facts: &[(String, FactEntry)]) {
        self.failures.put(facts);
    }

    pub fn clears(&self, key: &str, entry: ClearingEntry) {
        self.clearings.put(&[(key.to_owned(), entry)]);
    }
}

pub fn machine(name: &str, ready: bool) -> (String, MachineEntry) {
    let entry = MachineEntry {
        node: NodeName::new(name).unwrap(),
        pool: "default".into(),
        ready,
        quanta: 8,
    };
    (name.to_owned(), entry)
}

/// A launch that failed because of the machine.
pub fn bad_launch(id: &str, node: &str) -> (String, FactEntry) {
    attempt(id, node, What::Failed, Some("runtime_down"))
}

pub fn worked(id: &str, node: &str) -> (String, FactEntry) {
    let (key, mut fact) = attempt(id, node, What::Worked, None);
    let attempt = fact.attempt.as_mut().unwrap();
    (attempt.cause, attempt.ran) = (ExitCause::Success, true);
    (key, fact)
}

pub fn attempt(id: &str, node: &str, what: What, code: Option<&str>) -> (String, FactEntry) {
    let fact = FactEntry {
        node: NodeName::new(node).unwrap(),
        what,
        at: SystemClock.now(),
        attempt: Some(Attempt {
            allocation: AllocationId::new(id).unwrap(),
            work: WorkId::new(format!("job_{id}")).unwrap(),
            user: UserName::new("ann").unwrap(),
            cause: ExitCause::LaunchFailed,
            cause_code: code.map(str::to_owned),
            message: None,
            ran: false,
            held_ms: 1_500,
        }),
    };
    (id.to_owned(), fact)
}

/// Begun, with these still there.
pub fn clearing(number: u64, total: u64, workers: &[&str]) -> ClearingEntry {
    let remaining = u64::try_from(workers.len()).unwrap();
    ClearingEntry {
        number,
        revision: 77,
        since: SystemClock.now(),
        total,
        moved: total - remaining,
        failed: 0,
        remaining,
        blockers: Vec::new(),
        workers: workers
            .iter()
            .map(|id| AllocationId::new(*id).unwrap())
            .collect(),
    }
}
