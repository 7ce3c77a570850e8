//! Numbers of users.

use sqlx::{PgConnection, PgPool};

/// A number that a user gets.
pub struct AccountRow {
    pub user: String,
    pub number: i64,
}

/// A number that is taken away.
pub struct RetiredAccountRow {
    pub number: i64,
    pub at_ms: i64,
}

/// A number that a user has or had.
pub struct StoredAccount {
    pub user: String,
    pub number: i64,
    pub retired: bool,
}

pub async fn insert(tx: &mut PgConnection, rows: &[AccountRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let numbers: Vec<i64> = rows.iter().map(|row| row.number).collect();
    let users: Vec<String> = rows.iter().map(|row| row.user.clone()).collect();
    sqlx::query!(
        "insert into account (number, user_name) select * from unnest($1::bigint[], $2::text[])",
        &numbers,
        &users
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Marks numbers as retired. Their rows stay, so that they are not given again.
pub async fn retire(tx: &mut PgConnection, rows: &[RetiredAccountRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let numbers: Vec<i64> = rows.iter().map(|row| row.number).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.at_ms).collect();
    sqlx::query!(
        "update account set retired_at_ms = new.at
           from unnest($1::bigint[], $2::bigint[]) as new (number, at)
          where account.number = new.number",
        &numbers,
        &at
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn load_all(tx: &mut PgConnection) -> Result<Vec<StoredAccount>, sqlx::Error> {
    sqlx::query_as!(
        StoredAccount,
        r#"select user_name as "user", number, retired_at_ms is not null as "retired!"
             from account order by number"#
    )
    .fetch_all(tx)
    .await
}

/// Loads users with a number, by name after `after`.
pub async fn load_page(
    pool: &PgPool,
    after: &str,
    limit: i64,
) -> Result<Vec<AccountRow>, sqlx::Error> {
    sqlx::query_as!(
        AccountRow,
        r#"select user_name as "user", number from account
            where retired_at_ms is null and user_name collate "C" > $1
            order by user_name collate "C" limit $2"#,
        after,
        limit
    )
    .fetch_all(pool)
    .await
}
