//! One worker, as the pool sees it (section 3).

use hayward_vocabulary::NodeName;

/// `REQUESTED` is a number without an id and so no worker yet; what is gone is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Granted; the owner has not reported it.
    Launching,
    /// The owner has reported it.
    Started,
    /// Given back; its end is awaited. Not counted.
    Returning,
    /// The owner has it and the pool does not: outside the arithmetic, never released.
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
    /// The number it was asked for by; absent where the pool never asked for it.
    pub number: Option<u64>,
    pub node: Option<NodeName>,
    /// Epoch of the owner that reported it last; absent while none ever has.
    pub reported_by: Option<u64>,
    /// The owner itself gave it up, so it need not be told of the end (W8).
    pub ordered: bool,
    /// `LAUNCHING`: until when it has to register. `STARTED`: until when a new owner has to report
    /// it again. Runs only while an owner is bound.
    pub deadline: Option<u64>,
    /// The owner has nothing for it to do; until it says so, a worker is busy.
    pub idle: bool,
    /// Its node is blocked, and not emptied at once. Told again after a restart.
    pub marked: bool,
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
            marked: false,
        }
    }

    /// The same but for its deadline and the mark of its node, which begin anew with a term.
    pub fn is_kept_like(&self, other: &Self) -> bool {
        let kept = |worker: &Self| {
            let numbers = (worker.number, worker.reported_by);
            (worker.state, numbers, worker.idle)
        };
        kept(self) == kept(other) && self.node == other.node && self.ordered == other.ordered
    }

    pub(crate) fn give_back(&mut self, ordered: bool) {
        self.state = State::Returning;
        self.ordered = ordered;
        self.deadline = None;
    }

    pub(crate) fn started(&mut self, epoch: u64) {
        // Accepted, because the owner's word is the truth; but a node that was blocked before it
        // registered should not get work (section 22).
        if self.marked && self.reported_by.is_none() {
            self.idle = true;
        }
        self.state = State::Started;
        self.reported_by = Some(epoch);
        self.deadline = None;
    }

    /// It has its place, and nobody gave it back.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Launching | State::Started)
    }

    /// Section 22: busy workers on a marked node are counted, idle ones are not.
    pub(crate) fn is_idle_blocked(&self) -> bool {
        self.state == State::Started && self.idle && self.marked
    }
}
