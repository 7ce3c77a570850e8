//! Reads the histories and current writers of a database, and begins new histories. A history is
//! one uninterrupted sequence of revisions of a service. Its lineage identifies it. (R9)

use std::collections::BTreeMap;

use hayward_publication::follower::HISTORY_DECISION;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::prepare::SERVICES;

/// Step between the epochs of two histories. It is larger than any number of terms that a restore
/// can lose.
const EPOCH_STEP: i64 = 1_000;

/// The history of one service, from its row in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Identity of the history.
    pub lineage: String,
    /// Number of the last change.
    pub revision: i64,
    /// Number of the last term of leadership.
    pub epoch: i64,
    /// Reason why the service is read-only after the database went back in time. `None` if the
    /// service may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<String>,
}

/// Possible writers of the database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Writers {
    /// Holders of valid leases, by schema.
    pub leases: BTreeMap<String, String>,
    /// Number of database connections that services have open.
    pub connections: i64,
}

impl Writers {
    /// Returns the reason why the database cannot be replaced now. Returns `None` if no service
    /// uses it.
    pub fn refusal(&self) -> Option<String> {
        let leases: Vec<String> = self
            .leases
            .iter()
            .map(|(schema, holder)| format!("{schema} is led by {holder}"))
            .collect();
        if self.connections > 0 {
            let first_lease = leases.first().map(|it| format!("; {it}"));
            let connections = crate::output::format::format_count(
                u64::try_from(self.connections).unwrap_or(0),
                "connection",
            );
            return Some(format!(
                "services have {connections} to this database{}: stop all services, standbys too",
                first_lease.unwrap_or_default()
            ));
        }
        (!leases.is_empty()).then(|| {
            format!(
                "a service wrote here moments ago ({}): stop it, or wait for its lease to run out \
                 (`lease_ms`, 5 s) and try again",
                leases.join(", ")
            )
        })
    }
}

/// Reads the row of a service that has its history and the holder of its lease. Returns `None` if
/// the schema is missing or not migrated.
async fn read_writer_row(
    connection: &mut PgConnection,
    schema: &str,
) -> Result<Option<sqlx::postgres::PgRow>, sqlx::Error> {
    let query = "select to_regclass($1) is not null";
    let table = format!("{schema}.writer");
    let exists: bool = sqlx::query_scalar(query)
        .bind(&table)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(None);
    }
    // A database of an older version lacks the column `went_back`. The JSON of its row gives null
    // for it.
    let query = format!(
        "select lineage::text as lineage, revision, epoch, holder,
                expires_at > clock_timestamp() as fresh, to_jsonb(w) ->> 'went_back' as went_back
           from {table} w"
    );
    let row = sqlx::query(AssertSqlSafe(query))
        .fetch_one(connection)
        .await;
    row.map(Some)
}

/// Reads all histories in the database, by schema.
pub async fn read_histories(
    connection: &mut PgConnection,
) -> Result<BTreeMap<String, History>, sqlx::Error> {
    let mut all = BTreeMap::new();
    for (_, schema) in SERVICES {
        let Some(row) = read_writer_row(connection, schema.name).await? else {
            continue;
        };
        let history = History {
            lineage: row.try_get("lineage")?,
            revision: row.try_get("revision")?,
            epoch: row.try_get("epoch")?,
            went_back: row.try_get("went_back")?,
        };
        all.insert(schema.name.to_owned(), history);
    }
    Ok(all)
}

/// Reads the holders of valid leases, and counts the connections of the services.
pub async fn read_writers(connection: &mut PgConnection) -> Result<Writers, sqlx::Error> {
    let mut writers = Writers::default();
    for (_, schema) in SERVICES {
        if let Some(row) = read_writer_row(connection, schema.name).await?
            && row.try_get("fresh")?
        {
            let holder = row.try_get("holder")?;
            writers.leases.insert(schema.name.to_owned(), holder);
        }
    }
    let roles: Vec<&str> = SERVICES.iter().map(|(_, schema)| schema.name).collect();
    let query = "select count(*) from pg_stat_activity
                      where datname = current_database() and usename::text = any($1)";
    let query = sqlx::query_scalar(query).bind(roles);
    writers.connections = query.fetch_one(connection).await?;
    Ok(writers)
}

/// Returns the statements that begin a new history of this schema, with an epoch above all previous
/// ones.
pub fn new_history_statements(schema: &str, highest_epoch: i64) -> [String; 3] {
    let step = EPOCH_STEP;
    [
        format!(
            "update {schema}.writer
                set lineage = gen_random_uuid(), epoch = greatest(epoch, {highest_epoch}) + {step},
                    holder = '', expires_at = '-infinity'"
        ),
        // Cursors of neighbours belong to the previous histories.
        format!("delete from {schema}.followed"),
        format!(
            "insert into {schema}.followed (source, lineage, revision)
             values ('{HISTORY_DECISION}', gen_random_uuid(), 0)"
        ),
    ]
}

/// Returns the statement that lets a service write again after its database went back in time. The
/// schema must be migrated.
pub fn allow_writes_statement(schema: &str) -> String {
    format!("update {schema}.writer set went_back = null")
}
