//! The tables `output_head` (bytes of output per container) and `output` (its stored chunks).
//!
//! Output is a log: no decision depends on it and it is not published. It therefore bypasses the
//! committer. Appending is idempotent, so a replica that has lost its lease does no harm.

use std::collections::BTreeMap;

use hayward_container_manager_domain::{Chunk, unstored_part};
use hayward_vocabulary::{AllocationId, NodeName};
use sqlx::PgPool;

use super::{to_i64, to_u64};

/// Minimum bytes of output stored per container; older chunks are deleted.
pub const MIN_STORED_BYTES: u64 = 256 * 1024;

/// Stores the new part of `chunks`. Returns the containers whose output grew, with their work.
/// Skips containers that are not on `node`.
pub async fn append(
    pool: &PgPool,
    node: &NodeName,
    chunks: BTreeMap<AllocationId, Vec<Chunk>>,
) -> Result<Vec<(String, String)>, sqlx::Error> {
    let ids: Vec<String> = chunks.keys().map(ToString::to_string).collect();
    let mut tx = pool.begin().await?;
    // Rows are created and locked in order of id, so that two concurrent writers cannot deadlock.
    sqlx::query!(
        "insert into output_head (id)
         select id from container where id = any($1) and node = $2 order by id
         on conflict (id) do nothing",
        &ids,
        node.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    let heads = sqlx::query!(
        "select head.id, head.written, container.work
           from output_head head join container on container.id = head.id
          where head.id = any($1) and container.node = $2
          order by head.id
            for update of head",
        &ids,
        node.as_str(),
    )
    .fetch_all(&mut *tx)
    .await?;
    let (mut new_rows, mut grown_containers) = (NewRows::default(), Vec::new());
    for head in heads {
        let Some(chunks) = chunks.get(head.id.as_str()) else {
            continue;
        };
        if new_rows.push(&head.id, to_u64(head.written), chunks) {
            grown_containers.push((head.id, head.work));
        }
    }
    if !new_rows.heads.is_empty() {
        new_rows.write(&mut tx).await?;
        tx.commit().await?;
    }
    Ok(grown_containers)
}

/// Rows for the new part of the chunks, with one vector per column.
#[derive(Default)]
struct NewRows {
    id: Vec<String>,
    start: Vec<i64>,
    bytes: Vec<i64>,
    text: Vec<String>,
    /// Ids of the containers whose output grew.
    heads: Vec<String>,
    /// Bytes of output written so far by each of these containers.
    written: Vec<i64>,
}

impl NewRows {
    /// Adds the part of the chunks after the first `stored_bytes` bytes. Returns whether there is
    /// such a part.
    fn push(&mut self, id: &str, stored_bytes: u64, chunks: &[Chunk]) -> bool {
        let mut written = stored_bytes;
        for chunk in chunks {
            let Some(chunk) = unstored_part(written, chunk.clone()) else {
                continue;
            };
            written = chunk.end();
            self.id.push(id.to_owned());
            self.start.push(to_i64(chunk.start));
            self.bytes.push(to_i64(chunk.bytes));
            self.text.push(chunk.text);
        }
        if written > stored_bytes {
            self.heads.push(id.to_owned());
            self.written.push(to_i64(written));
        }
        written > stored_bytes
    }

    async fn write(&self, tx: &mut sqlx::PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "insert into output (id, start, bytes, text)
             select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])",
            &self.id,
            &self.start,
            &self.bytes,
            &self.text,
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "update output_head set written = new.written
               from unnest($1::text[], $2::bigint[]) as new (id, written)
              where output_head.id = new.id",
            &self.heads,
            &self.written,
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "delete from output using output_head head
              where head.id = output.id and head.id = any($1)
                and output.start + output.bytes <= head.written - $2",
            &self.heads,
            to_i64(MIN_STORED_BYTES),
        )
        .execute(tx)
        .await
        .map(drop)
    }
}

/// Returns the stored chunks that end after `offset`, oldest first, up to the first gap.
pub async fn read(
    pool: &PgPool,
    id: &AllocationId,
    offset: u64,
    limit: u32,
) -> Result<Vec<Chunk>, sqlx::Error> {
    let rows = sqlx::query!(
        "select start, bytes, text from output
          where id = $1 and start + bytes > $2 order by start limit $3",
        id.as_str(),
        to_i64(offset),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let mut chunks: Vec<Chunk> = Vec::with_capacity(rows.len());
    for row in rows {
        let chunk = Chunk {
            start: to_u64(row.start),
            bytes: to_u64(row.bytes),
            text: row.text,
        };
        if chunks.last().is_some_and(|last| last.end() != chunk.start) {
            break;
        }
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// Deletes the output of the containers archived longest ago, until `max_bytes` bytes are left.
pub async fn trim(pool: &PgPool, max_bytes: u64) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "delete from output
          where id in (
            select id from (
              select sized.id,
                     sum(sized.size) over (order by container.buried_at_ms desc nulls first,
                                                    sized.id desc) as sum
                from (select id, sum(octet_length(text)) as size from output group by id) sized
                join container on container.id = sized.id
            ) added where added.sum > $1::bigint)",
        to_i64(max_bytes),
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}
