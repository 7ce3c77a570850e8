//! What was found out. What could not be is there as the reason why.

use hayward_service::health::Status;
use hayward_service::invariants::Invariants;
use hayward_vocabulary::Timestamp;
use serde::Serialize;

/// An answer, or why there is none.
pub type Heard<T> = Result<T, String>;

#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    pub at: Timestamp,
    /// In the order of their ports.
    pub services: Vec<ServiceFacts>,
    #[serde(serialize_with = "heard")]
    pub nodes: Heard<NodeFacts>,
    #[serde(serialize_with = "heard")]
    pub blocked: Heard<Vec<Blocked>>,
    /// What waits longest, the longest first; a few.
    #[serde(serialize_with = "heard")]
    pub waiting: Heard<Vec<Waiting>>,
    /// The disk of the state directory on this machine; absent where there is no such directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ServiceFacts {
    pub name: &'static str,
    /// Where the one was asked that the rest is about.
    pub url: String,
    /// Of the one that leads; where none does, of one that answers.
    #[serde(serialize_with = "heard")]
    pub status: Heard<Status>,
    /// The others of its list of addresses.
    pub replicas: Vec<Replica>,
    #[serde(serialize_with = "heard")]
    pub invariants: Heard<Invariants>,
    /// What its clock is ahead of that of this machine, in milliseconds, to within a second;
    /// shown, and nothing rests on it (R4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// How far it is behind those it follows.
    pub lags: Vec<Lag>,
}

/// Another address of a service.
#[derive(Debug, Clone, Serialize)]
pub struct Replica {
    pub url: String,
    #[serde(serialize_with = "heard")]
    pub status: Heard<Status>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lag {
    pub publication: String,
    /// Milliseconds since its publisher was heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    pub stale: bool,
    /// Revisions of the publisher that it has not read yet, where both are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeFacts {
    pub healthy: u64,
    pub quiesced: u64,
    pub suspect: u64,
    pub lost: u64,
    /// Varied off by an operator, whatever their health.
    pub off: u64,
    /// Told to empty.
    pub drains: u64,
    /// Those that somebody should look at.
    pub unwell: Vec<Unwell>,
}

impl NodeFacts {
    pub fn all(&self) -> u64 {
        self.healthy + self.quiesced + self.suspect + self.lost
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unwell {
    pub node: String,
    pub what: Ailment,
    /// In the words of the service, or with the numbers.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ailment {
    Suspect,
    Lost,
    /// Two agents report as this node (F28).
    Twins,
    /// It asks for no work itself.
    Quiesced,
    DiskLow,
    DrainFailed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    pub node: String,
    pub cause: String,
    /// Nobody asked for it: it was judged from what failed there.
    pub automatic: bool,
    /// The block is over, and it shows whether it works again.
    pub on_trial: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    pub work: String,
    pub user: String,
    pub since: Timestamp,
    pub waits_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Disk {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

fn heard<T: Serialize, S: serde::Serializer>(
    heard: &Heard<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match heard {
        Ok(answer) => answer.serialize(serializer),
        Err(error) => serde_json::json!({ "error": error }).serialize(serializer),
    }
}
