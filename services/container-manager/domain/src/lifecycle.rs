//! The life of one container: ordered → launching → running → stopping → ended.
//!
//! Invariants: the state only goes forward. `Ended` is final (I6) and is the only state with an
//! exit. An ordered stop is never revoked.

use hayward_vocabulary::{Exit, Timestamp};

/// The states in their order. A container never returns to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The container is in the desired set of its node, and was not reported yet.
    Ordered,
    /// The agent has recorded in its journal that it will start the container.
    Launching,
    Running,
    /// The container was ordered to stop. Its end is not proven yet.
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
    /// True while the container waits for its predecessor or for a placement action. A held
    /// container is not in the desired set of its node.
    pub held: bool,
    /// Revision of the first report by which the node had started the container. `None` before.
    pub launch_revision: Option<u64>,
    /// Revision at which the node was ordered to stop the container. `None` if it may run.
    pub stop_revision: Option<u64>,
    /// True if the allocation was removed. The container is archived as soon as it has ended.
    pub orphan: bool,
    pub pid: Option<u32>,
    /// Start time by the clock of the node. For display only: never compared with other times (R4).
    pub started_at: Option<Timestamp>,
    /// Reason that the node reported for the state, for example why the container does not end. For
    /// display only (F31).
    pub reason: Option<String>,
    /// `None` until the container has ended.
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

    /// Returns the goal in the desired set of the node. `None` while the container is held, and
    /// after its end.
    ///
    /// An ended container leaves the set at once, even if its allocation still exists. Otherwise a
    /// node that lost its journal would run the container again (I3).
    pub fn goal(&self) -> Option<Goal> {
        if self.has_ended() || self.held {
            return None;
        }
        Some(match self.stop_revision {
            None => Goal::Run,
            Some(_) => Goal::Stop,
        })
    }
}
