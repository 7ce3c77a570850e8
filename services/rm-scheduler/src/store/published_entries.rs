//! Reads the entries of publications that have no table of their own in this crate, for example
//! verdicts and facts. The publication library writes them to its table `entry`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use sqlx::PgConnection;

use super::from_json;

/// Returns the entries of a publication, by a key that each entry contains.
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
        let entry: T = from_json(&row.body)?;
        Ok((key(&entry), entry))
    })
    .collect()
}

/// Returns the entries of a publication, by their published key.
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
    .map(|row| Ok((row.key, from_json(&row.body)?)))
    .collect()
}
