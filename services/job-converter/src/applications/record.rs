//! What is kept of one application beside its front: the core, and where its parts stand.

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend;
use hayward_job_converter_application_protocol::ids::{GroupName, TaskId};
use hayward_job_converter_application_protocol::messages::Ask;
use hayward_job_converter_application_protocol::task::Task;
use hayward_vocabulary::{AllocationId, Exit, NodeName, Timestamp, UserName, WorkId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Warnings kept of one application.
const WARNINGS: usize = 16;

#[derive(Clone)]
pub struct Half {
    pub uuid: Uuid,
    pub user: UserName,
    /// Absent until the front has submitted it.
    pub core: Option<core::Application>,
    /// What is known of its tasks and placeholders beside both machines.
    pub beside: BTreeMap<TaskId, Beside>,
    pub by_number: BTreeMap<u32, TaskId>,
    pub next_number: u32,
    /// Its allocations that stand, as the scheduler says.
    pub standing: BTreeMap<AllocationId, Standing>,
    /// Whose place each of them is, also where that was read from rows.
    pub holders: BTreeMap<AllocationId, TaskId>,
    /// Whose allocation is no more, to be looked at.
    pub vacated: Vec<TaskId>,
    /// Ended placeholders that were taken note of, by the number of their group.
    pub settled: BTreeMap<u32, BTreeSet<AllocationId>>,
    pub warnings: Vec<Warning>,
    /// Tasks and members that are counted of it among all.
    pub counted: usize,
    /// When it ticks next, while something depends on that.
    pub tick: Option<Timestamp>,
    /// The head as it was written last.
    pub written: String,
    /// What was written last of each task, as a hash: most looks at a task change nothing.
    pub written_tasks: BTreeMap<TaskId, u64>,
    /// When it is looked at without news.
    pub due: Option<i64>,
}

/// One allocation of it.
#[derive(Debug, Clone)]
pub struct Standing {
    pub slot: Slot,
    pub node: NodeName,
    /// Of a placeholder or a task of it.
    pub bound: Option<TaskId>,
    /// And what follows from that is not done yet.
    pub ended: bool,
}

/// Which demand entry of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Task(u32),
    Group(u32),
    /// Asks whether there is such a queue, and for nothing else.
    Queue,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Of a task: the number in the id of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Where it stands, until that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<AllocationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// What a task runs.
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

/// The row of an application.
#[derive(Serialize, Deserialize)]
pub struct HeadRow<'a> {
    pub front: std::borrow::Cow<'a, frontend::Head>,
    pub core: Option<std::borrow::Cow<'a, core::Head>>,
    pub next_number: u32,
    pub settled: std::borrow::Cow<'a, BTreeMap<u32, BTreeSet<AllocationId>>>,
    pub warnings: std::borrow::Cow<'a, [Warning]>,
}

/// The row of a task or a placeholder.
#[derive(Default, Serialize, Deserialize)]
pub struct TaskRow {
    /// Absent when it was forgotten, and its place was not given back (2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// As the core keeps it while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    /// As the core keeps it while it has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<core::Allocation>,
    #[serde(flatten)]
    pub beside: Beside,
}

impl TaskRow {
    pub fn is_empty(&self) -> bool {
        self.task.is_none() && self.ask.is_none() && self.held.is_none()
    }
}

/// What may read differently in one application.
#[derive(Debug, Default)]
pub struct Touched {
    /// All of its tasks.
    pub all: bool,
    pub keys: BTreeSet<TaskId>,
    /// Tasks of these groups that wait: whether they may be placed depends on its counters.
    pub groups: BTreeSet<GroupName>,
}

impl Half {
    pub fn new(uuid: Uuid, user: UserName) -> Self {
        Self {
            uuid,
            user,
            core: None,
            beside: BTreeMap::new(),
            by_number: BTreeMap::new(),
            next_number: 0,
            standing: BTreeMap::new(),
            holders: BTreeMap::new(),
            vacated: Vec::new(),
            settled: BTreeMap::new(),
            warnings: Vec::new(),
            counted: 0,
            tick: None,
            written: String::new(),
            written_tasks: BTreeMap::new(),
            due: None,
        }
    }

    /// The id of one of its demand entries.
    pub fn work(&self, slot: Slot) -> WorkId {
        let number = self.uuid.simple();
        let text = match slot {
            Slot::Task(task) => format!("{}{number}.{task}", super::PREFIX),
            Slot::Group(group) => format!("{}{number}.g{group}", super::PREFIX),
            Slot::Queue => format!("{}{number}.q", super::PREFIX),
        };
        WorkId::new(text).expect("made of good characters")
    }

    /// All of it, as the group of tasks that are kept apart.
    pub fn whole(&self) -> WorkId {
        let text = format!("{}{}", super::PREFIX, self.uuid.simple());
        WorkId::new(text).expect("made of good characters")
    }

    /// Gives a task its number.
    pub fn enter(&mut self, id: &TaskId, program: Program) {
        let number = self.next_number;
        self.next_number += 1;
        self.by_number.insert(number, id.clone());
        let beside = Beside {
            number: Some(number),
            program: Some(program),
            ..Beside::default()
        };
        self.beside.insert(id.clone(), beside);
    }

    /// Its core would go on, and has nothing to go on with.
    pub fn is_idle(&self) -> bool {
        use core::State::{Accepted, New, Running};
        self.core.as_ref().is_some_and(|core| {
            let works = matches!(core.head.state, New | Accepted | Running);
            works && core.pending.is_empty() && core.allocations.is_empty()
        })
    }

    pub fn place(&self, id: &TaskId) -> Option<&AllocationId> {
        self.beside.get(id)?.place.as_ref()
    }

    pub fn warn(&mut self, at: Timestamp, task: Option<TaskId>, message: String) {
        if self.warnings.len() == WARNINGS {
            self.warnings.remove(0);
        }
        self.warnings.push(Warning { at, task, message });
    }

    /// The number of a group in the list of its application.
    pub fn group_number(&self, name: Option<&str>) -> Option<u32> {
        let groups = &self.core.as_ref()?.head.submission.task_groups;
        let at = groups
            .iter()
            .position(|it| Some(it.name.as_str()) == name)?;
        u32::try_from(at).ok()
    }
}

/// Of a text that was written.
pub fn hash(text: &str) -> u64 {
    use std::hash::BuildHasher as _;
    rustc_hash::FxBuildHasher.hash_one(text)
}

/// The application and the part of it that an id of work names.
pub fn read_work(id: &WorkId) -> Option<(Uuid, Slot)> {
    let rest = id.as_str().strip_prefix(super::PREFIX)?;
    let (number, part) = rest.split_once('.')?;
    let uuid = Uuid::try_parse(number).ok()?;
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
    fn an_id_of_a_part_reads_back() {
        let half = Half::new(Uuid::from_u128(77), "ann".parse().unwrap());
        for slot in [Slot::Task(3), Slot::Group(0), Slot::Queue] {
            assert_eq!(read_work(&half.work(slot)), Some((half.uuid, slot)));
        }
        for other in ["job_1", "app_1.1", "app_x.g1"] {
            assert_eq!(read_work(&WorkId::new(other).unwrap()), None, "{other}");
        }
    }
}
