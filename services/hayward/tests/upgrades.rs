//! Tests database compatibility of two versions: migrations only add, rows survive them, and
//! queries of the previous version still run. (A17)

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hayward::prepare::{PUBLICATION, SERVICES};
use hayward_postgres::{Schema, SharedMigrations, contractions, prepare};
use hayward_testkit::{TestServer, database};
use serde::{Deserialize, Serialize};
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// Migrations that remove something: schema, number, and the version of Hayward that added the
/// migration. The version before that one no longer uses what the migration removes. Version 0.1.0
/// has no previous version.
const CONTRACTIONS: [(&str, i64, &str); 1] = [("blocklist", 2, "0.1.0")];

/// Queries of the last released version. Each release records its queries:
/// `BLESS=.sqlx cargo test -p hayward --test upgrades`.
const QUERIES: &str = "tests/upgrades/queries.json";

#[derive(Debug, Serialize, Deserialize)]
struct Query {
    /// Schemas in which the query can be planned.
    schemas: BTreeSet<String>,
    query: String,
}

// The previous version still runs on the new tables during an upgrade. (A17)
#[test]
fn migrations_remove_only_what_is_listed() {
    let shared = PUBLICATION.migrator.iter().map(|it| (PUBLICATION.name, it));
    let own_migrations = SERVICES
        .iter()
        .flat_map(|(_, schema)| schema.migrator.iter().map(|it| (schema.name, it)));
    for (owner, migration) in shared.chain(own_migrations) {
        let allowed = CONTRACTIONS
            .iter()
            .any(|(name, version, _)| (*name, *version) == (owner, migration.version));
        let found = contractions(migration.sql.as_str());
        assert_eq!(
            !found.is_empty(),
            allowed,
            "{owner} {}: {found:?}; what takes something away comes a version after the one that \
             stopped to use it, and is listed here",
            migration.version
        );
    }
}

fn crate_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

async fn connect_as_role(database: &hayward_testkit::TestDatabase, role: &str) -> PgConnection {
    let url = database.url(role);
    PgConnection::connect(&url).await.expect("a connection")
}

/// Checks whether the server can plan the query with the permissions and tables of this role.
async fn check_plannable(connection: &mut PgConnection, query: &str) -> Result<(), String> {
    let prepare = format!("prepare it as {query}");
    let prepared = connection.execute(AssertSqlSafe(prepare)).await;
    let dropped = connection.execute("deallocate all").await;
    dropped.expect("the connection survives");
    prepared.map(drop).map_err(|error| error.to_string())
}

// The server plans each recorded query with the tables and permissions of this version. (A17)
#[tokio::test(flavor = "multi_thread")]
async fn queries_of_the_previous_version_run_on_the_current_tables() {
    let schemas = SERVICES.map(|(_, schema)| schema);
    let database = database(&schemas).await;
    let mut roles = BTreeMap::new();
    for schema in schemas {
        roles.insert(schema.name, connect_as_role(&database, schema.name).await);
    }
    if let Ok(from) = std::env::var("BLESS") {
        record_queries(Path::new(&from), &mut roles).await;
    }
    let text = std::fs::read_to_string(crate_file(QUERIES)).expect("the recorded queries");
    let queries: Vec<Query> = serde_json::from_str(&text).expect("a list");
    assert!(
        queries.len() > 100,
        "only {} queries are recorded",
        queries.len()
    );
    let mut failures = Vec::new();
    for Query { schemas, query } in &queries {
        for schema in schemas {
            let connection = roles
                .get_mut(schema.as_str())
                .expect("a schema of a service");
            if let Err(error) = check_plannable(connection, query).await {
                failures.push(format!("{schema}: {error}: {query}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Records each query of an sqlx folder, with the schemas in which it can be planned.
async fn record_queries(from: &Path, roles: &mut BTreeMap<&str, PgConnection>) {
    let entries = std::fs::read_dir(crate_file("../..").join(from)).expect("a folder of queries");
    let mut all = BTreeMap::new();
    for file in entries.flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a file");
        let document: serde_json::Value = serde_json::from_str(&text).expect("a query of sqlx");
        let query = document["query"].as_str().expect("a query").to_owned();
        let mut schemas = BTreeSet::new();
        for (schema, connection) in &mut *roles {
            if check_plannable(connection, &query).await.is_ok() {
                schemas.insert((*schema).to_owned());
            }
        }
        // Queries on tables that only tests have are skipped.
        if !schemas.is_empty() {
            all.insert(query, schemas);
        }
    }
    let all: Vec<Query> = all
        .into_iter()
        .map(|(query, schemas)| Query { schemas, query })
        .collect();
    let text = serde_json::to_string_pretty(&all).expect("json") + "\n";
    std::fs::write(crate_file(QUERIES), text).expect("written");
}

/// Returns all migrations except the last, as the previous version has them.
fn without_last_migration(migrator: &Migrator) -> Migrator {
    let mut all: Vec<_> = migrator.iter().cloned().collect();
    all.sort();
    all.pop();
    Migrator::with_migrations(all)
}

/// Rows of the previous version, one for each table that the last migration changes. Each row has a
/// query that must find it after the migration.
const ROWS: [(&str, &str, &str); 9] = [
    (
        "job_converter",
        "insert into work (id, kind, user_name, submitted_at_ms, revision, submission)
         values (gen_random_uuid(), 'job', 'ada', 1, 1, '{}')",
        "select user_name = 'ada' and groups is null from work",
    ),
    (
        "rm_scheduler",
        "insert into pool_worker (pool_id, resource_id, state, ordered)
         values ('wp_1', 'r1', 'STARTED', false)",
        "select resource_id = 'r1' and not idle from pool_worker",
    ),
    (
        "container_manager",
        "insert into container (id, work, kind, user_name, node, incarnation, size, state, epoch,
                                ordered_at_ms)
         values ('alc_1', 'job_1', 'job', 'ada', 'n1', 1, '{}', 'running', 1, 1)",
        "select state = 'running' and reason is null from container",
    ),
    (
        "node_status",
        "insert into node (node, pool, inventory, boot_id, agent_instance, quiesced, health,
                           health_reason, schedulable, off_reason, since_ms)
         values ('n1', 'default', '{}', 'b', 'a', false, 'healthy', '', true, '', 1)",
        "select health = 'healthy' and rivals = '{}' from node",
    ),
    ("job_converter", WRITER_UPDATE, WRITER_CHECK),
    ("rm_scheduler", WRITER_UPDATE, WRITER_CHECK),
    ("container_manager", WRITER_UPDATE, WRITER_CHECK),
    ("node_status", WRITER_UPDATE, WRITER_CHECK),
    ("blocklist", WRITER_UPDATE, WRITER_CHECK),
];
/// Every service has a table `writer` with one row, for its history and its lease.
const WRITER_UPDATE: &str = "update writer set revision = 7, epoch = 3, holder = 'before'";
const WRITER_CHECK: &str = "select revision = 7 and epoch = 3 and went_back is null from writer";

// Rows are written before the last migration and read after it. (A17)
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_the_previous_version_survive_an_upgrade_and_a_downgrade() {
    let server = TestServer::start().await;
    let shared = without_last_migration(PUBLICATION.migrator);
    let shared = [SharedMigrations {
        name: PUBLICATION.name,
        migrator: &shared,
    }];
    let own_migrations = SERVICES.map(|(_, schema)| without_last_migration(schema.migrator));
    let old: Vec<Schema<'_>> = SERVICES
        .iter()
        .zip(&own_migrations)
        .map(|((_, schema), migrator)| Schema {
            name: schema.name,
            migrator,
            shared: &shared,
        })
        .collect();
    let database = server.database(&old).await;
    for (schema, insert, _) in ROWS {
        let mut connection = connect_as_role(&database, schema).await;
        let result = connection.execute(insert).await;
        assert_eq!(result.expect(schema).rows_affected(), 1);
    }
    let (admin, new) = (database.url("postgres"), SERVICES.map(|(_, it)| it));
    // An upgrade, its repetition and a downgrade run no migration twice and undo none.
    for schemas in [&new[..], &new, &old, &new] {
        let prepared = prepare(&admin, schemas, &BTreeMap::new()).await;
        prepared.expect("it may be prepared by either version");
        for (schema, _, query) in ROWS {
            let mut connection = connect_as_role(&database, schema).await;
            let has_rows: bool = sqlx::query_scalar(query)
                .fetch_one(&mut connection)
                .await
                .expect(query);
            assert!(has_rows, "{schema}: {query}");
        }
    }
}
