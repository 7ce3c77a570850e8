//! A fake scheduler that publishes what the test sets, over the routes of the real one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler_api::{
    AllocationEntry, AllocationState, Vacate, VacateReason, VerdictEntry, WaitReason,
};
use hayward_vocabulary::{AllocationId, Exit, NodeName, Timestamp, Unblock, WorkId};
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

#[derive(Clone, Default)]
struct Publications {
    revision: u64,
    /// Entries by publication and key.
    by_name: BTreeMap<String, BTreeMap<String, Value>>,
}

pub struct FakeScheduler {
    pub url: String,
    publications: Arc<watch::Sender<Publications>>,
}

type Shared = (Uuid, Arc<watch::Sender<Publications>>);

/// Answers a long poll of a publication, always with all entries.
async fn answer_publication(
    State((lineage, publications)): State<Shared>,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Json<Value> {
    let since = query
        .get("since")
        .and_then(|cursor| cursor.split_once('-')?.1.parse().ok());
    let wait: u64 = query
        .get("wait")
        .and_then(|wait| wait.parse().ok())
        .unwrap_or(0);
    let mut receiver = publications.subscribe();
    let change = receiver
        .wait_for(|publications| since.is_none_or(|since: u64| publications.revision > since));
    let _ = tokio::time::timeout(Duration::from_secs(wait), change).await;
    let publications = publications.borrow().clone();
    let changed = publications.by_name.get(&name).cloned().unwrap_or_default();
    let cursor = format!("{}-{}", lineage.simple(), publications.revision);
    Json(json!({ "cursor": cursor, "full": true, "changed": changed, "removed": [] }))
}

impl FakeScheduler {
    pub async fn start() -> Self {
        let lineage = hayward_service::runtime::clock::fresh_uuid();
        let publications = Arc::new(watch::Sender::new(Publications {
            revision: 1,
            ..Publications::default()
        }));
        let router = Router::new()
            .route("/v1/{name}/publication", get(answer_publication))
            .with_state((lineage, publications.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, publications }
    }

    fn set_entry(&self, name: &str, key: &str, entry: Option<Value>) {
        self.publications.send_modify(|publications| {
            publications.revision += 1;
            let map = publications.by_name.entry(name.to_owned()).or_default();
            match entry {
                Some(entry) => map.insert(key.to_owned(), entry),
                None => map.remove(key),
            };
        });
    }

    /// Grants a running process for a demand entry.
    pub fn grant(&self, demand: &DemandEntry) -> AllocationEntry {
        self.grant_on(demand, "node-1")
    }

    pub fn grant_on(&self, demand: &DemandEntry, node: &str) -> AllocationEntry {
        self.grant_at(demand, node, Timestamp::from_unix_ms(0))
    }

    pub fn grant_at(&self, demand: &DemandEntry, node: &str, at: Timestamp) -> AllocationEntry {
        let entry = AllocationEntry {
            id: AllocationId::from_uuid(hayward_service::runtime::clock::fresh_uuid()),
            work: demand.work.clone(),
            kind: demand.kind,
            user: demand.user.clone(),
            class: "normal".to_owned(),
            node: NodeName::new(node).unwrap(),
            order: 1,
            size: demand.size.clone(),
            incarnation: 1,
            granted_at: at,
            running_since: None,
            exclusive: false,
            predecessor: None,
            request: None,
            state: AllocationState::Running,
            vacate: None,
            marked: None,
            exit: None,
            launch: demand.launch.clone(),
        };
        self.publish(&entry);
        entry
    }

    pub fn publish(&self, entry: &AllocationEntry) {
        let value = serde_json::to_value(entry).unwrap();
        self.set_entry("allocations", entry.id.as_str(), Some(value));
    }

    /// Ends an allocation with this exit.
    pub fn end(&self, entry: &AllocationEntry, exit: Exit) {
        let (state, exit) = (AllocationState::Ended, Some(exit));
        self.publish(&AllocationEntry {
            state,
            exit,
            ..entry.clone()
        });
    }

    pub fn vacate(&self, entry: &AllocationEntry) {
        self.vacate_for(entry, VacateReason::Preempted);
    }

    pub fn vacate_for(&self, entry: &AllocationEntry, reason: VacateReason) -> AllocationEntry {
        let vacate = Vacate {
            reason,
            detail: "preempted for other work".to_owned(),
            since: Timestamp::from_unix_ms(0),
            purge: reason == VacateReason::NodeLost,
        };
        let entry = AllocationEntry {
            vacate: Some(vacate),
            ..entry.clone()
        };
        self.publish(&entry);
        entry
    }

    pub fn remove(&self, entry: &AllocationEntry) {
        self.set_entry("allocations", entry.id.as_str(), None);
    }

    /// Withdraws the verdict of ended demand.
    pub fn withdraw_verdict(&self, work: &WorkId) {
        self.set_entry("verdicts", work.as_str(), None);
    }

    /// Publishes a verdict about a piece of work.
    pub fn publish_verdict(&self, work: &WorkId, reason: WaitReason, refused: bool) {
        let entry = VerdictEntry {
            work: work.clone(),
            reason,
            refused,
            class: None,
            detail: "no node has 99 GiB".to_owned(),
            numbers: [("largest_node".to_owned(), 8)].into(),
            also: vec![WaitReason::ZeroShare],
            unblock: Some(Unblock::AskForLess { quanta: 8 }),
            receipts: Vec::new(),
            since: Timestamp::from_unix_ms(0),
        };
        let value = serde_json::to_value(entry).unwrap();
        self.set_entry("verdicts", work.as_str(), Some(value));
    }
}
