//! Binds the allocations that rm-scheduler granted to tasks and placeholders.
//!
//! Allocations of one group are interchangeable: each can serve any placeholder of the group.
//! Bindings are computed from the whole state, so the order of events does not matter.

use std::collections::BTreeMap;

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::free_capacity::NodeSpace;
use hayward_job_converter_application_protocol::gang_admission::MemberPlacement;
use hayward_job_converter_application_protocol::ids::{AppId, GroupName, TaskId};
use hayward_job_converter_application_protocol::messages::Termination;
use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp};

use super::Applications;
use super::application_record::{AppRecord, Slot};

/// An allocation that is not bound to a task.
struct FreeAllocation {
    id: AllocationId,
    slot: Slot,
    node: NodeName,
}

/// End of the allocation of a placeholder.
#[derive(Clone, Copy)]
pub(super) struct PlaceholderEnd {
    /// Whether the allocation was vacated because its demand shrank.
    pub demand_shrank: bool,
    pub termination: Termination,
}

impl AppRecord {
    fn free_allocations(&self) -> Vec<FreeAllocation> {
        let free = self.allocations.iter().filter(|(_, it)| {
            // The end of a task's allocation may be the first thing observed, so an ended
            // allocation of a task can still be bound.
            it.bound_task.is_none() && (!it.ended || matches!(it.slot, Slot::Task(_)))
        });
        free.map(|(id, it)| FreeAllocation {
            id: id.clone(),
            slot: it.slot,
            node: it.node.clone(),
        })
        .collect()
    }

    /// Unbinds allocations whose placeholder the core has released.
    fn unbind_released(&mut self) {
        let core = self.core.as_ref();
        let is_held = |key: &TaskId| core.is_some_and(|core| core.allocations.contains_key(key));
        for held in self.allocations.values_mut() {
            if let (Slot::Group(_), Some(key)) = (held.slot, &held.bound_task)
                && !is_held(key)
            {
                if let Some(allocation) =
                    self.tasks.get_mut(key).and_then(|it| it.allocation.take())
                {
                    self.task_by_allocation.remove(&allocation);
                }
                held.bound_task = None;
            }
        }
    }

    pub fn bind(&mut self, task: &TaskId, allocation: &AllocationId) {
        if let Some(held) = self.allocations.get_mut(allocation) {
            held.bound_task = Some(task.clone());
        }
        self.clear_allocation(task);
        let info = self.tasks.entry(task.clone()).or_default();
        info.allocation = Some(allocation.clone());
        self.task_by_allocation
            .insert(allocation.clone(), task.clone());
    }

    /// Removes the task's allocation from the task.
    pub fn clear_allocation(&mut self, task: &TaskId) {
        let info = self.tasks.get_mut(task);
        if let Some(allocation) = info.and_then(|it| it.allocation.take()) {
            self.task_by_allocation.remove(&allocation);
        }
    }

    /// Removes an ended allocation and returns its task.
    pub fn unbind(&mut self, allocation: &AllocationId) -> Option<TaskId> {
        let task = self.allocations.remove(allocation)?.bound_task?;
        if self.allocation_of(&task) == Some(allocation) {
            self.clear_allocation(&task);
        }
        Some(task)
    }

    /// Returns the placeholder chosen for each task, among placeholders with an allocation.
    pub fn placeholder_by_task(&self) -> BTreeMap<TaskId, TaskId> {
        let core = self.core.as_ref();
        let core = core.filter(|core| !core.head.submission.task_groups.is_empty());
        let held = core.into_iter().flat_map(|core| &core.allocations);
        let pairs = held.filter_map(|(placeholder, held)| {
            let (ask, _) = held.successor.as_ref()?;
            Some((ask.key.clone(), placeholder.clone()))
        });
        pairs.collect()
    }

    /// Returns true if the placeholder still exists and is assigned to this task.
    fn is_assigned_to(&self, placeholder: &TaskId, task: &TaskId) -> bool {
        let core = self.core.as_ref();
        let held = core.and_then(|core| core.allocations.get(placeholder));
        let successor = held.and_then(|held| held.successor.as_ref());
        successor.is_some_and(|(ask, _)| ask.key == *task)
    }

    fn group_name(&self, number: u32) -> Option<GroupName> {
        let groups = &self.core.as_ref()?.head.submission.task_groups;
        Some(groups.get(number as usize)?.name.clone())
    }
}

impl Applications {
    /// Binds free allocations to waiting tasks and placeholders.
    pub(super) fn bind(&mut self, id: &AppId, now: Timestamp) {
        if let Some(record) = self.records.get_mut(id) {
            record.unbind_released();
        }
        let free = self
            .records
            .get(id)
            .map(AppRecord::free_allocations)
            .unwrap_or_default();
        let placeholder_by_task = self.records.get(id).map(AppRecord::placeholder_by_task);
        let placeholder_by_task = placeholder_by_task.unwrap_or_default();
        for free in free {
            match free.slot {
                Slot::Task(_) => self.bind_task(id, free, &placeholder_by_task, now),
                Slot::Group(number) => self.bind_placeholder(id, number, free, now),
                Slot::Queue => {}
            }
        }
    }

    /// Binds an allocation to its task. If the task was to replace a placeholder, this completes
    /// the replacement.
    fn bind_task(
        &mut self,
        id: &AppId,
        free: FreeAllocation,
        placeholder_by_task: &BTreeMap<TaskId, TaskId>,
        now: Timestamp,
    ) {
        let (Some(record), Slot::Task(number)) = (self.records.get_mut(id), free.slot) else {
            return;
        };
        let Some(task) = record.task_by_number.get(&number).cloned() else {
            return;
        };
        let node = free.node;
        if let Some(placeholder) = placeholder_by_task
            .get(&task)
            .filter(|it| record.is_assigned_to(it, &task))
        {
            record.bind(&task, &free.id);
            let core = record.core.as_mut();
            let held = core.and_then(|core| core.allocations.get_mut(placeholder));
            if let Some((_, successor_node)) = held.and_then(|held| held.successor.as_mut()) {
                *successor_node = node;
            }
            self.complete_replacement(id, placeholder.clone(), now);
        } else if record
            .core
            .as_ref()
            .is_some_and(|it| it.pending.contains_key(&task))
        {
            record.bind(&task, &free.id);
            let key = task.clone();
            if !self.step_core_and_deliver(id, core::Input::Placed { key, node }, now)
                && let Some(record) = self.records.get_mut(id)
            {
                record.undo_binding(&task, &free.id);
            }
        }
    }

    /// Binds an allocation of a group to a waiting placeholder, or to a new one for a lost member.
    fn bind_placeholder(&mut self, id: &AppId, number: u32, free: FreeAllocation, now: Timestamp) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let (Some(group), Some(core)) = (record.group_name(number), record.core.as_mut()) else {
            return;
        };
        let mut asks = core.pending.values();
        let waiting = asks.find(|it| it.placeholder && it.group.as_ref() == Some(&group));
        if let Some(key) = waiting.map(|ask| ask.key.clone()) {
            record.bind(&key, &free.id);
            let input = core::Input::Placed {
                key: key.clone(),
                node: free.node,
            };
            if !self.step_core_and_deliver(id, input, now)
                && let Some(record) = self.records.get_mut(id)
            {
                record.undo_binding(&key, &free.id);
            }
        } else if core.lost_members().iter().any(|lost| lost.group == group) {
            self.repair_gang(id, group, free, now);
        }
    }

    /// Adds a placeholder for a lost member of a gang below its minimum (I13).
    fn repair_gang(&mut self, id: &AppId, group: GroupName, free: FreeAllocation, now: Timestamp) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let Some(core) = record.core.as_mut() else {
            return;
        };
        let before: Vec<TaskId> = core.allocations.keys().cloned().collect();
        let placed = MemberPlacement {
            group,
            node: free.node,
            count: 1,
        };
        let step = core.bind(&[placed], now);
        let new_key = core
            .allocations
            .keys()
            .find(|key| before.binary_search(key).is_err())
            .cloned();
        if let Some(key) = new_key {
            record.bind(&key, &free.id);
        }
        self.deliver_core_step(id, step, now);
    }

    /// Chooses placeholders for waiting tasks. The scheduler checks nodes, so the node of every
    /// placeholder is acceptable here.
    pub(super) fn choose_placeholders(&mut self, id: &AppId, now: Timestamp) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let Some(core) = record.core.as_mut() else {
            return;
        };
        if !core
            .pending
            .values()
            .any(|ask| core.can_replace_placeholder(ask))
        {
            return;
        }
        let held = core.allocations.values().filter(|it| it.ask.placeholder);
        let nodes: std::collections::BTreeSet<NodeName> = held.map(|it| it.node.clone()).collect();
        let mut spaces: Vec<NodeSpace> = nodes
            .into_iter()
            .map(|node| NodeSpace::new(node, Size::default()))
            .collect();
        let step = core.replace(&mut spaces, now);
        if !step.effects.is_empty() {
            self.deliver_core_step(id, step, now);
        }
    }

    /// Handles the end of a placeholder's allocation.
    pub(super) fn apply_placeholder_end(
        &mut self,
        id: &AppId,
        key: &TaskId,
        end: PlaceholderEnd,
        now: Timestamp,
    ) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let Some(core) = record.core.as_mut() else {
            return;
        };
        let Some(held) = core.allocations.get(key) else {
            return;
        };
        let termination = end.termination;
        if termination == Termination::PlaceholderReplaced && held.successor.is_none() {
            // The task that replaced the placeholder has completed in the meantime.
            self.complete_replacement(id, key.clone(), now);
            return;
        }
        // If the group shrank, the scheduler removed the newest allocation. The placeholder is then
        // bound to another free allocation of the group.
        let group = core.allocations[key].ask.group.clone();
        let number = record.group_number(group.as_ref().map(GroupName::as_str));
        let spare = record
            .free_allocations()
            .into_iter()
            .find(|free| match free.slot {
                Slot::Group(group) => Some(group) == number,
                Slot::Task(_) | Slot::Queue => false,
            });
        if let (true, Some(spare)) = (end.demand_shrank, spare) {
            record.bind(key, &spare.id);
            let core = record.core.as_mut();
            if let Some(held) = core.and_then(|core| core.allocations.get_mut(key)) {
                held.node = spare.node;
            }
            self.mark_dirty(id).keys.insert(key.clone());
            return;
        }
        self.mark_dirty(id).all = true;
        let key = key.clone();
        self.step_core_and_deliver(id, core::Input::Lost { key, termination }, now);
    }
}

impl AppRecord {
    /// Undoes a binding that the core refused.
    fn undo_binding(&mut self, task: &TaskId, allocation: &AllocationId) {
        if let Some(held) = self.allocations.get_mut(allocation) {
            held.bound_task = None;
        }
        self.clear_allocation(task);
    }
}
