//! Pretend neighbours: four publications with deltas and long polls, and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hayward_blocklist_api::{BLOCKS, BlockAction, BlockEntry, BlockKind, EvacuationPolicy};
use hayward_container_manager_api::{CONTAINERS, ContainerEntry, ContainerState};
use hayward_job_converter_api::{DEMAND, DemandEntry};
use hayward_node_status_api::{Health, NODES, NodeEntry};
use hayward_publication::{Cursor, Update};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{
    Launch, NodeName, Program, Size, Timestamp, UserName, WhenUnreachable, WorkId, WorkKind,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

#[derive(Default)]
struct Map {
    entries: BTreeMap<String, (u64, Option<Value>)>,
    revision: u64,
}

/// One publication of one neighbour.
#[derive(Clone)]
pub struct Feed {
    map: Arc<Mutex<Map>>,
    news: watch::Sender<u64>,
    /// While false, it answers nobody.
    answers: watch::Sender<bool>,
}

impl Feed {
    fn new() -> Self {
        Self {
            map: Arc::default(),
            news: watch::Sender::new(0),
            answers: watch::Sender::new(true),
        }
    }

    pub fn put<T: Serialize>(&self, key: &str, entry: &T) {
        self.set(key, Some(serde_json::to_value(entry).unwrap()));
    }

    pub fn remove(&self, key: &str) {
        self.set(key, None);
    }

    /// All at once, as one transaction.
    pub fn put_all<T: Serialize>(&self, entries: &[(String, T)]) {
        let mut map = self.map.lock();
        map.revision += 1;
        let revision = map.revision;
        for (key, entry) in entries {
            map.entries.insert(
                key.clone(),
                (revision, Some(serde_json::to_value(entry).unwrap())),
            );
        }
        self.news.send_replace(revision);
    }

    pub fn answer(&self, answers: bool) {
        self.answers.send_replace(answers);
    }

    fn set(&self, key: &str, entry: Option<Value>) {
        let mut map = self.map.lock();
        map.revision += 1;
        let revision = map.revision;
        map.entries.insert(key.to_owned(), (revision, entry));
        self.news.send_replace(revision);
    }

    fn since(&self, known: Option<u64>) -> Update<Value> {
        let map = self.map.lock();
        let lineage = "6f1c2a9e-3b7d-4c55-8a10-000000000001".parse().unwrap();
        let cursor = Cursor {
            lineage,
            revision: map.revision,
        }
        .to_string();
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
        update
    }
}

#[derive(Deserialize)]
struct Since {
    since: Option<String>,
    wait: Option<u64>,
}

async fn publication(State(feed): State<Feed>, Query(query): Query<Since>) -> Response {
    let (mut news, mut answers) = (feed.news.subscribe(), feed.answers.subscribe());
    let known = query
        .since
        .as_deref()
        .and_then(Cursor::parse)
        .map(|cursor| cursor.revision);
    // Shorter than a real neighbour waits, so that hearing of it again does not take long.
    let wait = Duration::from_millis(query.wait.unwrap_or(0).min(1) * 200);
    let until = tokio::time::Instant::now() + wait;
    loop {
        if !*answers.borrow() {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let update = feed.since(known);
        let rest = until.saturating_duration_since(tokio::time::Instant::now());
        if !update.is_empty() || rest.is_zero() {
            return Json(update).into_response();
        }
        tokio::select! {
            _ = news.changed() => {}
            _ = answers.changed() => {}
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// All four neighbours, at one address.
#[derive(Clone)]
pub struct Neighbours {
    address: SocketAddr,
    pub nodes: Feed,
    pub demand: Feed,
    pub blocks: Feed,
    pub containers: Feed,
}

impl Neighbours {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let neighbours = Self {
            address: listener.local_addr().unwrap(),
            nodes: Feed::new(),
            demand: Feed::new(),
            blocks: Feed::new(),
            containers: Feed::new(),
        };
        let route = |name: &str, feed: &Feed| {
            let path = format!("/v1/{name}/publication");
            Router::new()
                .route(&path, get(publication))
                .with_state(feed.clone())
        };
        let router = route(NODES, &neighbours.nodes)
            .merge(route(DEMAND, &neighbours.demand))
            .merge(route(BLOCKS, &neighbours.blocks))
            .merge(route(CONTAINERS, &neighbours.containers));
        tokio::spawn(async move { axum::serve(listener, router).await });
        neighbours
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn node(&self, name: &str, quanta: u64) {
        self.nodes.put(name, &node(name, quanta));
    }

    pub fn ask(&self, entry: &DemandEntry) {
        self.demand.put(entry.work.as_str(), entry);
    }

    pub fn block(&self, entry: &BlockEntry) {
        self.blocks.put(&entry.key(), entry);
    }
}

/// A healthy node of so many quanta.
pub fn node(name: &str, quanta: u64) -> NodeEntry {
    NodeEntry {
        node: NodeName::new(name).unwrap(),
        pool: "default".into(),
        capacity: Size {
            cpu_milli: 64_000,
            ..Size::memory(quanta * GIB)
        },
        labels: BTreeMap::new(),
        runtimes: vec!["simulated".into()],
        health: Health::Healthy,
        schedulable: true,
        reason: "heartbeats arrive".into(),
        since: Timestamp::from_unix_ms(1),
        drain: None,
        boot_id: "boot".into(),
        agent_instance: "first".into(),
    }
}

fn demand(id: &str, kind: WorkKind, user: &str, quanta: u64) -> DemandEntry {
    let launch = Launch {
        program: Program::Command {
            argv: vec!["/bin/true".into()],
        },
        environment: BTreeMap::from([("SECRET".into(), "hush".into())]),
        working_directory: None,
        stop_grace_ms: 1_000,
        traceparent: None,
    };
    let single = kind != WorkKind::Job;
    DemandEntry {
        work: WorkId::new(id).unwrap(),
        kind,
        user: UserName::new(user).unwrap(),
        class: None,
        submitted_at: Timestamp::from_unix_ms(1),
        size: Size::memory(quanta * GIB),
        max_processes: if single { 1 } else { 1_000 },
        remaining_tasks: if single { 1 } else { 1_000_000 },
        threads: 1,
        task_ms: (!single).then_some(1_000),
        machines: Vec::new(),
        service: None,
        disruption_limit: None,
        when_unreachable: WhenUnreachable::default(),
        settled: std::collections::BTreeSet::new(),
        launch: (kind != WorkKind::Reservation).then_some(launch),
    }
}

/// A large job whose tasks are known to take a second.
pub fn job(id: &str, user: &str) -> DemandEntry {
    demand(id, WorkKind::Job, user, 1)
}

pub fn service(id: &str, user: &str) -> DemandEntry {
    demand(id, WorkKind::Service, user, 1)
}

pub fn reservation(id: &str, user: &str, quanta: u64) -> DemandEntry {
    demand(id, WorkKind::Reservation, user, quanta)
}

/// An item to evacuate what it names.
pub fn block(kind: BlockKind, identifier: &str, end: Option<Timestamp>) -> BlockEntry {
    BlockEntry {
        kind,
        identifier: identifier.into(),
        action: BlockAction::Evacuate,
        cause: "it smells".into(),
        start: Timestamp::from_unix_ms(1),
        end,
        sources: ["manual:operator".to_owned()].into(),
        removal_no: 0,
        job: None,
        automatic: false,
        canary: false,
        evacuation: EvacuationPolicy::Immediate,
    }
}

/// The container of an allocation.
pub fn container(
    of: &hayward_rm_scheduler_api::AllocationEntry,
    state: ContainerState,
) -> ContainerEntry {
    ContainerEntry {
        id: of.id.clone(),
        work: of.work.clone(),
        node: of.node.clone(),
        state,
        started_at: None,
        exit: None,
    }
}
