//! A pretended rm-scheduler: the publication `clearings`, with deltas, and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use hayward_publication::{Cursor, Update};
use hayward_rm_scheduler_api::evidence::{Blocker, BlockerReason, ClearingEntry};
use hayward_vocabulary::{AllocationId, Timestamp, UserName, WorkId};
use serde::Deserialize;
use tokio::sync::watch;

type Map = BTreeMap<String, (u64, Option<ClearingEntry>)>;

#[derive(Clone)]
pub struct Scheduler {
    address: SocketAddr,
    map: Arc<watch::Sender<(u64, Map)>>,
}

#[derive(Deserialize)]
struct Since {
    since: Option<String>,
    wait: Option<u64>,
}

impl Scheduler {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheduler = Self {
            address: listener.local_addr().unwrap(),
            map: Arc::new(watch::Sender::new((1, Map::new()))),
        };
        let router = Router::new()
            .route("/v1/clearings/publication", get(publication))
            .with_state(scheduler.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        scheduler
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Says how far drain `number` of a node is.
    pub fn says(&self, node: &str, number: u64, remaining: u64, blockers: Vec<Blocker>) {
        let entry = ClearingEntry {
            number,
            revision: 1,
            since: Timestamp::from_unix_ms(1),
            total: 3,
            moved: 3 - remaining.min(3),
            failed: 0,
            remaining,
            blockers,
            workers: Vec::new(),
        };
        self.set(node, Some(entry));
    }

    pub fn withdraws(&self, node: &str) {
        self.set(node, None);
    }

    fn set(&self, node: &str, entry: Option<ClearingEntry>) {
        self.map.send_modify(|(revision, map)| {
            *revision += 1;
            map.insert(format!("drain/{node}"), (*revision, entry));
        });
    }
}

pub fn reserved(work: &str, user: &str) -> Blocker {
    Blocker {
        allocation: AllocationId::new(format!("alc_{work}")).unwrap(),
        work: WorkId::new(work).unwrap(),
        user: UserName::new(user).unwrap(),
        why: BlockerReason::Reservation,
        detail: "is never taken away".into(),
    }
}

async fn publication(
    State(scheduler): State<Scheduler>,
    Query(asked): Query<Since>,
) -> Json<Update<ClearingEntry>> {
    let known = asked.since.as_deref().and_then(Cursor::parse);
    let known = known.map(|cursor| cursor.revision);
    let mut news = scheduler.map.subscribe();
    let wait = Duration::from_secs(asked.wait.unwrap_or(0));
    let fresh = news.wait_for(|(revision, _)| known.is_none_or(|known| known < *revision));
    drop(tokio::time::timeout(wait, fresh).await);
    let (revision, map) = scheduler.map.borrow().clone();
    let cursor = Cursor {
        lineage: "0192f0c1-2345-7000-8000-000000000001".parse().unwrap(),
        revision,
    };
    let mut update = Update {
        cursor: cursor.to_string(),
        full: known.is_none(),
        changed: BTreeMap::new(),
        removed: Vec::new(),
    };
    for (key, (changed, entry)) in map {
        match entry {
            _ if known.is_some_and(|known| changed <= known) => {}
            Some(entry) => drop(update.changed.insert(key, entry)),
            None => update.removed.push(key),
        }
    }
    Json(update)
}
