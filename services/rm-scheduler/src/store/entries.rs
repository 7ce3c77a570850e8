//! The verdicts as published: they have no rows of their own, because what was said is all there is
//! to know of them.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::{VERDICTS, VerdictEntry};
use hayward_vocabulary::WorkId;
use sqlx::PgConnection;

use super::read;

pub async fn load(tx: &mut PgConnection) -> Result<BTreeMap<WorkId, VerdictEntry>, sqlx::Error> {
    sqlx::query!(
        r#"select body::text as "body!" from entry where publication = $1 and body is not null"#,
        VERDICTS
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| {
        let entry: VerdictEntry = read(&row.body)?;
        Ok((entry.work.clone(), entry))
    })
    .collect()
}
