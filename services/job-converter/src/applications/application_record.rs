//! The record of an application: its core, its allocations, and what was last written to its rows.
//! The frontend of the application is in the partition. The types of the rows are here too.

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::ids::{GroupName, TaskId};
use hayward_job_converter_application_protocol::messages::Ask;
use hayward_job_converter_application_protocol::task::Task;
use hayward_vocabulary::{AllocationId, Exit, NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Maximum number of warnings of one application.
const MAX_WARNINGS: usize = 16;

/// An application without its frontend.
#[derive(Clone)]
pub struct AppRecord {
    pub uuid: Uuid,
    pub user: UserName,
    /// `None` until the frontend has submitted the application.
    pub core: Option<core::Application>,
    /// Number, program and allocation of each task and placeholder.
    pub tasks: BTreeMap<TaskId, TaskInfo>,
    /// Task by its number. The work id of the task's demand entry has this number.
    pub task_by_number: BTreeMap<u32, TaskId>,
    pub next_number: u32,
    /// Current allocations, as rm-scheduler publishes them.
    pub allocations: BTreeMap<AllocationId, HeldAllocation>,
    /// Task of each allocation, including allocations restored from rows.
    pub task_by_allocation: BTreeMap<AllocationId, TaskId>,
    /// Tasks whose allocation may have been removed. They are checked after the update is applied.
    pub tasks_to_check: Vec<TaskId>,
    /// Settled placeholder allocations, by group number. Their end is handled, and the demand names
    /// them, so that the scheduler may grant others.
    pub settled: BTreeMap<u32, BTreeSet<AllocationId>>,
    pub warnings: Vec<Warning>,
    /// Number of tasks and members counted in the quota.
    pub quota_tasks: usize,
    /// Time of the next tick. `None` while nothing depends on one.
    pub tick: Option<Timestamp>,
    /// Last written head row.
    pub written_head: String,
    /// Hash of the last written row of each task.
    pub written_tasks: BTreeMap<TaskId, u64>,
    /// Time of the application's entry in `due`, by wall time in ms. `None` without an entry.
    pub due_ms: Option<i64>,
}

/// One allocation of an application.
#[derive(Debug, Clone)]
pub struct HeldAllocation {
    pub slot: Slot,
    pub node: NodeName,
    /// The placeholder or task that holds it.
    pub bound_task: Option<TaskId>,
    /// Whether the allocation has ended and its end is not handled yet.
    pub ended: bool,
}

/// Identifies one demand entry of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Entry of a task, by the number of the task.
    Task(u32),
    /// Entry for the placeholders of a group, by the position of the group.
    Group(u32),
    /// Asks for admission to the queue. It requests no process.
    Queue,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Number of the task in its work id. `None` for placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Allocation that the task holds, until the allocation has ended.
    #[serde(default, rename = "place", skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// Program of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub command: Vec<String>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub working_directory: Option<String>,
    #[serde(default)]
    pub traceparent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub at: Timestamp,
    #[serde(default)]
    pub task: Option<TaskId>,
    pub message: String,
}

/// Row of an application.
#[derive(Serialize, Deserialize)]
pub struct HeadRow<'a> {
    pub front: std::borrow::Cow<'a, frontend::Head>,
    pub core: Option<std::borrow::Cow<'a, core::Head>>,
    pub next_number: u32,
    pub settled: std::borrow::Cow<'a, BTreeMap<u32, BTreeSet<AllocationId>>>,
    pub warnings: std::borrow::Cow<'a, [Warning]>,
}

/// Row of a task or placeholder.
#[derive(Default, Serialize, Deserialize)]
pub struct TaskRow {
    /// `None` for a forgotten task whose allocation is not released yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Ask of the task in the core, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    /// Allocation of the task in the core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<core::Allocation>,
    #[serde(flatten)]
    pub info: TaskInfo,
}

impl TaskRow {
    pub fn is_empty(&self) -> bool {
        self.task.is_none() && self.ask.is_none() && self.held.is_none()
    }
}

/// Changes of one application since its rows and entries were written.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Whether all tasks changed.
    pub all: bool,
    /// Changed tasks and placeholders.
    pub keys: BTreeSet<TaskId>,
    /// Groups whose counters changed. The counters decide which waiting tasks may be placed.
    pub groups: BTreeSet<GroupName>,
}

impl AppRecord {
    pub fn new(uuid: Uuid, user: UserName) -> Self {
        Self {
            uuid,
            user,
            core: None,
            tasks: BTreeMap::new(),
            task_by_number: BTreeMap::new(),
            next_number: 0,
            allocations: BTreeMap::new(),
            task_by_allocation: BTreeMap::new(),
            tasks_to_check: Vec::new(),
            settled: BTreeMap::new(),
            warnings: Vec::new(),
            quota_tasks: 0,
            tick: None,
            written_head: String::new(),
            written_tasks: BTreeMap::new(),
            due_ms: None,
        }
    }

    /// Returns the work id of a demand entry.
    pub fn work_id(&self, slot: Slot) -> WorkId {
        let uuid = self.uuid.simple();
        let text = match slot {
            Slot::Task(task) => format!("{}{uuid}.{task}", super::WORK_ID_PREFIX),
            Slot::Group(group) => format!("{}{uuid}.g{group}", super::WORK_ID_PREFIX),
            Slot::Queue => format!("{}{uuid}.q", super::WORK_ID_PREFIX),
        };
        WorkId::new(text).expect("a prefix, a uuid and a number are valid in a work id")
    }

    /// Returns the work id of the whole application.
    pub fn application_work_id(&self) -> WorkId {
        let text = format!("{}{}", super::WORK_ID_PREFIX, self.uuid.simple());
        WorkId::new(text).expect("a prefix, a uuid and a number are valid in a work id")
    }

    /// Assigns a number to a task.
    pub fn add_task(&mut self, id: &TaskId, program: Program) {
        let number = self.next_number;
        self.next_number += 1;
        self.task_by_number.insert(number, id.clone());
        let info = TaskInfo {
            number: Some(number),
            program: Some(program),
            ..TaskInfo::default()
        };
        self.tasks.insert(id.clone(), info);
    }

    /// Returns true if the core is active, but has no asks and no allocations.
    pub fn is_idle(&self) -> bool {
        use core::State::{Accepted, New, Running};
        self.core.as_ref().is_some_and(|core| {
            let is_active = matches!(core.head.state, New | Accepted | Running);
            is_active && core.pending.is_empty() && core.allocations.is_empty()
        })
    }

    /// Returns the allocation that a task holds.
    pub fn allocation_of(&self, id: &TaskId) -> Option<&AllocationId> {
        self.tasks.get(id)?.allocation.as_ref()
    }

    /// Adds a warning. The oldest warning beyond the maximum is dropped.
    pub fn warn(&mut self, at: Timestamp, task: Option<TaskId>, message: String) {
        if self.warnings.len() == MAX_WARNINGS {
            self.warnings.remove(0);
        }
        self.warnings.push(Warning { at, task, message });
    }

    /// Returns the position of a group in its application.
    pub fn group_number(&self, name: Option<&str>) -> Option<u32> {
        let groups = &self.core.as_ref()?.head.submission.task_groups;
        let index = groups
            .iter()
            .position(|it| Some(it.name.as_str()) == name)?;
        u32::try_from(index).ok()
    }
}

/// Returns the hash of a written row.
pub fn hash_row(text: &str) -> u64 {
    use std::hash::BuildHasher as _;
    rustc_hash::FxBuildHasher.hash_one(text)
}

/// Parses a work id into the uuid of the application and the slot of the demand entry.
pub fn parse_work_id(id: &WorkId) -> Option<(Uuid, Slot)> {
    let suffix = id.as_str().strip_prefix(super::WORK_ID_PREFIX)?;
    let (uuid_text, part) = suffix.split_once('.')?;
    let uuid = Uuid::try_parse(uuid_text).ok()?;
    let slot = match part.strip_prefix('g') {
        Some(group) => Slot::Group(group.parse().ok()?),
        None if part == "q" => Slot::Queue,
        None => Slot::Task(part.parse().ok()?),
    };
    Some((uuid, slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_work_id_parses_to_its_slot() {
        let record = AppRecord::new(Uuid::from_u128(77), "ann".parse().unwrap());
        for slot in [Slot::Task(3), Slot::Group(0), Slot::Queue] {
            assert_eq!(
                parse_work_id(&record.work_id(slot)),
                Some((record.uuid, slot))
            );
        }
        for other in ["job_1", "app_1.1", "app_x.g1"] {
            assert_eq!(parse_work_id(&WorkId::new(other).unwrap()), None, "{other}");
        }
    }
}
