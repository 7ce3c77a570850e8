//! State of one worker.

use hayward_vocabulary::NodeName;

/// State of a worker with an id. A requested worker has a number and no id, so it has no state
/// here. Ended workers are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Granted, and not yet reported by the owner.
    Launching,
    /// Reported by the owner.
    Started,
    /// Given back, and ending; it does not count.
    Returning,
    /// Known to the owner only; it does not count and is never released.
    Foreign,
}

impl State {
    pub const ALL: [Self; 4] = [
        Self::Launching,
        Self::Started,
        Self::Returning,
        Self::Foreign,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Launching => "LAUNCHING",
            Self::Started => "STARTED",
            Self::Returning => "RETURNING",
            Self::Foreign => "FOREIGN",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub state: State,
    /// Number of its request; absent for a worker that was never requested.
    pub number: Option<u64>,
    pub node: Option<NodeName>,
    /// Epoch of the owner that reported it last; absent if it was never reported.
    pub reported_by: Option<u64>,
    /// True when the owner gave it up itself and needs no event (WP-8).
    pub ordered: bool,
    /// Deadline of a launching worker to register, or of a started one to be reported by a new
    /// owner. It runs only while an owner is bound.
    pub deadline: Option<u64>,
    /// True when the owner reported it as idle.
    pub idle: bool,
    /// True while its node is blocked without evacuation; restored after a restart by the
    /// blocklist.
    pub is_node_blocked: bool,
}

impl Worker {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state,
            number: None,
            node: None,
            reported_by: None,
            ordered: false,
            deadline: None,
            idle: false,
            is_node_blocked: false,
        }
    }

    /// Compares all stored fields, without the deadline and the block of the node.
    pub fn is_stored_like(&self, other: &Self) -> bool {
        let stored = |worker: &Self| {
            let numbers = (worker.number, worker.reported_by);
            (worker.state, numbers, worker.idle)
        };
        stored(self) == stored(other) && self.node == other.node && self.ordered == other.ordered
    }

    pub(crate) fn give_back(&mut self, ordered: bool) {
        self.state = State::Returning;
        self.ordered = ordered;
        self.deadline = None;
    }

    /// Marks the worker as reported by the owner of this epoch.
    pub(crate) fn mark_started(&mut self, epoch: u64) {
        // A node that was blocked before the registration should get no work, so the worker counts
        // as idle.
        if self.is_node_blocked && self.reported_by.is_none() {
            self.idle = true;
        }
        self.state = State::Started;
        self.reported_by = Some(epoch);
        self.deadline = None;
    }

    /// True when it is allocated and not given back.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Launching | State::Started)
    }

    /// True for an idle worker on a blocked node, which does not count.
    pub(crate) fn is_idle_blocked(&self) -> bool {
        self.state == State::Started && self.idle && self.is_node_blocked
    }
}
