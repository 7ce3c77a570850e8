//! Facts that `hayward preflight` checks before an upgrade. A fact that could not be read is stored
//! as the reason why.

use hayward_service::health::Status;
use hayward_vocabulary::Timestamp;

/// A fact, or the reason why it could not be read.
pub type Fact<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub struct Facts {
    pub now: Timestamp,
    pub database: Fact<Database>,
    /// Status of each service, by its name.
    pub services: Vec<(&'static str, Fact<Status>)>,
    /// Free and total bytes of the disk of the state directory. `None` if unknown.
    pub disk: Option<(u64, u64)>,
    /// Time of the newest backup. `None` if there is no backup.
    pub backup: Option<Timestamp>,
    /// Hours after which a backup is too old for a change of the tables.
    pub max_backup_age_hours: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Database {
    /// Major version of the server.
    pub version: u32,
    /// True for a standby or a database that accepts no writes.
    pub read_only: bool,
    /// Milliseconds that the clock of the server is ahead of this machine.
    pub clock_ahead_ms: i64,
    /// Missing permissions of the administrator.
    pub missing_permissions: Vec<String>,
    pub schemas: Vec<Schema>,
}

#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub name: &'static str,
    /// True if the database has the schema.
    pub exists: bool,
    /// Reason why the service is read-only after the database went back in time. `None` if the
    /// service may write. (R9)
    pub went_back: Option<String>,
    /// Migrations that this version will apply.
    pub pending: Vec<PendingMigration>,
    /// Number of migrations that a newer version applied.
    pub unknown: usize,
    /// Numbers of applied migrations whose content differs from this version.
    pub changed: Vec<i64>,
    /// Numbers of migrations that started but did not finish.
    pub broken: Vec<i64>,
}

#[derive(Debug, Clone)]
pub struct PendingMigration {
    pub version: i64,
    pub description: String,
    /// Statements of the migration that may break the previous version.
    pub contractions: Vec<String>,
}
