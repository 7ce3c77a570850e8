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
        }
    }

    /// The same but for its deadline, which begins anew with a term.
    pub fn is_kept_like(&self, other: &Self) -> bool {
        let kept = |worker: &Self| (worker.state, worker.number, worker.reported_by);
        kept(self) == kept(other) && self.node == other.node && self.ordered == other.ordered
    }

    pub(crate) fn give_back(&mut self, ordered: bool) {
        self.state = State::Returning;
        self.ordered = ordered;
        self.deadline = None;
    }

    pub(crate) fn started(&mut self, epoch: u64) {
        self.state = State::Started;
        self.reported_by = Some(epoch);
        self.deadline = None;
    }

    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.state, State::Launching | State::Started)
    }
}
