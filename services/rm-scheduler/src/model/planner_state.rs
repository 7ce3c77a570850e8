//! Rows of table `carried`: state of the planner that survives a restart. Most of it is the state
//! that a round passes to the next one.
//!
//! The kinds and the fields of the rows keep the names that earlier versions stored.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::Account;
use hayward_rm_scheduler_domain::snapshot::external_planners::RecentPreemptions;
use hayward_rm_scheduler_domain::snapshot::queues::{CarriedQueueState, Queue};
use hayward_vocabulary::{NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};

/// Key of a row: its kind, and its name within the kind.
pub type PlannerStateKey = (&'static str, String);
pub type PlannerStateRows = BTreeMap<PlannerStateKey, PlannerStateRow>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PlannerStateRow {
    /// Work that is needy, and is placed first in the next round.
    Needy { work: WorkId },
    /// Quanta of the node that is reserved as a whole for the work.
    #[serde(rename = "upgrade")]
    ReservedNode {
        work: WorkId,
        #[serde(rename = "order")]
        quanta: u64,
    },
    /// Work other than a job that lost its process and never gets another one.
    Ended { work: WorkId },
    /// Nodes that are cleared for waiting work, one for each process.
    Claim { work: WorkId, nodes: Vec<NodeName> },
    /// Round in which the work last lost an allocation to other work.
    #[serde(rename = "hit")]
    LastLoss { work: WorkId, round: u64 },
    /// Account of a class at the time `at`.
    #[serde(rename = "class")]
    ClassAccount {
        class: String,
        at: Timestamp,
        account: Account,
    },
    /// Account of a user in a class at the time `at`.
    #[serde(rename = "user")]
    UserAccount {
        class: String,
        user: UserName,
        at: Timestamp,
        account: Account,
    },
    /// State of the planner for the queues of one pool, for its next round.
    #[serde(rename = "queues")]
    QueueState {
        pool: String,
        #[serde(rename = "kept")]
        state: Box<CarriedQueueState>,
    },
    /// Recent preemptions by an external planner in its pool.
    #[serde(rename = "moved")]
    RecentPreemptions {
        pool: String,
        #[serde(rename = "moved")]
        preemptions: Box<RecentPreemptions>,
    },
    /// A queue that is no longer configured and is not empty yet. The queues below it are not
    /// included.
    #[serde(rename = "draining")]
    DrainingQueue {
        pool: String,
        path: String,
        queue: Box<Queue>,
    },
    /// Quanta preempted in one minute from one user in one pool (B5).
    #[serde(rename = "spent")]
    PreemptedQuanta {
        /// Minutes since 1970.
        minute: i64,
        pool: String,
        user: UserName,
        quanta: u64,
    },
}

impl PlannerStateRow {
    pub fn key(&self) -> PlannerStateKey {
        match self {
            Self::Needy { work } => ("needy", work.to_string()),
            Self::ReservedNode { work, .. } => ("upgrade", work.to_string()),
            Self::Ended { work } => ("ended", work.to_string()),
            Self::Claim { work, .. } => ("claim", work.to_string()),
            Self::LastLoss { work, .. } => ("hit", work.to_string()),
            Self::ClassAccount { class, .. } => ("class", class.clone()),
            // A user name has no blank, so the key is unambiguous.
            Self::UserAccount { class, user, .. } => ("user", format!("{user} {class}")),
            Self::QueueState { pool, .. } => ("queues", pool.clone()),
            Self::RecentPreemptions { pool, .. } => ("moved", pool.clone()),
            // A path of a queue has no blank.
            Self::DrainingQueue { pool, path, .. } => ("draining", format!("{path} {pool}")),
            Self::PreemptedQuanta {
                minute, pool, user, ..
            } => preempted_quanta_key(*minute, pool, user),
        }
    }

    /// Returns the account of a class or user, and the time at which the account was written.
    pub fn account(&self) -> Option<(Timestamp, Account)> {
        match self {
            Self::ClassAccount { at, account, .. } | Self::UserAccount { at, account, .. } => {
                Some((*at, *account))
            }
            _ => None,
        }
    }

    /// Returns true if this row, written earlier, still describes the state of the row `current`.
    /// An account grows with time, so its growth since the write is added before the comparison.
    pub fn is_still_valid(&self, current: &Self) -> bool {
        match (self.account(), current.account()) {
            (Some((written_at, account)), Some((at, grown))) => {
                account.after_ms(at.ms_since(written_at)) == grown
            }
            _ => self == current,
        }
    }
}

/// Returns the key of a row with preempted quanta. `minute` counts from 1970.
pub fn preempted_quanta_key(minute: i64, pool: &str, user: &UserName) -> PlannerStateKey {
    // Neither a number nor a user name has a blank, so the key is unambiguous.
    ("spent", format!("{minute} {user} {pool}"))
}
