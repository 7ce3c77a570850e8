//! The life of one container: ordered → launching → running → stopping → ended.
//!
//! Invariants: the state only goes forward. `Ended` is final (I6) and is the only state with an
//! exit. An ordered stop is never revoked.

use hayward_vocabulary::{Exit, Timestamp};

/// The states in their order. A container never returns to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// In the desired set of its node, and not reported yet.
    Ordered,
    /// The agent has recorded in its journal that it will start it.
    Launching,
    Running,
    /// Ordered to stop. The end is not proven yet.
    Stopping,
    /// The end is proven, or the node was declared lost.
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

/// All that the decisions about a container depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    pub state: State,
    /// Number of the attempt. Reports about other attempts are ignored.
    pub incarnation: u64,
    /// True while the container waits for its predecessor or for a placement action. It is not in
    /// the desired set of its node then.
    pub held: bool,
    /// Revision of the first report in which its node had started it. `None` before.
    pub launch_revision: Option<u64>,
    /// Revision at which its node was ordered to stop it. `None` if it may run.
    pub stop_revision: Option<u64>,
    /// True if its allocation was removed. The container is archived as soon as it has ended.
    pub orphan: bool,
    pub pid: Option<u32>,
    /// Start time by the clock of the node. For display only; it is never compared (R4).
    pub started_at: Option<Timestamp>,
    /// Reason for its state as reported by its node, for example why it does not end. For display
    /// only (F31).
    pub reason: Option<String>,
    /// `None` until it has ended.
    pub exit: Option<Exit>,
}

impl Lifecycle {
    pub fn new(incarnation: u64) -> Self {
        Self {
            state: State::Ordered,
            incarnation,
            held: false,
            launch_revision: None,
            stop_revision: None,
            orphan: false,
            pid: None,
            started_at: None,
            reason: None,
            exit: None,
        }
    }

    /// Creates a container that is held until the predecessor of its process has ended.
    pub fn new_held(incarnation: u64) -> Self {
        Self {
            held: true,
            ..Self::new(incarnation)
        }
    }

    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Returns its goal in the desired set of its node. `None` while it is held and after its end.
    ///
    /// It leaves the set at its end, before its allocation is removed. Otherwise a node that lost
    /// its journal would run it again (I3).
    pub fn goal(&self) -> Option<Goal> {
        match (self.has_ended() || self.held, self.stop_revision) {
            (true, _) => None,
            (false, None) => Some(Goal::Run),
            (false, Some(_)) => Some(Goal::Stop),
        }
    }
}
