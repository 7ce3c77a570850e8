//! One schedulable unit (2.3), and the machine it goes through (3.2).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp};
use serde::{Deserialize, Serialize};

use crate::frontend::Failure;
use crate::ids::{GroupName, TaskId};
use crate::messages::{Ask, Termination};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    New,
    Pending,
    Scheduling,
    Allocated,
    Bound,
    Completed,
    Killing,
    Killed,
    Rejected,
    Failed,
}

impl State {
    pub const ALL: [Self; 10] = [
        Self::New,
        Self::Pending,
        Self::Scheduling,
        Self::Allocated,
        Self::Bound,
        Self::Completed,
        Self::Killing,
        Self::Killed,
        Self::Rejected,
        Self::Failed,
    ];

    /// Does not stand in the way of a removal (2.1).
    pub fn is_terminated(self) -> bool {
        use State::{Completed, Failed, Killed, Rejected};
        matches!(self, Completed | Failed | Rejected | Killed)
    }

    /// Not placed yet.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::New | Self::Pending | Self::Scheduling)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    Init,
    Submit,
    Allocate,
    Bind,
    Complete,
    Kill,
    Killed,
    Reject,
    Fail,
}

impl Event {
    pub const ALL: [Self; 9] = [
        Self::Init,
        Self::Submit,
        Self::Allocate,
        Self::Bind,
        Self::Complete,
        Self::Kill,
        Self::Killed,
        Self::Reject,
        Self::Fail,
    ];
}

/// Where an event leads; nothing when it is not legal in this state.
pub fn next(from: State, event: Event) -> Option<State> {
    use State::{Allocated, Bound, Completed, Killing, New, Pending, Rejected, Scheduling};
    let to = match (event, from) {
        (Event::Init, New) => Pending,
        (Event::Submit, Pending) => Scheduling,
        (Event::Allocate, Scheduling) => Allocated,
        (Event::Bind, Allocated) => Bound,
        // The race of 2.5: it ended before the core said where.
        (Event::Allocate, Completed) | (Event::Complete, _) => Completed,
        (Event::Kill, Pending | Scheduling | Allocated | Bound) => Killing,
        (Event::Killed, Killing) => State::Killed,
        (Event::Reject, New | Pending | Scheduling) => Rejected,
        // Also from Bound: what ended badly is not Completed, which the release of 1.0 made of it.
        (Event::Fail, Rejected | Allocated | Bound) => State::Failed,
        _ => return None,
    };
    Some(to)
}

/// What the runtime says of its object when a task is made of it (2.4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Runtime {
    #[default]
    Unassigned,
    Assigned {
        node: NodeName,
    },
    Ended,
}

/// Where a task may be placed, and who yields to whom. The core only hands it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placing {
    /// Empty means any.
    pub machines: Vec<NodeName>,
    /// It may run there and nowhere else, and makes room there (10.4).
    pub required_node: Option<NodeName>,
    /// May take from others.
    pub preempts: bool,
    /// Is taken before those that would rather not be.
    pub preemptable: bool,
    /// Never where another task of its application is that says so too.
    pub apart: Option<Spread>,
}

/// What those that are kept apart must not share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Spread {
    /// A label of nodes, whose values must differ; absent: the node itself.
    pub by_label: Option<String>,
}

impl Default for Placing {
    fn default() -> Self {
        Self {
            machines: Vec::new(),
            required_node: None,
            preempts: true,
            preemptable: true,
            apart: None,
        }
    }
}

/// What a submitter says of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wish {
    /// `namespace/name`, for messages; its id where absent.
    #[serde(default)]
    pub alias: Option<String>,
    #[serde(default)]
    pub size: Size,
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub task_group_name: Option<GroupName>,
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// The one the others belong to; the last to be preempted.
    #[serde(default)]
    pub originator: bool,
    #[serde(default)]
    pub placing: Placing,
    #[serde(default)]
    pub runtime: Runtime,
}

/// A task as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    pub wish: Wish,
    pub placeholder: bool,
    pub state: State,
    pub created_at: Timestamp,
    #[serde(default)]
    pub node: Option<NodeName>,
    /// The key under which the core holds its place.
    #[serde(default)]
    pub allocation: Option<TaskId>,
    /// The core asked for it back, and waits to hear that it is gone.
    #[serde(default)]
    pub release: Option<Termination>,
    #[serde(default)]
    pub failure: Option<Failure>,
}

impl Task {
    /// A real task, in the state that the runtime object has reached (2.4).
    pub fn of(id: TaskId, wish: Wish, now: Timestamp) -> Self {
        let (state, node) = match &wish.runtime {
            Runtime::Unassigned => (State::New, None),
            Runtime::Assigned { node } => (State::Allocated, Some(node.clone())),
            Runtime::Ended => (State::Completed, None),
        };
        let allocation = (state != State::New).then(|| id.clone());
        Self {
            id,
            placeholder: false,
            state,
            created_at: now,
            node,
            allocation,
            release: None,
            failure: None,
            wish,
        }
    }

    pub fn alias(&self) -> &str {
        self.wish.alias.as_deref().unwrap_or(self.id.as_str())
    }

    pub fn ask(&self) -> Ask {
        Ask {
            key: self.id.clone(),
            size: self.wish.size.clone(),
            priority: self.wish.priority,
            group: self.wish.task_group_name.clone(),
            placeholder: self.placeholder,
            node_selector: self.wish.node_selector.clone(),
            created_at: self.created_at,
        }
    }
}
