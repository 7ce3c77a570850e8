//! The life of one container: ordered → launching → running → stopping → ended.
//!
//! Invariants: the state only goes forward; `Ended` absorbs everything (I6) and is the only state
//! with an exit; a stop, once ordered, is never taken back.

use hayward_vocabulary::{Exit, Timestamp};

/// In order: a container never returns to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// In the desired set of its node; not reported yet.
    Ordered,
    /// The agent has recorded in its journal that it will start it.
    Launching,
    Running,
    /// Ordered to stop; its end is not proven yet.
    Stopping,
    /// Proven to have ended, or its node was declared lost.
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

/// Goal of a container in the desired set of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Run,
    Stop,
}

/// The facts that decisions about a container depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub state: State,
    /// Number of the attempt. Reports about other attempts are ignored.
    pub incarnation: u64,
    /// Not yet in the desired set of its node: it waits for its predecessor or for an action.
    pub held: bool,
    /// Revision at which the node was first known to have it.
    pub launched: Option<u64>,
    /// Revision at which its node was ordered to stop it.
    pub stop: Option<u64>,
    /// Its allocation is gone: it is removed as soon as it has ended.
    pub orphan: bool,
    pub pid: Option<u32>,
    /// By the clock of the node; shown to users, never compared (R4).
    pub started_at: Option<Timestamp>,
    /// Why it is in its state, as its node reported; above all why it does not end. Shown to users;
    /// no decision uses it (F31).
    pub reason: Option<String>,
    /// Set only when ended.
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

    /// Held until the predecessor of its process has ended.
    pub fn held(incarnation: u64) -> Self {
        Self {
            held: true,
            ..Self::ordered(incarnation)
        }
    }

    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Its entry in the desired set of its node; none once it has ended or while it is held.
    ///
    /// It leaves the set at its end, before it is removed here. Otherwise a node that lost its
    /// journal would find an order to run it again (I3).
    pub fn desired(&self) -> Option<Goal> {
        match (self.has_ended() || self.held, self.stop) {
            (true, _) => None,
            (false, None) => Some(Goal::Run),
            (false, Some(_)) => Some(Goal::Stop),
        }
    }
}
