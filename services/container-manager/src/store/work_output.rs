//! Reads the output of all containers of one piece of work, from the tables `container`,
//! `output_head` and `output`.

use std::collections::BTreeMap;

use hayward_container_manager_api::ContainerEntry;
use hayward_container_manager_domain::{Chunk, last_lines_offset};
use hayward_vocabulary::{AllocationId, Timestamp, WorkId};
use sqlx::PgPool;

use super::container::EntryColumns;
use super::{to_i64, to_u64};

/// A container and the size of its output.
pub struct OutputHead {
    pub entry: ContainerEntry,
    /// Bytes of output received so far.
    pub written: u64,
    /// True if some output of the container is still stored.
    pub has_output: bool,
}

/// A chunk of output and its time of arrival.
pub struct ReadChunk {
    pub container: AllocationId,
    pub arrived_at: Timestamp,
    pub chunk: Chunk,
}

/// Returns the newest containers of the work or of one instance, newest first, and the number of
/// older containers.
pub async fn load_heads(
    pool: &PgPool,
    work: &WorkId,
    user: Option<&str>,
    limit: u32,
) -> Result<(Vec<OutputHead>, u64), sqlx::Error> {
    let parent_work = work.parent();
    let instance = (parent_work != *work).then(|| work.as_str());
    let rows = sqlx::query!(
        r#"select container.id, work, node, state, started_at_ms, reason, exit::text,
                  coalesce(head.written, 0) as "written!",
                  (select min(start) from output where output.id = container.id) as kept_from,
                  count(*) over () as "all!"
             from container left join output_head head on head.id = container.id
            where split_part(work, '.', 1) = $1 and ($2::text is null or work = $2)
              and ($3::text is null or user_name = $3)
            order by container.id desc
            limit $4"#,
        parent_work.as_str(),
        instance,
        user,
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let total = rows.first().map_or(0, |row| to_u64(row.all));
    let left_out = total - rows.len() as u64;
    let heads = rows
        .into_iter()
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
            Ok(OutputHead {
                entry: entry.into_entry()?,
                written: to_u64(row.written),
                has_output: row.kept_from.is_some(),
            })
        })
        .collect::<Result<_, sqlx::Error>>()?;
    Ok((heads, left_out))
}

/// Reads the output after the offsets, in order of arrival. Returns at most `max_chunks` chunks,
/// and stops after the chunk that reaches `max_bytes` bytes. The output of one container stays in
/// order even if the clock goes back.
pub async fn read_after(
    pool: &PgPool,
    offsets: &BTreeMap<AllocationId, u64>,
    max_chunks: u32,
    max_bytes: u64,
) -> Result<Vec<ReadChunk>, sqlx::Error> {
    let ids: Vec<String> = offsets.keys().map(ToString::to_string).collect();
    let offsets: Vec<i64> = offsets.values().copied().map(to_i64).collect();
    let rows = sqlx::query!(
        r#"with fresh as (
               select output.id, start, bytes, text,
                      max(at_ms) over (partition by output.id order by start) as at_ms
                 from unnest($1::text[], $2::bigint[]) as place (id, read)
                 join output on output.id = place.id and start + bytes > place.read),
             summed as (
               select *, sum(bytes) over (order by at_ms, id, start) - bytes as before from fresh)
           select id as "id!", start as "start!", bytes as "bytes!", text as "text!",
                  at_ms as "at_ms!"
             from summed where before < $3::bigint
            order by at_ms, id, start limit $4"#,
        &ids,
        &offsets,
        to_i64(max_bytes),
        i64::from(max_chunks),
    )
    .fetch_all(pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let id = AllocationId::new(row.id);
            Ok(ReadChunk {
                container: id.map_err(|error| sqlx::Error::Decode(error.into()))?,
                arrived_at: Timestamp::from_unix_ms(row.at_ms),
                chunk: Chunk {
                    start: to_u64(row.start),
                    bytes: to_u64(row.bytes),
                    text: row.text,
                },
            })
        })
        .collect()
}

/// Returns the offsets at which the last `lines` lines of each container begin. Containers without
/// stored output are omitted.
pub async fn load_tail_offsets(
    pool: &PgPool,
    ids: &[String],
    lines: u32,
) -> Result<BTreeMap<String, u64>, sqlx::Error> {
    // A line break at the very end of the output does not begin another line.
    let rows = sqlx::query!(
        r#"with counted as (
               select output.id, start, bytes, text, start + bytes = head.written as is_end,
                      length(text) - length(replace(text, e'\n', ''))
                      - (start + bytes = head.written and right(text, 1) = e'\n')::int as breaks
                 from output join output_head head on head.id = output.id
                where output.id = any($1)),
             summed as (
               select *, coalesce(sum(breaks) over (partition by id order by start desc
                    rows between unbounded preceding and 1 preceding), 0) as later from counted)
           select distinct on (id) id as "id!", start as "start!", bytes as "bytes!",
                  text as "text!", later as "later!", is_end as "is_end!"
             from summed where later < $2::bigint order by id, start"#,
        ids,
        i64::from(lines),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            // Text with replaced bytes cannot be cut by byte offsets.
            let is_exact = row.text.len() as u64 == to_u64(row.bytes);
            let remaining_lines = u64::from(lines).saturating_sub(to_u64(row.later));
            let offset = if is_exact {
                last_lines_offset(&row.text, remaining_lines, row.is_end)
            } else {
                0
            };
            (row.id, to_u64(row.start) + offset as u64)
        })
        .collect())
}

/// Returns the offsets of the first output since `time`. Containers without such output are
/// omitted.
pub async fn load_offsets_since(
    pool: &PgPool,
    ids: &[String],
    time: Timestamp,
) -> Result<BTreeMap<String, u64>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select id, min(start) as "start!" from output
            where id = any($1) and at_ms >= $2 group by id"#,
        ids,
        time.unix_ms(),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id, to_u64(row.start)))
        .collect())
}
