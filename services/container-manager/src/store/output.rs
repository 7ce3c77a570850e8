//! The tables `output_head` and `output`.
//!
//! Output is a log: no decision depends on it and it is not published. It therefore bypasses the
//! committer. Appending is idempotent, so a replica that has lost its lease does no harm.

use std::collections::BTreeMap;

use hayward_container_manager_domain::{Piece, new_part};
use hayward_vocabulary::{AllocationId, NodeName};
use sqlx::PgPool;

use super::{signed, unsigned};

/// Minimum bytes of output stored per container; older pieces are deleted.
pub const STORED_BYTES: u64 = 256 * 1024;

/// Stores the new part of `pieces`. Returns the containers whose output grew, with their work.
/// Skips containers that are not on `node`.
pub async fn add(
    pool: &PgPool,
    node: &NodeName,
    pieces: BTreeMap<AllocationId, Vec<Piece>>,
) -> Result<Vec<(String, String)>, sqlx::Error> {
    let ids: Vec<String> = pieces.keys().map(ToString::to_string).collect();
    let mut tx = pool.begin().await?;
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
    let (mut new, mut grown) = (NewRows::default(), Vec::new());
    for head in heads {
        let Some(pieces) = pieces.get(head.id.as_str()) else {
            continue;
        };
        if new.push(&head.id, unsigned(head.written), pieces) {
            grown.push((head.id, head.work));
        }
    }
    if !new.heads.is_empty() {
        new.write(&mut tx).await?;
        tx.commit().await?;
    }
    Ok(grown)
}

/// The new part of the pieces, one vector per column.
#[derive(Default)]
struct NewRows {
    id: Vec<String>,
    start: Vec<i64>,
    bytes: Vec<i64>,
    text: Vec<String>,
    heads: Vec<String>,
    written: Vec<i64>,
}

impl NewRows {
    /// True if any of it is new.
    fn push(&mut self, id: &str, known: u64, pieces: &[Piece]) -> bool {
        let mut written = known;
        for piece in pieces {
            let Some(piece) = new_part(written, piece.clone()) else {
                continue;
            };
            written = piece.end();
            self.id.push(id.to_owned());
            self.start.push(signed(piece.start));
            self.bytes.push(signed(piece.bytes));
            self.text.push(piece.text);
        }
        if written > known {
            self.heads.push(id.to_owned());
            self.written.push(signed(written));
        }
        written > known
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
            signed(STORED_BYTES),
        )
        .execute(tx)
        .await
        .map(drop)
    }
}

/// The stored pieces that end after `offset`, oldest first, up to the first gap.
pub async fn read(
    pool: &PgPool,
    id: &AllocationId,
    offset: u64,
    limit: u32,
) -> Result<Vec<Piece>, sqlx::Error> {
    let rows = sqlx::query!(
        "select start, bytes, text from output
          where id = $1 and start + bytes > $2 order by start limit $3",
        id.as_str(),
        signed(offset),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let mut pieces: Vec<Piece> = Vec::with_capacity(rows.len());
    for row in rows {
        let piece = Piece {
            start: unsigned(row.start),
            bytes: unsigned(row.bytes),
            text: row.text,
        };
        if pieces.last().is_some_and(|last| last.end() != piece.start) {
            break;
        }
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Deletes the output of the containers buried longest ago until `keep` bytes are left in total.
pub async fn trim(pool: &PgPool, keep: u64) -> Result<u64, sqlx::Error> {
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
        signed(keep),
    )
    .execute(pool)
    .await
    .map(|done| done.rows_affected())
}
