//! The life of one container: ordered → launching → running → stopping → ended.
//!
//! Invariants: the state only goes forward; `Ended` absorbs everything (I6) and is the only state
//! with an exit; a stop, once ordered, is never taken back.

use hayward_vocabulary::{Exit, Timestamp};

/// In order of life: a later state is never left for an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The node has been told; nothing was heard of it yet.
    Ordered,
    /// The agent has journalled its intent.
    Launching,
    Running,
    /// Told to end, not yet proven gone.
    Stopping,
    /// Proven gone, or given up with its node.
    Ended,
}

impl State {
    pub const ALL: [Self; 5] = [
        Self::Ordered,
        Self::Launching,
        Self::Running,
        Self::Stopping,
        Self::Ended,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Launching => "launching",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// What the node is told about a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Run,
    Stop,
}

/// Everything that decisions about a container depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub state: State,
    /// The attempt this container is; what is said of another one does not concern it.
    pub incarnation: u64,
    /// Reserved: its node is told nothing of it yet.
    pub held: bool,
    /// Revision at which it became known here that the node had it.
    pub launched: Option<u64>,
    /// Revision at which the node was told to end it.
    pub stop: Option<u64>,
    /// Its allocation is gone above: it is buried as soon as it has ended.
    pub orphan: bool,
    pub pid: Option<u32>,
    /// By the node's clock; shown, never compared (R4).
    pub started_at: Option<Timestamp>,
    /// Why it is as it is, in the words of its node: above all why it does not end (F31). Shown,
    /// and nothing rests on it.
    pub reason: Option<String>,
    /// Present exactly when ended.
    pub exit: Option<Exit>,
}

impl Life {
    pub fn ordered(incarnation: u64) -> Self {
        Self {
            state: State::Ordered,
            incarnation,
            held: false,
            launched: None,
            stop: None,
            orphan: false,
            pid: None,
            started_at: None,
            reason: None,
            exit: None,
        }
    }

    /// Reserved for a process whose predecessor has not ended yet.
    pub fn held(incarnation: u64) -> Self {
        Self {
            held: true,
            ..Self::ordered(incarnation)
        }
    }

    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// What the node's desired set says about it; nothing once it has ended.
    ///
    /// An ended container leaves the set although its burial may take a while: its exit is durable
    /// here, and a node that has lost its journal must not find an order to run it again (I3).
    pub fn desired(&self) -> Option<Goal> {
        match (self.has_ended() || self.held, self.stop) {
            (true, _) => None,
            (false, None) => Some(Goal::Run),
            (false, Some(_)) => Some(Goal::Stop),
        }
    }
}
