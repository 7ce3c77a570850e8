//! Rows of orchestrators and of their work, with settled and published allocations.
//!
//! The work of an orchestrator is the entries of its last accepted map. Removed entries stay until
//! their last allocation has ended. Fields have the names of the columns.

use std::collections::BTreeMap;

use hayward_job_converter_api::orchestrators::ORCHESTRATED;
use hayward_vocabulary::UserName;
use sqlx::PgConnection;
use uuid::Uuid;

pub struct OrchestratorRow {
    /// Users that the orchestrator may charge for its work. `None` means all users.
    pub users: Option<Vec<String>>,
    pub created_at_ms: i64,
    /// Lineage of the last accepted map. `None` before the first map, as are the next two fields.
    pub lineage: Option<String>,
    /// Sequence number of the last accepted map.
    pub sequence: Option<i64>,
    /// Time at which the last map was accepted.
    pub accepted_at_ms: Option<i64>,
    /// Earlier lineages, oldest first. Their maps are no longer accepted.
    pub past: Vec<String>,
    /// Refused entries of the last map with their reasons, as JSON.
    pub faults: String,
}

/// One piece of work of an orchestrator.
pub struct WorkRow {
    /// Name of the orchestrator.
    pub orchestrator: String,
    /// Key of the work in the map.
    pub name: String,
    /// Entry of the map as last accepted, as JSON.
    pub entry: String,
    /// Time at which the work first arrived.
    pub arrived_at_ms: i64,
    /// Why the work gets no more processes. `None` while it may get some.
    pub over: Option<String>,
    /// Explanation of a refusal. `None` unless the work was refused.
    pub reason: Option<String>,
    /// True if the map no longer has the work. The row stays until its last allocation has ended.
    pub gone: bool,
}

/// Changes of one batch. The last change of each key counts.
#[derive(Default)]
pub struct Changes {
    orchestrators: BTreeMap<String, Option<OrchestratorRow>>,
    works: BTreeMap<Uuid, Option<WorkRow>>,
}

impl Changes {
    pub fn set_orchestrator(&mut self, name: &UserName, row: OrchestratorRow) {
        self.orchestrators.insert(name.to_string(), Some(row));
    }

    pub fn remove_orchestrator(&mut self, name: &UserName) {
        self.orchestrators.insert(name.to_string(), None);
    }

    pub fn set_work(&mut self, id: Uuid, row: WorkRow) {
        self.works.insert(id, Some(row));
    }

    pub fn remove_work(&mut self, id: Uuid) {
        self.works.insert(id, None);
    }

    pub fn row_count(&self) -> usize {
        self.orchestrators.len() + self.works.len()
    }
}

pub async fn write(tx: &mut PgConnection, changes: Changes) -> Result<(), sqlx::Error> {
    let mut removed_orchestrators = Vec::new();
    for (name, row) in changes.orchestrators {
        match row {
            Some(row) => upsert_orchestrator(tx, &name, &row).await?,
            None => removed_orchestrators.push(name),
        }
    }
    if !removed_orchestrators.is_empty() {
        sqlx::query!(
            "delete from orchestrator where name = any($1)",
            &removed_orchestrators
        )
        .execute(&mut *tx)
        .await?;
    }
    let (mut changed_works, mut removed_works) = (Vec::new(), Vec::new());
    for (id, row) in changes.works {
        match row {
            Some(row) => changed_works.push((id, row)),
            None => removed_works.push(id),
        }
    }
    upsert_works(tx, &changed_works).await?;
    if removed_works.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from settled where work = any($1)", &removed_works)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "delete from orchestrated where id = any($1)",
        &removed_works
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Writes one orchestrator. There are few orchestrators, so each has its own statement.
async fn upsert_orchestrator(
    tx: &mut PgConnection,
    name: &str,
    row: &OrchestratorRow,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into orchestrator
            (name, users, created_at_ms, lineage, sequence, accepted_at_ms, past, faults)
         values ($1, $2, $3, $4, $5, $6, $7, $8::text::json)
         on conflict (name) do update
            set users = excluded.users, lineage = excluded.lineage,
                sequence = excluded.sequence, accepted_at_ms = excluded.accepted_at_ms,
                past = excluded.past, faults = excluded.faults",
        name,
        row.users.as_deref(),
        row.created_at_ms,
        row.lineage.as_deref(),
        row.sequence,
        row.accepted_at_ms,
        &row.past,
        row.faults
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn upsert_works(tx: &mut PgConnection, rows: &[(Uuid, WorkRow)]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = rows.iter().map(|(id, _)| *id).collect();
    let texts = |column: fn(&WorkRow) -> &String| -> Vec<String> {
        rows.iter().map(|(_, row)| column(row).clone()).collect()
    };
    let (orchestrators, names) = (texts(|row| &row.orchestrator), texts(|row| &row.name));
    let entries = texts(|row| &row.entry);
    let arrival_times: Vec<i64> = rows.iter().map(|(_, row)| row.arrived_at_ms).collect();
    let end_reasons: Vec<Option<String>> = rows.iter().map(|(_, row)| row.over.clone()).collect();
    let refusal_reasons: Vec<Option<String>> =
        rows.iter().map(|(_, row)| row.reason.clone()).collect();
    let removed_flags: Vec<bool> = rows.iter().map(|(_, row)| row.gone).collect();
    sqlx::query!(
        "insert into orchestrated
            (id, orchestrator, name, entry, arrived_at_ms, over, reason, gone)
         select new.id, new.whose, new.name, new.entry::json, new.at, new.over, new.reason, new.gone
           from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[],
                       $7::text[], $8::boolean[])
             as new (id, whose, name, entry, at, over, reason, gone)
         on conflict (id) do update
            set entry = excluded.entry, over = excluded.over, reason = excluded.reason,
                gone = excluded.gone",
        &ids,
        &orchestrators,
        &names,
        &entries,
        &arrival_times,
        &end_reasons as &[Option<String>],
        &refusal_reasons as &[Option<String>],
        &removed_flags
    )
    .execute(tx)
    .await
    .map(drop)
}

/// An orchestrator as read. Other fields are those of [`OrchestratorRow`].
pub struct StoredOrchestrator {
    pub name: String,
    pub users: Option<Vec<String>>,
    pub created_at_ms: i64,
    pub lineage: Option<String>,
    pub sequence: Option<i64>,
    pub accepted_at_ms: Option<i64>,
    pub past: Vec<String>,
    pub faults: String,
}

/// A piece of work as read. Other fields are those of [`WorkRow`].
pub struct StoredWork {
    pub id: Uuid,
    pub orchestrator: String,
    pub name: String,
    pub entry: String,
    pub arrived_at_ms: i64,
    pub over: Option<String>,
    pub reason: Option<String>,
    pub gone: bool,
}

/// An allocation that its orchestrator returned, or that ended and is not in the map any more. The
/// scheduler may then grant a successor.
pub struct SettledAllocation {
    pub work: Uuid,
    pub allocation: String,
}

/// An allocation published to an orchestrator.
pub struct PublishedAllocation {
    /// Name of the orchestrator.
    pub scope: String,
    /// Id of the allocation.
    pub key: String,
}

/// All rows as read when the service starts.
pub struct Stored {
    pub orchestrators: Vec<StoredOrchestrator>,
    pub works: Vec<StoredWork>,
    pub settled: Vec<SettledAllocation>,
    pub published_allocations: Vec<PublishedAllocation>,
}

pub async fn load(tx: &mut PgConnection) -> Result<Stored, sqlx::Error> {
    let orchestrators = sqlx::query_as!(
        StoredOrchestrator,
        r#"select name, users, created_at_ms, lineage, sequence, accepted_at_ms, past,
                  faults::text as "faults!"
             from orchestrator"#
    )
    .fetch_all(&mut *tx)
    .await?;
    let works = sqlx::query_as!(
        StoredWork,
        r#"select id, orchestrator, name, entry::text as "entry!", arrived_at_ms, over, reason,
                  gone
             from orchestrated order by id"#
    )
    .fetch_all(&mut *tx)
    .await?;
    let settled = sqlx::query_as!(
        SettledAllocation,
        "select s.work, s.allocation from settled s join orchestrated o on o.id = s.work"
    )
    .fetch_all(&mut *tx)
    .await?;
    let published_allocations = sqlx::query_as!(
        PublishedAllocation,
        r#"select scope, key from entry
            where publication = $1 and body is not null and key like 'alc%'"#,
        ORCHESTRATED
    )
    .fetch_all(tx)
    .await?;
    Ok(Stored {
        orchestrators,
        works,
        settled,
        published_allocations,
    })
}
