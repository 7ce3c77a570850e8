//! Facts before an upgrade. A fact that could not be read is there as the reason.

use hayward_service::health::Status;
use hayward_vocabulary::Timestamp;

/// An answer, or the reason why there is none.
pub type Answer<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub struct Facts {
    pub at: Timestamp,
    pub database: Answer<Database>,
    pub services: Vec<(&'static str, Answer<Status>)>,
    /// Free and total bytes of the disk of the state directory.
    pub disk: Option<(u64, u64)>,
    /// Time of the newest backup.
    pub backup: Option<Timestamp>,
    pub backup_hours: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Database {
    /// Major version.
    pub version: u32,
    /// True for a standby or a database that accepts no writes.
    pub read_only: bool,
    /// Milliseconds that its clock is ahead of this machine.
    pub ahead_ms: i64,
    /// Missing permissions of the administrator.
    pub lacks: Vec<String>,
    pub schemas: Vec<Schema>,
}

#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub name: &'static str,
    pub is_there: bool,
    /// Reason why the service writes nothing: the database went back in time. (R9)
    pub went_back: Option<String>,
    /// Migrations that this version will apply.
    pub pending: Vec<Pending>,
    /// Number of migrations that a newer version applied.
    pub unknown: usize,
    /// Numbers of applied migrations whose content differs from this version.
    pub changed: Vec<i64>,
    /// Numbers of migrations that began and did not end.
    pub broken: Vec<i64>,
}

#[derive(Debug, Clone)]
pub struct Pending {
    pub version: i64,
    pub description: String,
    /// Statements that the previous version may not survive.
    pub contractions: Vec<String>,
}
