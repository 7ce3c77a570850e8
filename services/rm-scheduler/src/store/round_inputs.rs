//! Table `round_inputs`: recorded inputs of rounds. The rounds form chains: the first round of a
//! chain is stored as a whole, and each later round as a delta.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use tokio::task::JoinHandle;

use super::signed;
use crate::recorder::{Encoded, UnwrittenRound};

/// Maximum time that a commit waits for the encoding. A commit must end well within the lease of
/// the leader.
const ENCODING_TIMEOUT: Duration = Duration::from_secs(2);

/// A round that is being encoded on a thread of its own while the other rows are written. Encoding
/// a whole snapshot of a large fleet takes long.
pub struct Encoding {
    round: u64,
    /// Number of the first round of the chain.
    base: u64,
    /// Maximum number of rounds and of bytes of all earlier chains. `None` unless this is the first
    /// round of a chain.
    earlier_limits: Option<(u64, u64)>,
    encoded: JoinHandle<Result<Encoded, serde_json::Error>>,
    /// Gives up the chain, because encoding takes too long.
    give_up: Box<dyn FnOnce() + Send>,
}

impl Encoding {
    pub fn start(inputs: UnwrittenRound) -> Self {
        Self {
            round: inputs.round,
            base: inputs.base,
            earlier_limits: inputs
                .is_first_of_chain()
                .then(|| inputs.limits_of_earlier_chains()),
            give_up: Box::new(inputs.chain_canceller()),
            encoded: tokio::task::spawn_blocking(move || inputs.encode()),
        }
    }
}

/// Waits for the encoding and writes the round, without a body if it is too large.
pub async fn insert(tx: &mut PgConnection, encoding: Encoding) -> Result<(), sqlx::Error> {
    if let Some((rounds, bytes)) = encoding.earlier_limits {
        delete_oldest(tx, signed(rounds), signed(bytes)).await?;
    }
    let encoded = tokio::time::timeout(ENCODING_TIMEOUT, encoding.encoded).await;
    let Encoded { body, bytes } = if let Ok(encoded) = encoded {
        // The outer error is a panic of the encoding thread, the inner error is one of
        // `serde_json`.
        let encoded = encoded.map_err(|error| sqlx::Error::Encode(error.into()))?;
        encoded.map_err(|error| sqlx::Error::Encode(error.into()))?
    } else {
        (encoding.give_up)();
        tracing::warn!(
            round = encoding.round,
            "encoding it for a replay takes too long"
        );
        Encoded::default()
    };
    sqlx::query!(
        "insert into round_inputs (round, base, bytes, body) values ($1, $2, $3, $4)
         on conflict (round) do update
         set base = excluded.base, bytes = excluded.bytes, body = excluded.body",
        signed(encoding.round),
        signed(encoding.base),
        signed(bytes),
        body
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Deletes the oldest chains as a whole, until all remaining chains have at most these rounds and
/// bytes.
async fn delete_oldest(tx: &mut PgConnection, rounds: i64, bytes: i64) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "delete from round_inputs where base in (
            select base from (
                select base, sum(count(*)) over newest as rounds,
                       sum(sum(bytes) filter (where body is not null)) over newest as bytes
                  from round_inputs group by base window newest as (order by base desc)
            ) chain where rounds > $1::bigint or bytes > $2::bigint
         )",
        rounds,
        bytes
    )
    .execute(tx)
    .await
    .map(drop)
}

/// A recorded round.
pub enum StoredInputs {
    /// Bodies from the first round of its chain to the round itself.
    Chain(Vec<Vec<u8>>),
    /// The inputs were not stored: they are too large, or encoding them took too long.
    NotStored {
        /// Size of the encoded round, or 0 if encoding took too long.
        bytes: u64,
    },
    NotFound,
}

/// Finds the recorded round, with the rounds of its chain that it depends on.
pub async fn find(pool: &PgPool, round: u64) -> Result<StoredInputs, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select later.bytes, later.body from round_inputs later
             join round_inputs this on this.base = later.base and this.round >= later.round
            where this.round = $1 order by later.round"#,
        signed(round)
    )
    .fetch_all(pool)
    .await?;
    let Some(last) = rows.last() else {
        return Ok(StoredInputs::NotFound);
    };
    if last.body.is_none() {
        let bytes = super::unsigned(last.bytes);
        return Ok(StoredInputs::NotStored { bytes });
    }
    Ok(StoredInputs::Chain(
        rows.into_iter().filter_map(|row| row.body).collect(),
    ))
}
