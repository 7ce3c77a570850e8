//! Facts about nodes: events on a node, and whether they count against it.
//!
//! A fault of the user must not count against a node. A failure with a cause class, or by loss of
//! the node, counts against the node. Every other failure is ambiguous: it counts only if other
//! facts confirm it ([`FactLog`]).
//!
//! [`FactLog`]: crate::FactLog

use hayward_vocabulary::{ExitCause, Timestamp, UserName, WorkId};

/// Class of a failed image pull. The cause is the registry, the image or the node.
const IMAGE_PULL: &str = "image_pull";

/// Kind of a fact about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKind {
    /// An attempt failed, and its end was not ordered.
    Failure,
    /// An attempt succeeded, or ran long enough.
    Success,
    /// Heartbeats of the node stopped.
    LostContact,
    /// Heartbeats of the node resumed.
    Contact,
    /// A task on the node was slow.
    Slow,
}

/// One event on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Identity of the fact. A repeated report has the same key.
    pub key: String,
    pub kind: FactKind,
    pub at: Timestamp,
    /// `None` if the fact is about the node itself.
    pub attempt: Option<Attempt>,
    /// True once the fact has led to a block or was cleared. A spent fact no longer counts.
    pub spent: bool,
}

/// The attempt of a piece of work that a fact is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub work: WorkId,
    pub user: UserName,
    pub cause: ExitCause,
    /// Cause class that counts against the node, such as `disk_full`. `None` if the attempt has no
    /// such class.
    pub cause_class: Option<String>,
    /// True if the agent reported that the attempt ran.
    pub has_run: bool,
    /// Milliseconds for which the attempt occupied the node.
    pub occupied_ms: u64,
}

/// The side that is to blame for a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blame {
    /// Neither the program nor the node: the end was ordered, or the fact is not a failure.
    None,
    /// Either the program of the user or the node is to blame. Other facts must decide.
    Ambiguous,
    /// The node is to blame, unless the same work fails in the same way on another node.
    Shared,
    /// The node is to blame.
    Node,
}

impl Fact {
    /// Returns the side that is to blame for the fact.
    pub fn blame(&self) -> Blame {
        if self.kind != FactKind::Failure {
            return Blame::None;
        }
        let Some(attempt) = &self.attempt else {
            return Blame::Node;
        };
        match (attempt.cause, attempt.cause_class.as_deref()) {
            (ExitCause::Intended | ExitCause::Success, _) => Blame::None,
            (_, Some(IMAGE_PULL)) => Blame::Shared,
            (_, Some(_)) | (ExitCause::Node | ExitCause::LaunchUnknown, None) => Blame::Node,
            _ => Blame::Ambiguous,
        }
    }

    /// Returns whether the attempt failed before it was reported as running. Also true for a fact
    /// without an attempt.
    pub fn failed_at_start(&self) -> bool {
        self.attempt.as_ref().is_none_or(|attempt| !attempt.has_run)
    }

    pub fn work(&self) -> Option<&WorkId> {
        self.attempt.as_ref().map(|attempt| &attempt.work)
    }
}
