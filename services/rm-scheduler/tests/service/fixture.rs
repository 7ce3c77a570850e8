//! The fixture of the service tests: one rm-scheduler on a real Postgres, and its simulated
//! neighbours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::ContainerState;
use hayward_postgres::{Schema, SharedMigrations};
use hayward_publication::{Publisher, Update, WentBack};
use hayward_rm_scheduler::{MIGRATOR, SCHEMA, Settings, start};
use hayward_rm_scheduler_api::node_publications::ClearingEntry;
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VerdictEntry, WaitReason};
use hayward_service::auth::{Groups, TokenSpec};
use hayward_service::client::{Client, TokenSource};
use hayward_service::{Keys, Scope, Shutdown, SystemClock};
use hayward_testkit::{TestDatabase, until};
use hayward_vocabulary::{Exit, ExitCause};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::neighbours::{Neighbours, container, node};

/// Time limit of one wait. It ends a test whose condition never becomes true.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Published allocations, by id.
pub type Allocations = BTreeMap<String, AllocationEntry>;

pub struct Fixture {
    pub neighbours: Neighbours,
    pub settings: Settings,
    keys: Keys,
    running: Option<Replica>,
    /// Number of rounds forced so far, see [`Self::force_round`].
    forced_rounds: AtomicU64,
    database: TestDatabase,
    _folder: tempfile::TempDir,
}

/// A scheduler in a runtime of its own, so that it can be killed at any instant.
pub struct Replica {
    runtime: Runtime,
    publisher: Arc<Publisher>,
    url: String,
}

impl Replica {
    async fn start(settings: &Settings) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let settings = settings.clone();
        let started = runtime.spawn(async move {
            let running = start(settings, Shutdown::new()).await.unwrap();
            let handle = (running.address, running.publisher.clone());
            tokio::spawn(running.wait_until_stopped());
            handle
        });
        let (address, publisher) = started.await.unwrap();
        Self {
            runtime,
            publisher,
            url: format!("http://{address}"),
        }
    }

    pub async fn wait_for_lease(&self) {
        let publisher = &self.publisher;
        until("the lease", async || publisher.leading().ok()).await;
    }

    pub fn is_leading(&self) -> bool {
        self.publisher.leading().is_ok()
    }
}

impl Fixture {
    /// Starts a scheduler for the nodes `n1`, `n2` and so on, which have these quanta.
    pub async fn new(quanta: &[u64]) -> Self {
        let mut fixture = Self::not_started(quanta).await;
        fixture.start().await;
        fixture
    }

    /// Creates the same fixture without starting the scheduler.
    pub async fn not_started(quanta: &[u64]) -> Self {
        let shared = [SharedMigrations {
            name: "publication",
            migrator: &hayward_publication::MIGRATOR,
        }];
        let schema = Schema {
            name: SCHEMA,
            migrator: &MIGRATOR,
            shared: &shared,
        };
        let database = hayward_testkit::database(&[schema]).await;
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::create(folder.path().join("keys")).unwrap();
        for (name, scope) in [
            ("rm-scheduler", Scope::Service("rm-scheduler".into())),
            ("job-converter", Scope::Service("job-converter".into())),
            ("operator", Scope::Operator),
            ("viewer", Scope::Viewer),
            ("ann", Scope::Submitter),
        ] {
            let clock = Arc::new(SystemClock);
            let spec = TokenSpec {
                subject: name,
                scopes: &[scope],
                groups: Groups::NONE,
                life_ms: 3_600_000,
                clock,
            };
            keys.write_token(name, &spec).unwrap();
        }
        let neighbours = Neighbours::start().await;
        for (index, quanta) in quanta.iter().enumerate() {
            neighbours.node(&format!("n{}", index + 1), *quanta);
        }
        let url = neighbours.url.clone();
        let mut settings = Settings {
            job_converter_url: url.clone(),
            node_status_url: url.clone(),
            blocklist_url: url.clone(),
            container_manager_url: url,
            round_max_ms: 50,
            ..Settings::default()
        };
        settings.server.listen = "127.0.0.1:0".parse().unwrap();
        settings.server.database_url = Some(database.url(SCHEMA));
        settings.server.keys = Some(keys.dir().to_owned());
        settings.server.lease_ms = 1_000;
        Self {
            neighbours,
            settings,
            keys,
            running: None,
            forced_rounds: AtomicU64::new(0),
            database,
            _folder: folder,
        }
    }

    pub async fn start(&mut self) {
        let replica = Replica::start(&self.settings).await;
        replica.wait_for_lease().await;
        self.running = Some(replica);
    }

    /// Kills the scheduler: without a last commit, and without returning the lease.
    pub fn kill(&mut self) {
        if let Some(replica) = self.running.take() {
            replica.runtime.shutdown_background();
        }
    }

    pub async fn restart(&mut self) {
        self.kill();
        self.start().await;
    }

    /// Starts another replica on the same database.
    pub async fn second_replica(&self) -> Replica {
        Replica::start(&self.settings).await
    }

    /// Kills the scheduler and uses this replica instead.
    pub fn take_over(&mut self, replica: Replica) {
        self.kill();
        self.running = Some(replica);
    }

    pub fn revision(&self) -> u64 {
        self.running
            .as_ref()
            .map(|replica| replica.publisher.revision())
            .unwrap()
    }

    /// Makes the scheduler assume that its database went back in time.
    pub fn report_went_back(&self) {
        let publisher = &self.running.as_ref().unwrap().publisher;
        publisher.stop_writing(WentBack {
            lineage: publisher.lineage(),
            evidence: "a test says so".to_owned(),
        });
    }

    pub fn client(&self, name: &str) -> Client {
        self.client_for_replica(self.running.as_ref().unwrap(), name)
    }

    /// Returns a client with this token.
    pub fn client_with_token(&self, token: &str) -> Client {
        let url = &self.running.as_ref().unwrap().url;
        Client::new([url], TokenSource::fixed(token)).unwrap()
    }

    pub fn client_for_replica(&self, replica: &Replica, name: &str) -> Client {
        Client::new(
            [&replica.url],
            TokenSource::fixed(self.keys.token(name).unwrap()),
        )
        .unwrap()
    }

    pub fn anonymous_client(&self) -> Client {
        Client::new([&self.running.as_ref().unwrap().url], TokenSource::none()).unwrap()
    }

    /// Follows a publication until `find` returns a value. `what` describes the awaited state.
    async fn follow<T: DeserializeOwned, R>(
        &self,
        name: &str,
        what: &str,
        find: impl Fn(&BTreeMap<String, T>) -> Option<R>,
    ) -> R {
        let client = self.client("job-converter");
        let following = async {
            let mut known: BTreeMap<String, T> = BTreeMap::new();
            let mut path = format!("/v1/{name}/publication");
            loop {
                let update: Update<T> = client.get(&path).await.unwrap();
                if update.full {
                    known.clear();
                }
                known.extend(update.changed);
                for key in update.removed {
                    known.remove(&key);
                }
                if let Some(found) = find(&known) {
                    return found;
                }
                path = format!("/v1/{name}/publication?wait=5&since={}", update.cursor);
            }
        };
        let found = tokio::time::timeout(TIMEOUT, following).await;
        found.unwrap_or_else(|_| panic!("never: {what}"))
    }

    /// Waits until the allocations satisfy the condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&Allocations) -> bool) -> Allocations {
        let find = |all: &Allocations| condition(all).then(|| all.clone());
        self.follow("allocations", what, find).await
    }

    /// Waits until one allocation of this work satisfies the condition.
    pub async fn until_one(
        &self,
        work: &str,
        what: &str,
        condition: impl Fn(&AllocationEntry) -> bool,
    ) -> AllocationEntry {
        let find = |all: &Allocations| {
            all.values()
                .find(|entry| entry.work.as_str() == work && condition(entry))
                .cloned()
        };
        self.follow("allocations", &format!("{work} {what}"), find)
            .await
    }

    /// Waits until the verdict of this work has the reason.
    pub async fn until_verdict(&self, work: &str, reason: WaitReason) -> VerdictEntry {
        let find = |all: &BTreeMap<String, VerdictEntry>| {
            all.get(work)
                .filter(|verdict| verdict.reason == reason)
                .cloned()
        };
        self.follow("verdicts", &format!("{work} {reason:?}"), find)
            .await
    }

    /// Waits until a verdict satisfies the condition.
    pub async fn until_verdict_matches(
        &self,
        work: &str,
        what: &str,
        condition: impl Fn(&VerdictEntry) -> bool,
    ) -> VerdictEntry {
        let find = |all: &BTreeMap<String, VerdictEntry>| {
            all.get(work).filter(|verdict| condition(verdict)).cloned()
        };
        self.follow("verdicts", &format!("{work} {what}"), find)
            .await
    }

    /// Waits until an entry of another publication satisfies the condition.
    pub async fn until_entry<T: DeserializeOwned + Clone>(
        &self,
        name: &str,
        key: &str,
        what: &str,
        condition: impl Fn(&T) -> bool,
    ) -> T {
        let find = |all: &BTreeMap<String, T>| all.get(key).filter(|it| condition(it)).cloned();
        self.follow(name, &format!("{key} {what}"), find).await
    }

    /// Adds a block and waits until it is in force.
    pub async fn block(&self, block: &BlockEntry) {
        self.neighbours.block(block);
        let number = block.removal_no;
        let is_in_force = |it: &ClearingEntry| it.number == number;
        self.until_entry("clearings", &block.key(), "is in force", is_in_force)
            .await;
    }

    /// Waits until an entry is withdrawn.
    pub async fn until_withdrawn(&self, name: &str, key: &str) {
        let is_absent =
            |all: &BTreeMap<String, serde_json::Value>| (!all.contains_key(key)).then_some(());
        self.follow(name, &format!("{key} gone"), is_absent).await;
    }

    /// Returns the current entries of a publication.
    pub async fn entries<T: DeserializeOwned>(&self, name: &str) -> BTreeMap<String, T> {
        let client = self.client("job-converter");
        let path = format!("/v1/{name}/publication");
        let update: Update<T> = client.get(&path).await.unwrap();
        update.changed
    }

    /// Reports the end of a process with this exit, as container-manager would.
    pub fn end(&self, allocation: &AllocationEntry, exit: Exit) {
        let mut entry = container(allocation, ContainerState::Ended);
        entry.exit = Some(exit);
        self.neighbours
            .containers
            .put(allocation.id.as_str(), &entry);
    }

    /// Reports the allocation of this work as running, and waits for that.
    pub async fn report_running(&self, work: &str) -> AllocationEntry {
        let granted = self.until_one(work, "is there", is_staying).await;
        self.report(&granted, ContainerState::Running);
        let is_running = |entry: &AllocationEntry| {
            entry.id == granted.id && entry.state == AllocationState::Running
        };
        self.until_one(work, "runs", is_running).await
    }

    pub async fn allocations(&self) -> Allocations {
        let client = self.client("job-converter");
        let update: Update<_> = client.get("/v1/allocations/publication").await.unwrap();
        update.changed
    }

    pub async fn verdicts(&self) -> BTreeMap<String, VerdictEntry> {
        let client = self.client("job-converter");
        let update: Update<_> = client.get("/v1/verdicts/publication").await.unwrap();
        update.changed
    }

    /// Returns the first column of a query, as text.
    pub async fn rows(&self, sql: &'static str) -> Vec<String> {
        let pool = hayward_postgres::connect(&self.database.url("postgres"), 1)
            .await
            .unwrap();
        let rows = sqlx::query_scalar(sql).fetch_all(&pool).await.unwrap();
        pool.close().await;
        rows
    }

    pub async fn shares(&self) -> Option<Shares> {
        self.client("viewer").get("/v1/shares").await.ok()
    }

    /// Reports a container as container-manager would.
    pub fn report(&self, allocation: &AllocationEntry, state: ContainerState) {
        let mut entry = container(allocation, state);
        if state == ContainerState::Ended {
            entry.exit = Some(Exit::of(ExitCause::Intended, "asked to"));
        }
        self.neighbours
            .containers
            .put(allocation.id.as_str(), &entry);
    }

    /// Waits until all changes of neighbours are absorbed and a further round does not change the
    /// revision.
    pub async fn settle(&self) {
        self.neighbours.until_absorbed().await;
        // The current round may have begun before the changes arrived.
        self.force_round().await;
        until("a round without changes", async || {
            let before = self.revision();
            self.force_round().await;
            (self.revision() == before).then_some(())
        })
        .await;
    }

    /// Reports the end of each vacated allocation, until no allocation is leaving.
    pub async fn confirm_all_ends(&self) -> Allocations {
        loop {
            self.settle().await;
            let all = self.allocations().await;
            let leaving: Vec<_> = all
                .values()
                .filter(|it| it.holds() && !is_staying(it))
                .collect();
            if leaving.is_empty() {
                return all;
            }
            for entry in leaving {
                self.report(entry, ContainerState::Ended);
            }
        }
    }

    /// Changes the node `probe`, which has no space, and waits for the round that absorbed the
    /// change.
    pub async fn force_round(&self) {
        let now = self.shares().await.map_or(0, |shares| shares.round);
        let mut probe = node("probe", 0);
        let number = self.forced_rounds.fetch_add(1, Ordering::Relaxed);
        probe.agent_instance = format!("probe {number}");
        self.neighbours.nodes.put("probe", &probe);
        until("a round", async || {
            self.shares().await.filter(|shares| shares.round > now)
        })
        .await;
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the allocations of this work.
pub fn allocations_of(all: &Allocations, work: &str) -> Vec<AllocationEntry> {
    all.values()
        .filter(|entry| entry.work.as_str() == work)
        .cloned()
        .collect()
}

/// Returns true if the allocation has not ended and is not vacated.
pub fn is_staying(entry: &AllocationEntry) -> bool {
    entry.state != AllocationState::Ended && entry.vacate.is_none()
}
