//! Table `usage`: the fairness ledger, which has the due and the received quanta of each user.

use hayward_rm_scheduler_api::shares::LedgerLine;
use hayward_vocabulary::UserName;
use sqlx::PgConnection;

use super::{signed, unsigned};

pub async fn load(tx: &mut PgConnection) -> Result<Vec<LedgerLine>, sqlx::Error> {
    let rows = sqlx::query!(
        "select username, class, due_quantum_ms, received_quantum_ms from usage
          order by username, class"
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            Some(LedgerLine {
                user: UserName::new(row.username).ok()?,
                class: row.class,
                due_quantum_ms: unsigned(row.due_quantum_ms),
                received_quantum_ms: unsigned(row.received_quantum_ms),
            })
        })
        .collect())
}

pub async fn upsert(tx: &mut PgConnection, rows: &[LedgerLine]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into usage (username, class, due_quantum_ms, received_quantum_ms)
         select new.username, new.class, new.due, new.received
           from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
             as new (username, class, due, received)
         on conflict (username, class)
         do update set due_quantum_ms = excluded.due_quantum_ms,
                       received_quantum_ms = excluded.received_quantum_ms",
        &rows
            .iter()
            .map(|row| row.user.to_string())
            .collect::<Vec<_>>(),
        &rows.iter().map(|row| row.class.clone()).collect::<Vec<_>>(),
        &rows
            .iter()
            .map(|row| signed(row.due_quantum_ms))
            .collect::<Vec<_>>(),
        &rows
            .iter()
            .map(|row| signed(row.received_quantum_ms))
            .collect::<Vec<_>>()
    )
    .execute(tx)
    .await
    .map(drop)
}
