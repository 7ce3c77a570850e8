//! The table `container`. Its column `buried_at_ms` is the time at which a container was archived.

use std::collections::BTreeMap;

use hayward_container_manager_api::{ContainerEntry, ContainerView};
use hayward_container_manager_domain::{Lifecycle, State};
use hayward_vocabulary::{AllocationId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{PgConnection, PgPool};

use super::{to_i64, to_u64};
use crate::model::{Container, to_api_state};

type DecodeError = Box<dyn std::error::Error + Send + Sync>;

/// One row, with the types of its columns.
struct Row {
    id: String,
    work: String,
    kind: String,
    user_name: String,
    node: String,
    incarnation: i64,
    exclusive: bool,
    held: bool,
    predecessor: Option<String>,
    request: Option<String>,
    size: String,
    launch: Option<String>,
    state: String,
    epoch: i64,
    ordered_at_ms: i64,
    /// Revision of the first report by which the node had started the container.
    launched: Option<i64>,
    /// Revision at which the node was ordered to stop the container.
    stop: Option<i64>,
    orphan: bool,
    pid: Option<i64>,
    started_at_ms: Option<i64>,
    reason: Option<String>,
    exit: Option<String>,
}

/// Loads all containers that are not archived.
pub async fn load(tx: &mut PgConnection) -> Result<Vec<Container>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select id, work, kind, user_name, node, incarnation, exclusive, held, predecessor,
                  request, size::text as "size!",
                  launch::text, state, epoch, ordered_at_ms, launched, stop, orphan, pid,
                  started_at_ms, reason, exit::text
             from container
            where buried_at_ms is null"#
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter()
        .map(|row| container_from_row(row).map_err(sqlx::Error::Decode))
        .collect()
}

fn container_from_row(row: Row) -> Result<Container, DecodeError> {
    let lifecycle = Lifecycle {
        state: parse_state(&row.state)?,
        incarnation: to_u64(row.incarnation),
        held: row.held,
        launch_revision: row.launched.map(to_u64),
        stop_revision: row.stop.map(to_u64),
        orphan: row.orphan,
        pid: row.pid.map(u32::try_from).transpose()?,
        started_at: row.started_at_ms.map(Timestamp::from_unix_ms),
        reason: row.reason,
        exit: parse_optional_json(row.exit.as_deref())?,
    };
    Ok(Container {
        id: row.id.try_into()?,
        work: row.work.try_into()?,
        kind: parse_enum_name(&row.kind)?,
        user: row.user_name.try_into()?,
        node: row.node.try_into()?,
        size: serde_json::from_str(&row.size)?,
        exclusive: row.exclusive,
        predecessor: row.predecessor.map(TryInto::try_into).transpose()?,
        request: row.request,
        launch: parse_optional_json(row.launch.as_deref())?,
        epoch: to_u64(row.epoch),
        ordered_at: Timestamp::from_unix_ms(row.ordered_at_ms),
        lifecycle,
        archived_at: None,
    })
}

fn parse_state(text: &str) -> Result<State, DecodeError> {
    State::parse(text).ok_or_else(|| format!("unknown container state {text:?}").into())
}

fn parse_optional_json<T: DeserializeOwned>(json: Option<&str>) -> Result<Option<T>, DecodeError> {
    Ok(json.map(serde_json::from_str).transpose()?)
}

/// Parses the API name of an enum variant.
fn parse_enum_name<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    Ok(serde_json::from_value(serde_json::Value::from(text))?)
}

fn to_json<T: Serialize>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Columns that may change, with one vector per column.
#[derive(Default)]
struct Columns {
    id: Vec<String>,
    state: Vec<String>,
    epoch: Vec<i64>,
    launched: Vec<Option<i64>>,
    stop: Vec<Option<i64>>,
    orphan: Vec<bool>,
    held: Vec<bool>,
    pid: Vec<Option<i64>>,
    started_at_ms: Vec<Option<i64>>,
    reason: Vec<Option<String>>,
    exit: Vec<Option<String>>,
    buried_at_ms: Vec<Option<i64>>,
}

impl Columns {
    fn from_containers(rows: &BTreeMap<AllocationId, Container>) -> Result<Self, sqlx::Error> {
        let mut columns = Self::default();
        for (id, container) in rows {
            let lifecycle = &container.lifecycle;
            columns.id.push(id.to_string());
            columns.state.push(lifecycle.state.as_str().to_owned());
            columns.epoch.push(to_i64(container.epoch));
            columns.launched.push(lifecycle.launch_revision.map(to_i64));
            columns.stop.push(lifecycle.stop_revision.map(to_i64));
            columns.orphan.push(lifecycle.orphan);
            columns.held.push(lifecycle.held);
            columns.pid.push(lifecycle.pid.map(i64::from));
            columns
                .started_at_ms
                .push(lifecycle.started_at.map(Timestamp::unix_ms));
            columns.reason.push(lifecycle.reason.clone());
            columns
                .exit
                .push(lifecycle.exit.as_ref().map(to_json).transpose()?);
            columns
                .buried_at_ms
                .push(container.archived_at.map(Timestamp::unix_ms));
        }
        Ok(columns)
    }
}

/// Inserts new containers.
pub async fn insert(
    tx: &mut PgConnection,
    rows: &BTreeMap<AllocationId, Container>,
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = Columns::from_containers(rows)?;
    let text_column = |get: fn(&Container) -> &str| -> Vec<String> {
        rows.values().map(|it| get(it).to_owned()).collect()
    };
    let int_column = |get: fn(&Container) -> i64| -> Vec<i64> { rows.values().map(get).collect() };
    let sizes: Vec<String> = rows
        .values()
        .map(|container| to_json(&container.size))
        .collect::<Result<_, _>>()?;
    let launches: Vec<Option<String>> = rows
        .values()
        .map(|container| container.launch.as_deref().map(to_json).transpose())
        .collect::<Result<_, _>>()?;
    let exclusive: Vec<bool> = rows.values().map(|container| container.exclusive).collect();
    let predecessors: Vec<Option<String>> = rows
        .values()
        .map(|container| container.predecessor.as_ref().map(ToString::to_string))
        .collect();
    let requests = rows.values().map(|container| container.request.clone());
    sqlx::query!(
        "insert into container (id, work, kind, user_name, node, incarnation, size, launch, state,
                                epoch, ordered_at_ms, exit, exclusive, held, predecessor, request)
         select new.id, new.work, new.kind, new.user_name, new.node, new.incarnation,
                new.size::json, new.launch::json, new.state, new.epoch, new.ordered_at_ms,
                new.exit::json, new.exclusive, new.held, new.predecessor, new.request
           from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[],
                       $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[],
                       $12::text[], $13::boolean[], $14::boolean[], $15::text[], $16::text[])
             as new (id, work, kind, user_name, node, incarnation, size, launch, state, epoch,
                     ordered_at_ms, exit, exclusive, held, predecessor, request)",
        &columns.id,
        &text_column(|container| container.work.as_str()),
        &text_column(|container| kind_name(container)),
        &text_column(|container| container.user.as_str()),
        &text_column(|container| container.node.as_str()),
        &int_column(|container| to_i64(container.lifecycle.incarnation)),
        &sizes,
        &launches as &[Option<String>],
        &columns.state,
        &columns.epoch,
        &int_column(|container| container.ordered_at.unix_ms()),
        &columns.exit as &[Option<String>],
        &exclusive,
        &columns.held,
        &predecessors as &[Option<String>],
        &requests.collect::<Vec<_>>() as &[Option<String>],
    )
    .execute(tx)
    .await
    .map(drop)
}

fn kind_name(container: &Container) -> &'static str {
    match container.kind {
        hayward_vocabulary::WorkKind::Job => "job",
        hayward_vocabulary::WorkKind::Service => "service",
        hayward_vocabulary::WorkKind::Reservation => "reservation",
    }
}

/// Updates containers, and deletes the launch data of ended containers.
pub async fn update(
    tx: &mut PgConnection,
    rows: &BTreeMap<AllocationId, Container>,
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = Columns::from_containers(rows)?;
    sqlx::query!(
        "update container
            set state = new.state, epoch = new.epoch, launched = new.launched, stop = new.stop,
                orphan = new.orphan, held = new.held, pid = new.pid,
                started_at_ms = new.started_at_ms, exit = new.exit::json,
                buried_at_ms = new.buried_at_ms, reason = new.reason,
                launch = case when new.state = 'ended' then null else launch end
           from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[],
                       $6::boolean[], $7::bigint[], $8::bigint[], $9::text[], $10::bigint[],
                       $11::boolean[], $12::text[])
             as new (id, state, epoch, launched, stop, orphan, pid, started_at_ms, exit,
                     buried_at_ms, held, reason)
          where container.id = new.id",
        &columns.id,
        &columns.state,
        &columns.epoch,
        &columns.launched as &[Option<i64>],
        &columns.stop as &[Option<i64>],
        &columns.orphan,
        &columns.pid as &[Option<i64>],
        &columns.started_at_ms as &[Option<i64>],
        &columns.exit as &[Option<String>],
        &columns.buried_at_ms as &[Option<i64>],
        &columns.held,
        &columns.reason as &[Option<String>],
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Filter of a list. An absent field matches all containers.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub id: Option<String>,
    pub user: Option<String>,
    pub node: Option<String>,
    pub work: Option<String>,
    pub state: Option<String>,
    /// Last id of the previous page.
    pub after: Option<String>,
    pub limit: u32,
}

/// Returns one page of containers in order of id, including stored archived containers.
pub async fn load_page(pool: &PgPool, filter: &Filter) -> Result<Vec<ContainerView>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select id, work, user_name, node, incarnation, state, ordered_at_ms, pid, started_at_ms,
                  reason, exit::text
             from container
            where ($1::text is null or id = $1) and ($2::text is null or user_name = $2)
              and ($3::text is null or node = $3) and ($4::text is null or work = $4)
              and ($5::text is null or state = $5) and ($6::text is null or id > $6)
            order by id
            limit $7"#,
        filter.id.as_deref(),
        filter.user.as_deref(),
        filter.node.as_deref(),
        filter.work.as_deref(),
        filter.state.as_deref(),
        filter.after.as_deref(),
        i64::from(filter.limit),
    )
    .fetch_all(pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let entry = EntryColumns {
                id: row.id,
                work: row.work,
                node: row.node,
                state: row.state,
                started_at_ms: row.started_at_ms,
                reason: row.reason,
                exit: row.exit,
            };
            Ok(ContainerView {
                entry: entry.into_entry()?,
                user: row.user_name.try_into()?,
                incarnation: to_u64(row.incarnation),
                pid: row.pid.map(u32::try_from).transpose()?,
                ordered_at: Timestamp::from_unix_ms(row.ordered_at_ms),
            })
        })
        .collect::<Result<_, DecodeError>>()
        .map_err(sqlx::Error::Decode)
}

/// Columns of an entry of the publication `containers`.
pub struct EntryColumns {
    pub id: String,
    pub work: String,
    pub node: String,
    pub state: String,
    pub started_at_ms: Option<i64>,
    pub reason: Option<String>,
    pub exit: Option<String>,
}

impl EntryColumns {
    pub fn into_entry(self) -> Result<ContainerEntry, sqlx::Error> {
        let parse = || -> Result<ContainerEntry, DecodeError> {
            Ok(ContainerEntry {
                id: self.id.try_into()?,
                work: self.work.try_into()?,
                node: self.node.try_into()?,
                state: to_api_state(parse_state(&self.state)?),
                started_at: self.started_at_ms.map(Timestamp::from_unix_ms),
                reason: self.reason,
                exit: parse_optional_json(self.exit.as_deref())?,
            })
        };
        parse().map_err(sqlx::Error::Decode)
    }
}

/// Deletes the containers archived longest ago, with their output, until `max_count` are left.
pub async fn trim(pool: &PgPool, max_count: u64) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "delete from container
          where id in (select id from container
                        where buried_at_ms is not null
                        order by buried_at_ms desc, id desc
                       offset $1)",
        to_i64(max_count),
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}
