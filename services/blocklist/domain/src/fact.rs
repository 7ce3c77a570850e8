//! What happened on a machine, and whom it speaks against.
//!
//! A user's own fault must not blame a machine. A failure with a class of its own lies with the
//! machine; one without is doubtful, and counts only where other facts bear it out ([`Record`]).
//!
//! [`Record`]: crate::Record

use hayward_vocabulary::{ExitCause, Timestamp, UserName, WorkId};

/// The class of a failed download of an image: the registry, the image or the machine.
const IMAGE_PULL: &str = "image_pull";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// An attempt ended badly, and nobody had asked for it.
    Failed,
    /// An attempt ended well, or ran for long enough.
    Worked,
    /// The machine fell silent.
    Silenced,
    /// It was heard again.
    Heard,
    /// A task there was found slow.
    Slow,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Known by this name wherever it is told again.
    pub key: String,
    pub what: What,
    pub at: Timestamp,
    /// Absent for facts about the machine itself.
    pub attempt: Option<Attempt>,
    /// It has led to a block, or a proof of health came after it: it counts no more.
    pub spent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub work: WorkId,
    pub user: UserName,
    pub cause: ExitCause,
    /// Class of a cause that lies with the machine, as `disk_full`.
    pub code: Option<String>,
    /// It was heard to run.
    pub ran: bool,
    /// Milliseconds it held its room.
    pub held_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blame {
    /// Intended, or no failure.
    Nobody,
    /// The user's program or the machine; by itself it says nothing.
    Doubtful,
    /// The machine, unless the same work fails in the same way elsewhere.
    Shared,
    Machine,
}

impl Fact {
    pub fn blame(&self) -> Blame {
        if self.what != What::Failed {
            return Blame::Nobody;
        }
        let Some(attempt) = &self.attempt else {
            return Blame::Machine;
        };
        match (attempt.cause, attempt.code.as_deref()) {
            (ExitCause::Intended | ExitCause::Success, _) => Blame::Nobody,
            (_, Some(IMAGE_PULL)) => Blame::Shared,
            (_, Some(_)) | (ExitCause::Node | ExitCause::LaunchUnknown, None) => Blame::Machine,
            _ => Blame::Doubtful,
        }
    }

    /// The worker died before anybody heard that it ran.
    pub fn at_start(&self) -> bool {
        self.attempt.as_ref().is_none_or(|attempt| !attempt.ran)
    }

    pub fn work(&self) -> Option<&WorkId> {
        self.attempt.as_ref().map(|attempt| &attempt.work)
    }
}
