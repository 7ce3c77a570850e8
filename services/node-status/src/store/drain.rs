//! The table `drain`.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

use crate::model::Drain;
use crate::state_conversions;

/// One row of the table.
#[derive(Debug)]
pub struct DrainRow {
    number: i64,
    reason: String,
    by: String,
    began_ms: i64,
    deadline_ms: Option<i64>,
    paused: bool,
    state: &'static str,
    state_since_ms: i64,
}

impl DrainRow {
    pub fn from_drain(drain: &Drain) -> Self {
        Self {
            number: i64::try_from(drain.number).unwrap_or(i64::MAX),
            reason: drain.reason.clone(),
            by: drain.by.clone(),
            began_ms: drain.began.unix_ms(),
            deadline_ms: drain.deadline.map(Timestamp::unix_ms),
            paused: drain.paused,
            state: state_conversions::drain_state_name(drain.state),
            state_since_ms: drain.state_since.unix_ms(),
        }
    }
}

pub async fn load_drains(tx: &mut PgConnection) -> Result<BTreeMap<NodeName, Drain>, sqlx::Error> {
    let rows = sqlx::query!(
        "select node, number, reason, by, began_ms, deadline_ms, paused, state, state_since_ms
           from drain"
    )
    .fetch_all(tx)
    .await?;
    let mut drains = BTreeMap::new();
    for row in rows {
        let node = NodeName::new(row.node).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let drain = Drain {
            number: u64::try_from(row.number).unwrap_or(0),
            reason: row.reason,
            by: row.by,
            began: Timestamp::from_unix_ms(row.began_ms),
            deadline: row.deadline_ms.map(Timestamp::from_unix_ms),
            paused: row.paused,
            state: state_conversions::parse_drain_state(&row.state),
            state_since: Timestamp::from_unix_ms(row.state_since_ms),
            running: None,
            next_check: None,
        };
        drains.insert(node, drain);
    }
    Ok(drains)
}

/// Writes rows one by one, because operators drain few nodes at a time.
pub async fn write(
    drains: BTreeMap<NodeName, DrainRow>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for (node, row) in drains {
        sqlx::query!(
            "insert into drain (node, number, reason, by, began_ms, deadline_ms, paused, state,
                                state_since_ms)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             on conflict (node) do update
                set number = excluded.number, reason = excluded.reason, by = excluded.by,
                    began_ms = excluded.began_ms, deadline_ms = excluded.deadline_ms,
                    paused = excluded.paused, state = excluded.state,
                    state_since_ms = excluded.state_since_ms",
            node.as_str(),
            row.number,
            row.reason,
            row.by,
            row.began_ms,
            row.deadline_ms,
            row.paused,
            row.state,
            row.state_since_ms
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}
