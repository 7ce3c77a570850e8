//! Delivers messages between the frontend and the core of an application until none are left.
//!
//! A replacement takes two steps. The core chooses a placeholder for a task, and the scheduler then
//! exchanges their allocations. The frontend learns of the replacement only after the exchange
//! ([`super::bindings`]).

use std::collections::VecDeque;

use hayward_job_converter_application_protocol::core;
use hayward_job_converter_application_protocol::frontend::{self, Effect};
use hayward_job_converter_application_protocol::ids::{AppId, GroupName, TaskId};
use hayward_job_converter_application_protocol::messages::{Termination, ToCore, ToFront};
use hayward_job_converter_application_protocol::task;
use hayward_vocabulary::Timestamp;

use super::{Applications, demand};

/// A message between the machines.
enum Message {
    ToCore(ToCore),
    ToFront(ToFront),
    /// A task that must end has no process, so it has ended.
    Stopped(TaskId),
}

impl Applications {
    /// Carries out the effects of a frontend step.
    pub(super) fn run_effects(&mut self, id: &AppId, effects: Vec<Effect>, now: Timestamp) {
        let mut queue = VecDeque::new();
        self.queue_frontend_effects(id, effects, now, &mut queue);
        self.deliver(id, queue, now);
    }

    /// Applies an input to the core and delivers the resulting messages. Returns true if the core
    /// accepted the input.
    pub(super) fn step_core_and_deliver(
        &mut self,
        id: &AppId,
        input: core::Input,
        now: Timestamp,
    ) -> bool {
        let mut queue = VecDeque::new();
        let applied = self.step_core(id, input, now, &mut queue);
        self.deliver(id, queue, now);
        applied
    }

    /// Applies an event to a task and delivers the resulting messages.
    pub(super) fn step_task_and_deliver(
        &mut self,
        id: &AppId,
        task: &TaskId,
        event: task::Event,
        now: Timestamp,
    ) {
        if let Some(applied) = self.partition.apply_to_task(id, task, event, now) {
            self.mark_dirty(id).keys.insert(task.clone());
            self.run_effects(id, applied.step.effects, now);
        }
    }

    /// Informs the frontend that the scheduler ended a placeholder in favour of its task.
    pub(super) fn complete_replacement(&mut self, id: &AppId, placeholder: TaskId, now: Timestamp) {
        let message = ToFront::Release {
            keys: vec![placeholder],
            termination: Termination::PlaceholderReplaced,
        };
        self.deliver(id, VecDeque::from([Message::ToFront(message)]), now);
    }

    /// Delivers queued messages until none are left.
    fn deliver(&mut self, id: &AppId, mut queue: VecDeque<Message>, now: Timestamp) {
        while let Some(message) = queue.pop_front() {
            match message {
                Message::ToCore(ToCore::Submit(submission)) => {
                    let Some(record) = self.records.get_mut(id).filter(|it| it.core.is_none())
                    else {
                        continue;
                    };
                    let needs_admission =
                        self.partition.get(id).is_some_and(demand::needs_admission);
                    record.core = Some(core::Application::new(submission, now));
                    self.mark_dirty(id).all = true;
                    // A queue admits its applications first. Without a queue, the scheduler decides
                    // about each task alone.
                    if !needs_admission {
                        self.step_core(id, core::Input::Admitted(Ok(())), now, &mut queue);
                    }
                }
                Message::ToCore(message) => {
                    self.mark_core_message(id, &message);
                    self.step_core(id, core::Input::Front(message), now, &mut queue);
                }
                Message::ToFront(message) => self.deliver_to_frontend(id, message, now, &mut queue),
                Message::Stopped(task) => {
                    let event = task::Event::Killed;
                    if let Some(applied) = self.partition.apply_to_task(id, &task, event, now) {
                        self.mark_dirty(id).keys.insert(task);
                        self.queue_frontend_effects(id, applied.step.effects, now, &mut queue);
                    }
                }
            }
        }
    }

    fn step_core(
        &mut self,
        id: &AppId,
        input: core::Input,
        now: Timestamp,
        queue: &mut VecDeque<Message>,
    ) -> bool {
        let Some(core) = self.records.get_mut(id).and_then(|it| it.core.as_mut()) else {
            return false;
        };
        let groups_before = core.head.groups.clone();
        let step = core.step(input, now);
        let after = core.head.groups.iter();
        let changed_groups = after.filter(|(name, group)| groups_before.get(*name) != Some(*group));
        let changed_groups: Vec<GroupName> = changed_groups.map(|(name, _)| name.clone()).collect();
        let dirty = self.mark_dirty(id);
        dirty.groups.extend(changed_groups);
        dirty.all |= !step.transitions.is_empty();
        let applied = step.is_applied();
        self.queue_core_effects(id, step, now, queue);
        applied
    }

    pub(super) fn deliver_core_step(&mut self, id: &AppId, step: core::Step, now: Timestamp) {
        let mut queue = VecDeque::new();
        self.mark_dirty(id).all = true;
        self.queue_core_effects(id, step, now, &mut queue);
        self.deliver(id, queue, now);
    }

    fn queue_core_effects(
        &mut self,
        id: &AppId,
        step: core::Step,
        now: Timestamp,
        queue: &mut VecDeque<Message>,
    ) {
        for effect in step.effects {
            match effect {
                core::Effect::ToFront(ToFront::Release {
                    keys,
                    termination: Termination::PlaceholderReplaced,
                }) => self.mark_dirty(id).keys.extend(keys),
                core::Effect::ToFront(message) => queue.push_back(Message::ToFront(message)),
                core::Effect::Replacing { ask, .. } => {
                    self.mark_dirty(id).keys.insert(ask);
                }
                core::Effect::PlaceholderMismatch { ask, types, .. } => {
                    let text = format!(
                        "placeholder_mismatch: it needs more {} than the placeholders of its \
                         group hold; they are released and it is placed on its own",
                        types.join(", ")
                    );
                    if let Some(record) = self.records.get_mut(id)
                        && record.warnings.last().is_none_or(|it| it.message != text)
                    {
                        record.warn(now, Some(ask), text);
                    }
                }
            }
        }
    }

    fn deliver_to_frontend(
        &mut self,
        id: &AppId,
        message: ToFront,
        now: Timestamp,
        queue: &mut VecDeque<Message>,
    ) {
        let dirty = self.mark_dirty(id);
        match &message {
            ToFront::Release { keys, .. } | ToFront::ReleaseAsks { keys, .. } => {
                dirty.keys.extend(keys.iter().cloned());
            }
            ToFront::Allocated { key, .. } | ToFront::AskRejected { key, .. } => {
                dirty.keys.insert(key.clone());
            }
            ToFront::Repaired { ask, .. } => drop(dirty.keys.insert(ask.key.clone())),
            _ => dirty.all = true,
        }
        let effects = match message {
            // A completed application stays readable until it expires or is removed.
            ToFront::Updated {
                state: core::State::Completed,
                ..
            } => self.apply_core_completion(id, now),
            ToFront::Updated {
                state: core::State::Expired,
                ..
            } => {
                self.forget(id);
                return;
            }
            message => self.partition.apply_core_message(id, message, now).effects,
        };
        self.queue_frontend_effects(id, effects, now, queue);
    }

    /// Handles the completion of the core. The application failed if no task succeeded.
    fn apply_core_completion(&mut self, id: &AppId, now: Timestamp) -> Vec<Effect> {
        let Some(front) = self.partition.get(id) else {
            return Vec::new();
        };
        let input = match (front.head.state, front.failure_without_success()) {
            (frontend::State::Running, Some(message)) => {
                return self.fail_without_success(id, &message, now);
            }
            (frontend::State::Running, None) => frontend::Input::Complete,
            (frontend::State::Failing, _) => frontend::Input::Fail { reason: None },
            _ => return Vec::new(),
        };
        let applied = self.partition.apply(id, input, now);
        applied.map(|it| it.step.effects).unwrap_or_default()
    }

    /// Fails an application whose core completed without a successful task.
    fn fail_without_success(&mut self, id: &AppId, message: &str, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        for state in [core::State::Failing, core::State::Failed] {
            let message = Some(message.to_owned());
            let step =
                self.partition
                    .apply_core_message(id, ToFront::Updated { state, message }, now);
            effects.extend(step.effects);
        }
        effects
    }

    fn queue_frontend_effects(
        &mut self,
        id: &AppId,
        effects: Vec<Effect>,
        now: Timestamp,
        queue: &mut VecDeque<Message>,
    ) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        for effect in effects {
            match effect {
                Effect::ToCore(message) => queue.push_back(Message::ToCore(message)),
                // A running process ends when its demand is withdrawn. Its end arrives as an
                // update.
                Effect::Stop { task } if record.allocation_of(&task).is_none() => {
                    queue.push_back(Message::Stopped(task));
                }
                Effect::Warn { task, message } => record.warn(now, Some(task), message),
                // The scheduler starts the processes that it granted.
                Effect::Stop { .. } | Effect::Start { .. } | Effect::Drop => {}
            }
        }
    }

    /// Marks the tasks of a message to the core as changed.
    fn mark_core_message(&mut self, id: &AppId, message: &ToCore) {
        let dirty = self.mark_dirty(id);
        match message {
            ToCore::Ask(ask) => drop(dirty.keys.insert(ask.key.clone())),
            ToCore::ReleaseAllocation { key, .. } | ToCore::Confirm { key, .. } => {
                dirty.keys.insert(key.clone());
            }
            // A placeholder may have been chosen for the ask.
            ToCore::ReleaseAsk { .. } | ToCore::Submit(_) | ToCore::Remove => dirty.all = true,
        }
    }
}
