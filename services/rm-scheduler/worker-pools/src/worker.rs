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
    /// Given back and about to end. It does not count.
    Returning,
    /// Reported by the owner, but never granted to this pool. It does not count and is never
    /// released.
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
    /// Number of the request for this worker. `None` if it was never requested.
    pub number: Option<u64>,
    pub node: Option<NodeName>,
    /// Epoch of the last owner that reported the worker. `None` if it was never reported.
    pub reported_by: Option<u64>,
    /// True if the owner itself gave the worker back and needs no event (WP-8).
    pub ordered: bool,
    /// Monotonic time until which a launching worker must register, or a new owner must report a
    /// started worker. `None` while no owner is bound.
    pub deadline: Option<u64>,
    /// True if the owner reported the worker as idle.
    pub idle: bool,
    /// True while the node is blocked without evacuation. Not stored: after a restart the blocklist
    /// provides it again.
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

    /// Returns true if all stored fields are equal. The deadline and the block of the node are not
    /// stored.
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

    /// Returns true if the worker is allocated and not given back.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Launching | State::Started)
    }

    /// Returns true for an idle worker on a blocked node. Such a worker does not count.
    pub(crate) fn is_idle_blocked(&self) -> bool {
        self.state == State::Started && self.idle && self.is_node_blocked
    }
}
