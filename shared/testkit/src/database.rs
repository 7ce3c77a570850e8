//! A new, migrated database for each test, on one private server per test process.
//!
//! The first test with a given set of schemas runs their migrations. Later tests get a copy of that
//! database. Fault tests use their own [`TestServer`].
//!
//! The database of a finished test is removed when the next test requests one. Disk usage is
//! therefore limited to running tests.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hayward_postgres::{Embedded, Schema, create_database, drop_database, prepare};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

use crate::server_folder::{ServerFolder, settings};

/// A database for one test. Its value must live as long as the test uses the database.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    /// Address for the superuser.
    admin_url: String,
    finished: FinishedDatabases,
}

/// Addresses of the databases of finished tests. They can be removed.
type FinishedDatabases = Arc<Mutex<Vec<String>>>;

impl TestDatabase {
    /// Returns the address for a role: `postgres` for the superuser, the name of a schema for its
    /// runner.
    pub fn url(&self, role: &str) -> String {
        self.admin_url
            .replacen("//postgres@", &format!("//{role}@"), 1)
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestDatabase {
    // Drop cannot await, and services of the test may still be shutting down.
    fn drop(&mut self) {
        self.finished
            .lock()
            .push(std::mem::take(&mut self.admin_url));
    }
}

/// Creates a database with these schemas, on the server shared by all tests of this process.
pub async fn database(schemas: &[Schema<'_>]) -> TestDatabase {
    static SHARED: OnceCell<TestServer> = OnceCell::const_new();
    SHARED
        .get_or_init(TestServer::start)
        .await
        .database(schemas)
        .await
}

/// A private server for one test, which may stop, kill and start it. The addresses of its databases
/// do not change.
#[derive(Debug)]
pub struct TestServer {
    // The server is declared before the folder, so that it stops before its folder is removed.
    embedded: AsyncMutex<Option<Embedded>>,
    folder: ServerFolder,
    next_number: AtomicU32,
    /// Names of the databases to copy, by fingerprint of their schemas.
    templates: Mutex<HashMap<String, Arc<OnceCell<String>>>>,
    finished: FinishedDatabases,
}

impl TestServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If Postgres is not installed, or the server does not start.
    pub async fn start() -> Self {
        let folder = ServerFolder::create()
            .await
            .expect("a folder for a test server");
        let embedded = Embedded::start(settings(&folder.home))
            .await
            .expect("a test server");
        Self {
            embedded: AsyncMutex::new(Some(embedded)),
            folder,
            next_number: AtomicU32::new(0),
            templates: Mutex::default(),
            finished: FinishedDatabases::default(),
        }
    }

    /// Creates a database with these schemas.
    ///
    /// # Panics
    /// If the server is stopped, or a migration fails.
    pub async fn database(&self, schemas: &[Schema<'_>]) -> TestDatabase {
        let cell = {
            let mut templates = self.templates.lock();
            Arc::clone(templates.entry(fingerprint(schemas)).or_default())
        };
        let template = cell
            .get_or_init(async || {
                let name = format!("template_{}", self.next_number());
                prepare(&self.admin_url(&name).await, schemas, &BTreeMap::new())
                    .await
                    .expect("the schemas of a test database");
                name
            })
            .await;
        self.drop_finished_databases().await;
        let name = format!("test_{}", self.next_number());
        let admin_url = self.admin_url(&name).await;
        create_database(&admin_url, template)
            .await
            .expect("a copy of the prepared database");
        let finished = Arc::clone(&self.finished);
        TestDatabase {
            name,
            admin_url,
            finished,
        }
    }

    /// Removes databases of finished tests. If one cannot be removed, it only uses disk space.
    async fn drop_finished_databases(&self) {
        let finished = std::mem::take(&mut *self.finished.lock());
        for admin_url in finished {
            let _ = drop_database(&admin_url).await;
        }
    }

    /// Stops the server as an operator would. It stays down until [`Self::resume`].
    pub async fn stop(&self) {
        if let Some(server) = self.embedded.lock().await.take() {
            server.stop().await;
        }
    }

    /// Ends every connection and the server at once, like a crash.
    pub async fn kill(&self) {
        if let Some(server) = self.embedded.lock().await.take() {
            server.kill().await;
        }
    }

    /// Starts a stopped or killed server again. It recovers committed data.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn resume(&self) {
        let mut embedded = self.embedded.lock().await;
        if embedded.is_none() {
            let server = Embedded::start(settings(&self.folder.home)).await;
            *embedded = Some(server.expect("the test server once more"));
        }
    }

    pub async fn restart(&self) {
        self.stop().await;
        self.resume().await;
    }

    async fn admin_url(&self, database: &str) -> String {
        let embedded = self.embedded.lock().await;
        let server = embedded.as_ref().expect("the test server is stopped");
        server.url(database)
    }

    fn next_number(&self) -> u32 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns a text that is equal for sets of schemas with the same tables.
fn fingerprint(schemas: &[Schema<'_>]) -> String {
    let mut text = String::new();
    for schema in schemas {
        let shared = schema
            .shared
            .iter()
            .map(|shared| (shared.name, shared.migrator));
        for (name, migrator) in shared.chain([(schema.name, schema.migrator)]) {
            let checksums: Vec<_> = migrator
                .iter()
                .map(|migration| &migration.checksum)
                .collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {checksums:?}");
        }
    }
    text
}
