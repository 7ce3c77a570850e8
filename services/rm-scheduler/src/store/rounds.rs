//! Table `round`: the newest rounds that changed something.

use hayward_rm_scheduler_api::views::RoundView;
use sqlx::PgConnection;

use super::{from_json, signed, to_json};

/// Maximum number of stored rounds.
pub const MAX_STORED: usize = 1_000;
/// Maximum number of stored verdicts of a round. In the first round of a fleet, the verdicts of all
/// work are new.
pub const MAX_VERDICTS: usize = 1_000;

/// Returns the rounds, oldest first.
pub async fn load(tx: &mut PgConnection) -> Result<Vec<RoundView>, sqlx::Error> {
    sqlx::query!(r#"select body::text as "body!" from round order by round"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| from_json(&row.body))
        .collect()
}

pub async fn insert(tx: &mut PgConnection, rounds: &[RoundView]) -> Result<(), sqlx::Error> {
    for round in rounds {
        sqlx::query!(
            "insert into round (round, body) values ($1, $2::text::json)",
            signed(round.round),
            to_json(round)?
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "delete from round where round <= $1",
            signed(round.round) - signed(MAX_STORED as u64)
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}
