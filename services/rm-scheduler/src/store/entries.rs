//! What was published and has no rows of its own, because what was said is all there is to know
//! of it: verdicts, facts, machines and clearings.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use sqlx::PgConnection;

use super::read;

/// The entries of a publication, by what `key` says of them.
pub async fn load<K: Ord, T: DeserializeOwned>(
    tx: &mut PgConnection,
    publication: &str,
    key: impl Fn(&T) -> K,
) -> Result<BTreeMap<K, T>, sqlx::Error> {
    sqlx::query!(
        r#"select body::text as "body!" from entry where publication = $1 and body is not null"#,
        publication
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| {
        let entry: T = read(&row.body)?;
        Ok((key(&entry), entry))
    })
    .collect()
}

/// The entries of a publication by key, whose entries do not say theirs.
pub async fn load_by_key<T: DeserializeOwned>(
    tx: &mut PgConnection,
    publication: &str,
) -> Result<BTreeMap<String, T>, sqlx::Error> {
    sqlx::query!(
        r#"select key, body::text as "body!" from entry
            where publication = $1 and body is not null"#,
        publication
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| Ok((row.key, read(&row.body)?)))
    .collect()
}
