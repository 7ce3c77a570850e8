//! A fake orchestrator. It puts maps of its work and reads its shares, which are allocations of
//! this work.

use std::collections::BTreeMap;

use hayward_job_converter_api::DemandEntry;
use hayward_job_converter_api::orchestrators::{
    Allotted, MapAnswer, OrchestratorCreated, OrchestratorView, ShareEntry, WorkStanding,
};
use hayward_publication::Update;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::auth::Scope;
use hayward_service::client::{Client, ClientError};
use hayward_testkit::until;
use hayward_vocabulary::AllocationId;
use serde_json::{Value, json};

use crate::fixture::Fixture;

/// An orchestrator with its token and the position of its last map.
pub struct FakeOrchestrator {
    pub name: &'static str,
    token: String,
    pub lineage: &'static str,
    pub sequence: u64,
    /// Cursor that the next maps name as read. `None` names none.
    pub seen: Option<String>,
}

impl FakeOrchestrator {
    pub async fn new(fixture: &Fixture, name: &'static str) -> Self {
        let body = json!({ "name": name, "users": ["ada", "ben"] });
        let created: OrchestratorCreated = fixture
            .client("olga", &[Scope::Operator])
            .post("/v1/orchestrators", &body, None)
            .await
            .unwrap();
        Self {
            name,
            token: created.token,
            lineage: "first",
            sequence: 0,
            seen: None,
        }
    }

    pub fn client(&self, fixture: &Fixture) -> Client {
        fixture.client_with_token(&self.token)
    }

    pub fn path(&self) -> String {
        format!("/v1/orchestrators/{}/publication", self.name)
    }

    /// Puts the next map of its lineage.
    pub async fn put(&mut self, fixture: &Fixture, work: Value) -> MapAnswer {
        self.sequence += 1;
        self.put_again(fixture, work).await
    }

    /// Puts a map with the last sequence number.
    pub async fn put_again(&self, fixture: &Fixture, work: Value) -> MapAnswer {
        self.try_put(fixture, work).await.unwrap()
    }

    pub async fn try_put(&self, fixture: &Fixture, work: Value) -> Result<MapAnswer, ClientError> {
        let map = json!({ "lineage": self.lineage, "sequence": self.sequence, "seen": self.seen,
            "work": work });
        self.client(fixture).put(&self.path(), &map).await
    }

    pub async fn view(&self, fixture: &Fixture) -> OrchestratorView {
        let path = format!("/v1/orchestrators/{}", self.name);
        self.client(fixture).get(&path).await.unwrap()
    }

    pub async fn cursor(&self, fixture: &Fixture) -> String {
        let path = format!("/v1/orchestrators/{}/allocations/publication", self.name);
        let update: Update<Allotted> = self.client(fixture).get(&path).await.unwrap();
        update.cursor
    }

    /// Returns all entries that are published for the orchestrator.
    pub async fn entries(&self, fixture: &Fixture) -> BTreeMap<String, Allotted> {
        let path = format!("/v1/orchestrators/{}/allocations/publication", self.name);
        let update: Update<Allotted> = self.client(fixture).get(&path).await.unwrap();
        update.changed
    }

    pub async fn work_entry(&self, fixture: &Fixture, work: &str) -> Option<WorkStanding> {
        match self.entries(fixture).await.remove(&format!("work/{work}")) {
            Some(Allotted::Work(entry)) => Some(entry),
            _ => None,
        }
    }

    pub async fn share(&self, fixture: &Fixture, id: &AllocationId) -> Option<ShareEntry> {
        match self.entries(fixture).await.remove(id.as_str()) {
            Some(Allotted::Share(share)) => Some(share),
            _ => None,
        }
    }

    /// Waits until the orchestrator can read a share.
    pub async fn wait_share(&self, fixture: &Fixture, entry: &AllocationEntry) -> ShareEntry {
        let what = format!("{} to read {}", self.name, entry.id);
        until(&what, async || self.share(fixture, &entry.id).await).await
    }

    /// Returns the demand of a piece of the orchestrator's work.
    pub async fn demand(&self, fixture: &Fixture, work: &str) -> Option<DemandEntry> {
        let id = self.work_entry(fixture, work).await?.id?;
        fixture.demand().await.remove(id.as_str())
    }

    /// Waits for the demand of a piece of the orchestrator's work.
    pub async fn wait_demand(&self, fixture: &Fixture, work: &str) -> DemandEntry {
        until(&format!("demand of {work}"), async || {
            self.demand(fixture, work).await
        })
        .await
    }
}

/// Returns the entry of a running job of ada with at most three processes.
pub fn job() -> Value {
    json!({ "kind": "job", "state": "running", "owner": "ada", "max_processes": 3 })
}

/// Returns an entry with changed fields.
pub fn with_fields(mut entry: Value, fields: Value) -> Value {
    if let (Some(entry), Value::Object(fields)) = (entry.as_object_mut(), fields) {
        entry.extend(fields);
    }
    entry
}

/// Returns processes by share, in these states.
pub fn processes(states: &[(&AllocationEntry, &str)]) -> Value {
    let reports = states.iter();
    let reports = reports.map(|(share, state)| (share.id.to_string(), json!({ "state": state })));
    json!({ "processes": reports.collect::<BTreeMap<_, _>>() })
}
