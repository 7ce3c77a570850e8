//! What was found out before an upgrade. What could not be is there as the reason why.

use hayward_service::health::Status;
use hayward_vocabulary::Timestamp;

/// An answer, or why there is none.
pub type Heard<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub struct Facts {
    pub at: Timestamp,
    pub database: Heard<Database>,
    pub services: Vec<(&'static str, Heard<Status>)>,
    /// Free and whole bytes of the disk of the state directory.
    pub disk: Option<(u64, u64)>,
    /// When the newest backup was made.
    pub backup: Option<Timestamp>,
    pub backup_hours: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Database {
    /// Major version.
    pub version: u32,
    /// A standby, or one that takes no writes.
    pub read_only: bool,
    /// What its clock is ahead of that of this machine, in milliseconds.
    pub ahead_ms: i64,
    /// What the administrator lacks.
    pub lacks: Vec<String>,
    pub schemas: Vec<Schema>,
}

#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub name: &'static str,
    pub is_there: bool,
    /// Why nothing is written in it (R9).
    pub went_back: Option<String>,
    /// To be applied by this version.
    pub pending: Vec<Pending>,
    /// Applied by a version that knows more.
    pub unknown: usize,
    /// Applied, and not what this version has under that number.
    pub changed: Vec<i64>,
    /// Begun and not ended.
    pub broken: Vec<i64>,
}

#[derive(Debug, Clone)]
pub struct Pending {
    pub version: i64,
    pub description: String,
    /// What in it the version before may not survive.
    pub contractions: Vec<String>,
}
