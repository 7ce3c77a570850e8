//! Events on a node, and whether they count against it.
//!
//! A fault of the user must not count against a node. A failure with a cause class counts against
//! the node. A failure without one is ambiguous and counts only if other facts confirm it
//! ([`FactLog`]).
//!
//! [`FactLog`]: crate::FactLog

use hayward_vocabulary::{ExitCause, Timestamp, UserName, WorkId};

/// Class of a failed image pull. The cause is the registry, the image or the node.
const IMAGE_PULL: &str = "image_pull";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeFact {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Identity of the fact; a repeated report has the same key.
    pub key: String,
    pub kind: NodeFact,
    pub at: Timestamp,
    /// Absent for facts about the node itself.
    pub attempt: Option<Attempt>,
    /// True after the fact led to a block or a later success cleared it; it no longer counts.
    pub spent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub work: WorkId,
    pub user: UserName,
    pub cause: ExitCause,
    /// Cause class that counts against the node, such as `disk_full`.
    pub code: Option<String>,
    /// True when the agent reported that the attempt ran.
    pub ran: bool,
    /// Milliseconds for which the attempt occupied the node.
    pub held_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blame {
    /// The end was ordered, or the fact is not a failure.
    None,
    /// The user's program or the node. Other facts must decide.
    Ambiguous,
    /// The node, unless the same work fails in the same way on another node.
    Shared,
    Node,
}

impl Fact {
    pub fn blame(&self) -> Blame {
        if self.kind != NodeFact::Failure {
            return Blame::None;
        }
        let Some(attempt) = &self.attempt else {
            return Blame::Node;
        };
        match (attempt.cause, attempt.code.as_deref()) {
            (ExitCause::Intended | ExitCause::Success, _) => Blame::None,
            (_, Some(IMAGE_PULL)) => Blame::Shared,
            (_, Some(_)) | (ExitCause::Node | ExitCause::LaunchUnknown, None) => Blame::Node,
            _ => Blame::Ambiguous,
        }
    }

    /// True when the worker died before it was reported as running.
    pub fn at_start(&self) -> bool {
        self.attempt.as_ref().is_none_or(|attempt| !attempt.ran)
    }

    pub fn work(&self) -> Option<&WorkId> {
        self.attempt.as_ref().map(|attempt| &attempt.work)
    }
}
