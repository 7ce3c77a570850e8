//! A task of an application, and its state machine. A placeholder is a task without a process.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::ids::{GroupName, TaskId};
use crate::messages::{Ask, Termination};
use crate::task_groups::TaskGroup;

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

    /// Returns true if a task in this state does not prevent the removal of its application.
    pub fn is_terminated(self) -> bool {
        use State::{Completed, Failed, Killed, Rejected};
        matches!(self, Completed | Failed | Rejected | Killed)
    }

    /// Returns true if the task has no allocation yet.
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

/// Returns the target state of an event. `None` if the event is not legal in this state.
pub fn next(from: State, event: Event) -> Option<State> {
    use State::{Allocated, Bound, Completed, Killing, New, Pending, Rejected, Scheduling};
    let to = match (event, from) {
        (Event::Init, New) => Pending,
        (Event::Submit, Pending) => Scheduling,
        (Event::Allocate, Scheduling) => Allocated,
        (Event::Bind, Allocated) => Bound,
        // The task ended before its allocation was known.
        (Event::Allocate, Completed) | (Event::Complete, _) => Completed,
        (Event::Kill, Pending | Scheduling | Allocated | Bound) => Killing,
        (Event::Killed, Killing) => State::Killed,
        (Event::Reject, New | Pending | Scheduling) => Rejected,
        // Failing is legal in Bound as well, so that a failed process does not count as Completed.
        // Release 1.0 differs.
        (Event::Fail, Rejected | Allocated | Bound) => State::Failed,
        _ => return None,
    };
    Some(to)
}

/// State of the runtime object when its task is created.
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

/// Placement constraints and preemption flags. The core only passes them on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PlacementConstraints {
    /// Nodes that the task may run on. An empty list allows any node.
    pub machines: Vec<NodeName>,
    /// The only node that the task may run on. Other work there is preempted. `None` requires no
    /// node.
    pub required_node: Option<NodeName>,
    /// Whether the task may preempt other work.
    pub preempts: bool,
    /// Whether the task is preempted like others. If `false`, other work is preempted first.
    pub preemptable: bool,
    /// Anti-affinity: the task never shares a fault domain with tasks of its application that also
    /// set this.
    pub apart: Option<Spread>,
}

/// Fault domain of tasks with anti-affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Spread {
    /// Node label that names the fault domain. `None` selects the node itself.
    pub by_label: Option<String>,
}

impl Default for PlacementConstraints {
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

/// Submitted properties of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSpec {
    /// `namespace/name` for messages. The default is the id of the task.
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
    /// Whether other tasks depend on this one. It is preempted last.
    #[serde(default)]
    pub originator: bool,
    #[serde(default, rename = "placing")]
    pub placement: PlacementConstraints,
    #[serde(default)]
    pub runtime: Runtime,
}

/// A task, as stored in its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    #[serde(rename = "wish")]
    pub spec: TaskSpec,
    pub placeholder: bool,
    pub state: State,
    pub created_at: Timestamp,
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Key of the allocation in the core. `None` before the task has one.
    #[serde(default)]
    pub allocation: Option<TaskId>,
    /// Why the core requested a release. It waits for the confirmation.
    #[serde(default)]
    pub release: Option<Termination>,
    #[serde(default)]
    pub failure: Option<Failure>,
}

impl Task {
    /// Creates a real task in the state that its runtime object has reached.
    pub fn new(id: TaskId, spec: TaskSpec, now: Timestamp) -> Self {
        let (state, node) = match &spec.runtime {
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
            spec,
        }
    }

    /// Creates a placeholder of a task group.
    pub fn placeholder(id: TaskId, group: &TaskGroup, now: Timestamp) -> Self {
        let spec = TaskSpec {
            size: group.min_resource.clone(),
            task_group_name: Some(group.name.clone()),
            node_selector: group.node_selector.clone(),
            ..TaskSpec::default()
        };
        Self {
            placeholder: true,
            ..Self::new(id, spec, now)
        }
    }

    pub fn alias(&self) -> &str {
        self.spec.alias.as_deref().unwrap_or(self.id.as_str())
    }

    pub fn ask(&self) -> Ask {
        Ask {
            key: self.id.clone(),
            size: self.spec.size.clone(),
            priority: self.spec.priority,
            group: self.spec.task_group_name.clone(),
            placeholder: self.placeholder,
            node_selector: self.spec.node_selector.clone(),
            created_at: self.created_at,
        }
    }
}
