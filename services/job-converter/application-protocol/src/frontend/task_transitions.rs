//! Applies events to tasks, with their effects on the application and on the core.

use hayward_vocabulary::Timestamp;

use crate::failure::Failure;
use crate::frontend::application::{Application, Effect, Step, Transition};
use crate::frontend::{Event, State};
use crate::ids::TaskId;
use crate::messages::{Termination, ToCore};
use crate::no_change_reason::{Reason, Refusal};
use crate::task::{self, Task};

/// A legal transition of a task.
#[derive(Clone, Copy)]
struct TaskTransition {
    from: task::State,
    event: task::Event,
}

impl Application {
    pub(super) fn apply_task_event(
        &mut self,
        id: &TaskId,
        event: task::Event,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(task) = self.tasks.get_mut(id) else {
            return Err(Refusal::new(Reason::UnknownTask, &event, &self.head.state));
        };
        let from = task.state;
        let Some(to) = task::next(from, event) else {
            return Err(Refusal::new(Reason::NotLegalHere, &event, &from));
        };
        task.state = to;
        self.changed.insert(id.clone());
        step.transitions.push(Transition::Task {
            id: id.clone(),
            from,
            event,
            to,
        });
        self.after_task_transition(id, TaskTransition { from, event }, now, step)
    }

    fn after_task_transition(
        &mut self,
        id: &TaskId,
        transition: TaskTransition,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let TaskTransition { from, event } = transition;
        let task = self.tasks.get_mut(id).expect("the caller found the task");
        match event {
            task::Event::Bind if task.placeholder => self.check_reservation(now, step),
            task::Event::Init | task::Event::Reject | task::Event::Bind => Ok(()),
            task::Event::Submit => {
                step.send(ToCore::Ask(task.ask()));
                Ok(())
            }
            task::Event::Allocate => self.on_task_allocated(id, from, now, step),
            task::Event::Kill => {
                step.effects.push(Effect::Stop { task: id.clone() });
                Ok(())
            }
            task::Event::Fail if from == task::State::Rejected => Ok(()),
            task::Event::Complete | task::Event::Killed | task::Event::Fail => {
                release_in_core(task, from, step);
                self.check_end(now, step)
            }
        }
    }

    /// Fails a task and warns its users.
    pub(super) fn fail_task(
        &mut self,
        id: &TaskId,
        failure: Failure,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        self.apply_task_event(id, task::Event::Fail, now, step)?;
        step.effects.push(Effect::Warn {
            task: id.clone(),
            message: failure.message.clone(),
        });
        let task = self.tasks.get_mut(id).expect("the event found the task");
        task.failure = Some(failure);
        Ok(())
    }

    fn on_task_allocated(
        &mut self,
        id: &TaskId,
        from: task::State,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        if from == task::State::Completed {
            step.send(ToCore::ReleaseAllocation {
                key: id.clone(),
                termination: Termination::StoppedByRm,
            });
            return Ok(());
        }
        let task = self.tasks.get_mut(id).expect("the caller found the task");
        task.allocation = Some(id.clone());
        if task.placeholder {
            // A placeholder has no process to start.
            return self.apply_task_event(id, task::Event::Bind, now, step);
        }
        if let Some(node) = task.node.clone() {
            step.effects.push(Effect::Start {
                task: id.clone(),
                node,
            });
        }
        Ok(())
    }

    /// Confirms the reservation once every group has its minimum of settled placeholders. A
    /// placeholder is settled if it is bound, or if its owner returned it.
    pub(super) fn check_reservation(
        &mut self,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        if self.head.state != State::Reserving {
            return Ok(());
        }
        self.fire(Event::UpdateReservation, now, step)?;
        let is_bound = |task: &Task| task.state == task::State::Bound;
        let is_returned = |task: &Task| task.state.is_terminated() && task.release.is_none();
        let is_complete = self.head.metadata.task_groups.iter().all(|group| {
            let placeholders = self.tasks.values().filter(|it| {
                it.placeholder && it.spec.task_group_name.as_ref() == Some(&group.name)
            });
            let settled = placeholders.filter(|it| is_bound(it) || is_returned(it));
            settled.take(group.min_member as usize).count() == group.min_member as usize
        });
        if is_complete {
            self.fire(Event::Run, now, step)?;
        }
        Ok(())
    }

    pub(super) fn check_end(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        let is_terminated = |task: &Task| task.state.is_terminated();
        match self.head.state {
            State::Resuming => {
                self.fire(Event::TaskCompleted, now, step)?;
                let mut placeholders = self.tasks.values().filter(|it| it.placeholder);
                if placeholders.all(is_terminated) {
                    self.fire(Event::Run, now, step)?;
                }
                Ok(())
            }
            // A returned placeholder may have been the last missing one.
            State::Reserving => self.check_reservation(now, step),
            State::Killing if self.tasks.values().all(is_terminated) => {
                self.fire(Event::Killed, now, step)
            }
            _ => Ok(()),
        }
    }

    /// Fails a task without an allocation.
    pub(super) fn fail_waiting_task(
        &mut self,
        id: &TaskId,
        failure: Failure,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let has_ask = self.tasks[id].state == task::State::Scheduling;
        self.apply_task_event(id, task::Event::Reject, now, step)?;
        if has_ask {
            step.send(ToCore::ReleaseAsk { key: id.clone() });
        }
        self.tasks
            .get_mut(id)
            .expect("the task was found above")
            .failure = Some(failure);
        self.apply_task_event(id, task::Event::Fail, now, step)
    }

    /// Handles a confirmed release. A second confirmation changes nothing.
    pub(super) fn on_confirmed(
        &mut self,
        id: &TaskId,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let refusal = |reason| Refusal::new(reason, &"Confirm", &self.head.state);
        let Some(task) = self.tasks.get(id) else {
            return Err(refusal(Reason::UnknownTask));
        };
        if task.state.is_terminated() {
            return Err(refusal(Reason::AlreadySo));
        }
        if task.release.is_none() {
            return Err(refusal(Reason::NoRelease));
        }
        self.apply_task_event(id, task::Event::Complete, now, step)
    }
}

/// Releases the ask or allocation of the task in the core. Without a key no message is sent,
/// because an empty key would mean the whole application.
fn release_in_core(task: &Task, from: task::State, step: &mut Step) {
    use task::State::{Allocated, Bound, Killing, New, Pending, Scheduling};
    let has_allocation = match from {
        Allocated | Bound => true,
        New | Pending | Scheduling | Killing => task.allocation.is_some(),
        _ => return,
    };
    match (has_allocation, task.allocation.clone(), task.release) {
        (true, Some(key), Some(termination)) => step.send(ToCore::Confirm { key, termination }),
        (true, Some(key), None) => step.send(ToCore::ReleaseAllocation {
            key,
            termination: Termination::StoppedByRm,
        }),
        (true, None, _) | (false, _, Some(_)) => {}
        (false, _, None) => step.send(ToCore::ReleaseAsk {
            key: task.id.clone(),
        }),
    }
}
