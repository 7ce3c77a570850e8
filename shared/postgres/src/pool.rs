//! Connection pools with timeouts: a stuck query, lock or transaction fails one request and does
//! not block the service.

use std::str::FromStr;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};

use crate::connect_error::{ConnectError, NO_SUCH_DATABASE, sql_state};

/// Timeout of a statement. It is longer than any normal query: a round of a full fleet takes a
/// second.
const STATEMENT_TIMEOUT_MS: u32 = 20_000;
/// Timeout of a wait for a lock. A writer waits only during another commit, which takes
/// milliseconds.
const LOCK_TIMEOUT_MS: u32 = 5_000;
/// Timeout of an idle transaction, which holds its locks. No code waits for another event inside a
/// transaction.
const IDLE_IN_TRANSACTION_TIMEOUT_MS: u32 = 10_000;
/// Timeout of a wait for a connection of the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that was idle for longer is tested before use, so that a restarted server fails no
/// request.
const MAX_IDLE_WITHOUT_PING: Duration = Duration::from_secs(1);

/// Opens a pool of at most `max` connections. The first one is opened before this returns.
///
/// `url` may name a unix socket (`postgres://role@localhost/database?host=/directory`). Connections
/// appear as `hayward <role>` in `pg_stat_activity`.
///
/// # Errors
/// If no connection can be opened. The error names the wrong part of the address.
pub async fn connect(url: &str, max: u32) -> Result<PgPool, ConnectError> {
    let result = open_pool(url, max).await;
    result.map_err(|error| ConnectError::new(url, error))
}

/// Opens one connection, for a program with a single task.
///
/// # Errors
/// Same as [`connect`].
pub async fn connect_one(url: &str) -> Result<PgConnection, ConnectError> {
    let result = PgConnection::connect(url).await;
    result.map_err(|error| ConnectError::new(url, error))
}

/// Connects as [`connect_one`] does. Returns `None` if the server has no such database.
///
/// # Errors
/// Same as [`connect_one`].
pub async fn connect_if_exists(url: &str) -> Result<Option<PgConnection>, ConnectError> {
    match PgConnection::connect(url).await {
        Err(error) if sql_state(&error).as_deref() == Some(NO_SUCH_DATABASE) => Ok(None),
        result => result
            .map(Some)
            .map_err(|error| ConnectError::new(url, error)),
    }
}

async fn open_pool(url: &str, max: u32) -> Result<PgPool, sqlx::Error> {
    let options = PgConnectOptions::from_str(url)?;
    let name = format!("hayward {}", options.get_username());
    let options = options.application_name(&name).options([
        ("statement_timeout", STATEMENT_TIMEOUT_MS.to_string()),
        ("lock_timeout", LOCK_TIMEOUT_MS.to_string()),
        (
            "idle_in_transaction_session_timeout",
            IDLE_IN_TRANSACTION_TIMEOUT_MS.to_string(),
        ),
    ]);
    PgPoolOptions::new()
        .max_connections(max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // `before_acquire` replaces this test, which would cost a round trip for each acquire.
        .test_before_acquire(false)
        .before_acquire(|connection, metadata| {
            Box::pin(async move {
                Ok(metadata.idle_for < MAX_IDLE_WITHOUT_PING || connection.ping().await.is_ok())
            })
        })
        .connect_with(options)
        .await
}
