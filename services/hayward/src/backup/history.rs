//! The histories in a database: how far each service has written its own, who writes on, and how
//! an operator begins another (R9).

use std::collections::BTreeMap;

use hayward_publication::follower::DECIDED;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::prepare::SERVICES;

/// Terms of before stay below those of after by more than anybody can have missed.
const LEAP: i64 = 1_000;

/// The history of one service, as its row says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub lineage: String,
    pub revision: i64,
    pub epoch: i64,
    /// Why nothing is written: the database went back in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<String>,
}

/// Who may be writing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Writers {
    /// Holders of leases that have not run out, by schema.
    pub leases: BTreeMap<String, String>,
    /// Connections of services.
    pub connections: i64,
}

impl Writers {
    /// Why the database cannot be taken from under them.
    pub fn refusal(&self) -> Option<String> {
        let leases: Vec<String> = self
            .leases
            .iter()
            .map(|(schema, holder)| format!("{schema} is led by {holder}"))
            .collect();
        if self.connections > 0 {
            let said = leases.first().map(|it| format!("; {it}"));
            let connections = crate::output::format::count(
                u64::try_from(self.connections).unwrap_or(0),
                "connection",
            );
            return Some(format!(
                "services have {connections} to this database{}: stop all services, standbys too",
                said.unwrap_or_default()
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

/// A schema's row, where the schema is there and was migrated.
async fn row(
    connection: &mut PgConnection,
    schema: &str,
) -> Result<Option<sqlx::postgres::PgRow>, sqlx::Error> {
    let there = "select to_regclass($1) is not null";
    let table = format!("{schema}.writer");
    let there: bool = sqlx::query_scalar(there)
        .bind(&table)
        .fetch_one(&mut *connection)
        .await?;
    if !there {
        return Ok(None);
    }
    // An older version has no such column.
    let row = format!(
        "select lineage::text as lineage, revision, epoch, holder,
                expires_at > clock_timestamp() as fresh, to_jsonb(w) ->> 'went_back' as went_back
           from {table} w"
    );
    let row = sqlx::query(AssertSqlSafe(row)).fetch_one(connection).await;
    row.map(Some)
}

/// All histories there are, by schema.
pub async fn histories(
    connection: &mut PgConnection,
) -> Result<BTreeMap<String, History>, sqlx::Error> {
    let mut all = BTreeMap::new();
    for (_, schema) in SERVICES {
        let Some(row) = row(connection, schema.name).await? else {
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

pub async fn writers(connection: &mut PgConnection) -> Result<Writers, sqlx::Error> {
    let mut writers = Writers::default();
    for (_, schema) in SERVICES {
        if let Some(row) = row(connection, schema.name).await?
            && row.try_get("fresh")?
        {
            let holder = row.try_get("holder")?;
            writers.leases.insert(schema.name.to_owned(), holder);
        }
    }
    let roles: Vec<&str> = SERVICES.iter().map(|(_, schema)| schema.name).collect();
    let connected = "select count(*) from pg_stat_activity
                      where datname = current_database() and usename::text = any($1)";
    let connected = sqlx::query_scalar(connected).bind(roles);
    writers.connections = connected.fetch_one(connection).await?;
    Ok(writers)
}

/// The rows of this schema are another history from now on, and its terms later than all before.
pub fn begin_another(schema: &str, highest_epoch: i64) -> [String; 3] {
    [
        format!(
            "update {schema}.writer
                set lineage = gen_random_uuid(), epoch = greatest(epoch, {highest_epoch}) + {LEAP},
                    holder = '', expires_at = '-infinity'"
        ),
        // How far neighbours were read is of the histories of before.
        format!("delete from {schema}.followed"),
        format!(
            "insert into {schema}.followed (source, lineage, revision)
             values ('{DECIDED}', gen_random_uuid(), 0)"
        ),
    ]
}

/// The verdict of before is not one about this history. For schemas that are migrated.
pub fn forgive(schema: &str) -> String {
    format!("update {schema}.writer set went_back = null")
}
