//! Tables `pool`, `pool_worker` and `pool_event`: worker pools, their workers and their events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_rm_scheduler_api::worker_pools::{EventKind, PoolEvent, WorkerSpec};
use hayward_rm_scheduler_worker_pools::{Final, Mode, Pool, Rules, State, Stopped, Worker};
use hayward_vocabulary::{AllocationId, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::{from_json, signed, to_json, unsigned};
use crate::model::{MAX_EVENTS, PoolDescription, PoolRecord};

/// The row changes of worker pools in one batch.
#[derive(Debug, Default)]
pub struct PoolRows {
    pools: BTreeMap<WorkId, PoolRow>,
    /// Workers by pool and id. `None` deletes the row.
    workers: BTreeMap<(WorkId, AllocationId), Option<Worker>>,
    events: Vec<(WorkId, PoolEvent)>,
    /// Pools to delete, with their workers and events.
    pub removed: BTreeSet<WorkId>,
}

/// The row of a pool, without its workers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PoolRow {
    description: PoolDescription,
    pool: Pool,
}

/// The column `body` of a pool.
#[derive(Serialize, Deserialize)]
struct PoolBody {
    user: UserName,
    #[serde(default)]
    class: Option<String>,
    #[serde(default)]
    spec: Option<WorkerSpec>,
}

impl PoolRow {
    fn new(description: &PoolDescription, pool: &Pool) -> Self {
        Self {
            description: description.clone(),
            pool: pool.without_workers(),
        }
    }
}

impl PoolRows {
    /// Returns the number of row changes.
    pub fn count(&self) -> usize {
        self.pools.len() + self.workers.len() + self.events.len() + self.removed.len()
    }

    pub fn insert_pool(&mut self, description: &PoolDescription, pool: &Pool) {
        self.pools
            .insert(description.id.clone(), PoolRow::new(description, pool));
    }

    /// Adds the rows of a pool and its workers that differ between `before` and `now`.
    pub fn insert_changes(&mut self, description: &PoolDescription, before: &Pool, now: &Pool) {
        if !before.is_stored_like(now) {
            self.insert_pool(description, now);
        }
        let mut insert_worker = |id: &AllocationId, worker: Option<&Worker>| {
            let key = (description.id.clone(), id.clone());
            self.workers.insert(key, worker.cloned());
        };
        for (id, worker) in &now.workers {
            let earlier = before.workers.get(id);
            if earlier.is_none_or(|earlier| !earlier.is_stored_like(worker)) {
                insert_worker(id, Some(worker));
            }
        }
        for id in before.workers.keys() {
            if !now.workers.contains_key(id) {
                insert_worker(id, None);
            }
        }
    }

    pub fn insert_event(&mut self, pool: &WorkId, event: &PoolEvent) {
        self.events.push((pool.clone(), event.clone()));
    }

    pub async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        for row in self.pools.values() {
            upsert(&mut *tx, row).await?;
        }
        write_workers(&mut *tx, &self.workers).await?;
        write_events(&mut *tx, &self.events).await?;
        for id in &self.removed {
            delete_pool(&mut *tx, id).await?;
        }
        Ok(())
    }
}

async fn upsert(tx: &mut PgConnection, row: &PoolRow) -> Result<(), sqlx::Error> {
    let PoolRow { description, pool } = row;
    let body = to_json(&PoolBody {
        user: description.user.clone(),
        class: description.class.clone(),
        spec: description.spec.clone(),
    })?;
    let requested: Vec<i64> = pool.requested.iter().copied().map(signed).collect();
    let failed_at: Vec<i64> = pool.failed_at.iter().copied().collect();
    let stopped = pool.stopped.as_ref();
    sqlx::query!(
        "insert into pool (id, job_id, mode, designated, version, requested, last_number,
                           max_failed, failed_so_far, failed_at_ms, stopped_at_ms, final_status,
                           final_message, owner_epoch, connection_no, event_seq, created_at_ms,
                           made_by, made_from, body)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                 $19, $20::text::json)
         on conflict (id) do update set
             designated = excluded.designated, version = excluded.version,
             requested = excluded.requested, last_number = excluded.last_number,
             failed_so_far = excluded.failed_so_far, failed_at_ms = excluded.failed_at_ms,
             stopped_at_ms = excluded.stopped_at_ms, final_status = excluded.final_status,
             final_message = excluded.final_message, owner_epoch = excluded.owner_epoch,
             connection_no = excluded.connection_no, event_seq = excluded.event_seq",
        description.id.as_str(),
        description.job_id,
        mode_name(pool.mode),
        signed(pool.designated),
        signed(pool.version),
        &requested,
        signed(pool.last_number),
        pool.max_failed.map(signed),
        signed(pool.failed_so_far),
        &failed_at,
        description.stopped_at.map(Timestamp::unix_ms),
        stopped
            .and_then(|stopped| stopped.status)
            .map(Final::as_str),
        stopped.map(|stopped| stopped.message.as_str()),
        signed(pool.owner.epoch),
        signed(pool.owner.connection),
        signed(pool.event_seq),
        description.created_at.unix_ms(),
        description.key_digest.as_slice(),
        description.request_digest.as_slice(),
        body
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn write_workers(
    tx: &mut PgConnection,
    workers: &BTreeMap<(WorkId, AllocationId), Option<Worker>>,
) -> Result<(), sqlx::Error> {
    if workers.is_empty() {
        return Ok(());
    }
    // Returns the pools and ids of the workers to write, or of the workers to delete.
    let keys = |to_write: bool| {
        let selected = workers
            .iter()
            .filter(move |(_, worker)| worker.is_some() == to_write);
        let pairs = selected.map(|((pool, id), _)| (pool.to_string(), id.to_string()));
        pairs.unzip::<String, String, Vec<_>, Vec<_>>()
    };
    let (pools, ids) = keys(false);
    sqlx::query!(
        "delete from pool_worker using unnest($1::text[], $2::text[]) as gone (pool, id)
          where pool_id = gone.pool and resource_id = gone.id",
        &pools,
        &ids
    )
    .execute(&mut *tx)
    .await?;
    let (pools, ids) = keys(true);
    let rows: Vec<&Worker> = workers.values().flatten().collect();
    let states: Vec<&str> = rows.iter().map(|it| it.state.as_str()).collect();
    let numbers: Vec<Option<i64>> = rows.iter().map(|it| it.number.map(signed)).collect();
    let nodes = rows
        .iter()
        .map(|it| it.node.as_ref().map(ToString::to_string));
    let nodes: Vec<Option<String>> = nodes.collect();
    let epochs: Vec<Option<i64>> = rows.iter().map(|it| it.reported_by.map(signed)).collect();
    let ordered: Vec<bool> = rows.iter().map(|it| it.ordered).collect();
    let idle: Vec<bool> = rows.iter().map(|it| it.idle).collect();
    sqlx::query!(
        "insert into pool_worker (pool_id, resource_id, state, number, node, reported_by_epoch,
                                  ordered, idle)
         select new.pool, new.id, new.state, new.number, new.node, new.epoch, new.ordered,
                new.idle
           from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[],
                       $6::bigint[], $7::boolean[], $8::boolean[])
             as new (pool, id, state, number, node, epoch, ordered, idle)
         on conflict (pool_id, resource_id) do update set
             state = excluded.state, number = excluded.number, node = excluded.node,
             reported_by_epoch = excluded.reported_by_epoch, ordered = excluded.ordered,
             idle = excluded.idle",
        &pools,
        &ids,
        &states as &[&str],
        &numbers as &[Option<i64>],
        &nodes as &[Option<String>],
        &epochs as &[Option<i64>],
        &ordered,
        &idle
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn write_events(
    tx: &mut PgConnection,
    events: &[(WorkId, PoolEvent)],
) -> Result<(), sqlx::Error> {
    if events.is_empty() {
        return Ok(());
    }
    let pools: Vec<String> = events.iter().map(|(pool, _)| pool.to_string()).collect();
    let pool_events = || events.iter().map(|(_, event)| event);
    let sequence_numbers: Vec<i64> = pool_events().map(|event| signed(event.seq)).collect();
    let kinds: Vec<String> = pool_events()
        .map(|event| to_json(&event.kind))
        .collect::<Result<_, _>>()?;
    let workers = pool_events().map(|event| event.worker_id.as_ref().map(ToString::to_string));
    let workers: Vec<Option<String>> = workers.collect();
    let texts: Vec<&str> = pool_events().map(|event| event.text.as_str()).collect();
    let times: Vec<i64> = pool_events().map(|event| event.at.unix_ms()).collect();
    sqlx::query!(
        "insert into pool_event (pool_id, seq, kind, worker_id, text, at_ms)
         select * from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[],
                              $6::bigint[])",
        &pools,
        &sequence_numbers,
        &kinds,
        &workers as &[Option<String>],
        &texts as &[&str],
        &times
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "delete from pool_event using unnest($1::text[], $2::bigint[]) as new (pool, seq)
          where pool_id = new.pool and pool_event.seq <= new.seq - $3",
        &pools,
        &sequence_numbers,
        i64::try_from(MAX_EVENTS).unwrap_or(i64::MAX)
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn delete_pool(tx: &mut PgConnection, id: &WorkId) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from pool_event where pool_id = $1", id.as_str())
        .execute(&mut *tx)
        .await?;
    sqlx::query!("delete from pool_worker where pool_id = $1", id.as_str())
        .execute(&mut *tx)
        .await?;
    sqlx::query!("delete from pool where id = $1", id.as_str())
        .execute(tx)
        .await
        .map(drop)
}

pub async fn load(
    tx: &mut PgConnection,
    rules: Rules,
) -> Result<BTreeMap<WorkId, PoolRecord>, sqlx::Error> {
    let mut pools = BTreeMap::new();
    let rows = sqlx::query!(
        r#"select id, job_id, mode, designated, version, requested, last_number, max_failed,
                  failed_so_far, failed_at_ms, stopped_at_ms, final_status, final_message,
                  owner_epoch, connection_no, event_seq, created_at_ms, made_by, made_from,
                  body::text as "body!"
             from pool"#
    )
    .fetch_all(&mut *tx)
    .await?;
    for row in rows {
        let body: PoolBody = from_json(&row.body)?;
        let id: WorkId = parse_name(row.id)?;
        let description = PoolDescription {
            id: id.clone(),
            job_id: row.job_id,
            user: body.user,
            class: body.class,
            spec: body.spec,
            created_at: Timestamp::from_unix_ms(row.created_at_ms),
            stopped_at: row.stopped_at_ms.map(Timestamp::from_unix_ms),
            key_digest: parse_digest(&row.made_by)?,
            request_digest: parse_digest(&row.made_from)?,
        };
        let managed = row.mode == mode_name(Mode::Managed);
        let mode = if managed {
            Mode::Managed
        } else {
            Mode::Standalone
        };
        let mut pool = Pool::new(mode, unsigned(row.designated), None, rules);
        pool.version = unsigned(row.version);
        pool.requested = row.requested.into_iter().map(unsigned).collect();
        pool.last_number = unsigned(row.last_number);
        pool.max_failed = row.max_failed.map(unsigned);
        pool.failed_so_far = unsigned(row.failed_so_far);
        pool.failed_at = row.failed_at_ms.into();
        pool.stopped = description.stopped_at.map(|_| Stopped {
            status: row.final_status.as_deref().map(parse_final_status),
            message: row.final_message.unwrap_or_default(),
        });
        pool.owner.epoch = unsigned(row.owner_epoch);
        pool.owner.connection = unsigned(row.connection_no);
        pool.event_seq = unsigned(row.event_seq);
        pools.insert(id, PoolRecord::new(description, pool, VecDeque::new()));
    }
    load_workers(&mut *tx, &mut pools).await?;
    load_events(tx, &mut pools).await?;
    Ok(pools)
}

async fn load_workers(
    tx: &mut PgConnection,
    pools: &mut BTreeMap<WorkId, PoolRecord>,
) -> Result<(), sqlx::Error> {
    let rows = sqlx::query!(
        "select pool_id, resource_id, state, number, node, reported_by_epoch, ordered, idle
           from pool_worker"
    )
    .fetch_all(tx)
    .await?;
    for row in rows {
        let Some(record) = pools.get_mut(row.pool_id.as_str()) else {
            continue;
        };
        let state = State::ALL.into_iter().find(|it| it.as_str() == row.state);
        let worker = Worker {
            state: state.ok_or_else(|| unreadable("state of a worker", &row.state))?,
            number: row.number.map(unsigned),
            node: row.node.map(parse_name).transpose()?,
            reported_by: row.reported_by_epoch.map(unsigned),
            ordered: row.ordered,
            idle: row.idle,
            is_node_blocked: false,
            deadline: None,
        };
        record
            .pool
            .workers
            .insert(parse_name(row.resource_id)?, worker);
    }
    Ok(())
}

async fn load_events(
    tx: &mut PgConnection,
    pools: &mut BTreeMap<WorkId, PoolRecord>,
) -> Result<(), sqlx::Error> {
    let rows = sqlx::query!(
        "select pool_id, seq, kind, worker_id, text, at_ms from pool_event order by pool_id, seq"
    )
    .fetch_all(tx)
    .await?;
    for row in rows {
        let Some(record) = pools.get_mut(row.pool_id.as_str()) else {
            continue;
        };
        let event = PoolEvent {
            seq: unsigned(row.seq),
            kind: from_json(&row.kind)?,
            worker_id: row.worker_id.map(parse_name).transpose()?,
            text: row.text,
            at: Timestamp::from_unix_ms(row.at_ms),
        };
        // An owner that was down when the worker ended and during the restart may still list the
        // worker. The pool remembers such a worker, and informs the owner.
        if let (EventKind::ResourceRemoved, Some(dead)) = (event.kind, &event.worker_id) {
            record.pool.remember_dead(dead.clone());
        }
        record.events.push_back(event);
    }
    Ok(())
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Managed => "managed",
        Mode::Standalone => "standalone",
    }
}

fn parse_final_status(text: &str) -> Final {
    let known = Final::ALL
        .into_iter()
        .find(|status| status.as_str() == text);
    known.unwrap_or(Final::Undefined)
}

fn parse_digest(bytes: &[u8]) -> Result<[u8; 32], sqlx::Error> {
    bytes
        .try_into()
        .map_err(|_| unreadable("digest", "of another length"))
}

fn parse_name<T: TryFrom<String>>(text: String) -> Result<T, sqlx::Error>
where
    T::Error: std::error::Error + Send + Sync + 'static,
{
    T::try_from(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn unreadable(column: &str, text: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{column} {text:?} does not read").into())
}
