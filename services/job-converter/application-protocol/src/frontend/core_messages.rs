//! Handling of messages from the core.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::core_state::State as CoreState;
use crate::failure::{Failure, FailureCode, REJECTED};
use crate::frontend::application::{Application, Effect, Step};
use crate::frontend::{Event, State};
use crate::ids::TaskId;
use crate::messages::{Ask, Termination, ToCore, ToFront};
use crate::no_change_reason::{Reason, Refusal};
use crate::task::{self, Task, TaskSpec};

impl Application {
    pub(super) fn on_core_message(
        &mut self,
        message: ToFront,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        match message {
            ToFront::Accepted => self.fire(Event::Accept, now, step),
            ToFront::Rejected { reason } => {
                self.fire(Event::Reject, now, step)?;
                self.fail(
                    &Failure::from_core_message(&format!("{REJECTED}: {reason}")),
                    now,
                    step,
                )
            }
            ToFront::Updated { state, message } => {
                self.on_core_state(state, message.as_deref(), now, step)
            }
            ToFront::Allocated { key, node } => self.on_allocated(&key, node, now, step),
            ToFront::AskRejected { key, reason } => {
                self.apply_task_event(&key, task::Event::Reject, now, step)?;
                let task = self.tasks.get_mut(&key).expect("the task was found above");
                task.failure = Some(Failure {
                    code: FailureCode::AskRejected,
                    message: reason.clone(),
                });
                step.effects.push(Effect::Warn {
                    task: key.clone(),
                    message: reason,
                });
                self.apply_task_event(&key, task::Event::Fail, now, step)
            }
            ToFront::Release { keys, termination } => {
                for key in keys {
                    self.release_allocation(&key, termination, now, step)?;
                }
                Ok(())
            }
            ToFront::ReleaseAsks { keys, termination } => {
                for key in keys {
                    self.withdraw_ask(&key, termination, now, step)?;
                }
                Ok(())
            }
            ToFront::Repaired { ask, node } => self.on_repaired(ask, node, now, step),
        }
    }

    fn on_core_state(
        &mut self,
        state: CoreState,
        message: Option<&str>,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        match state {
            CoreState::Completed => {
                step.effects.push(Effect::Drop);
                Ok(())
            }
            CoreState::Resuming if self.head.state == State::Reserving => {
                self.fire(Event::Resume, now, step)
            }
            CoreState::Failing | CoreState::Failed => {
                let message = message.unwrap_or("the scheduler gave up on it");
                self.fail(&Failure::from_core_message(message), now, step)
            }
            other => Err(Refusal::new(Reason::Ignored, &other, &self.head.state)),
        }
    }

    /// Records an allocation of a task. If the task is unknown, the allocation is released at once,
    /// because no later event would release it.
    fn on_allocated(
        &mut self,
        key: &TaskId,
        node: NodeName,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let release = ToCore::ReleaseAllocation {
            key: key.clone(),
            termination: Termination::StoppedByRm,
        };
        let Some(task) = self.tasks.get_mut(key) else {
            step.send(release);
            return Ok(());
        };
        // The task was placed before the core received the kill. The end of the task releases the
        // allocation.
        if task.state == task::State::Killing && task.allocation.is_none() {
            task.node = Some(node);
            task.allocation = Some(key.clone());
            self.changed.insert(key.clone());
            return Ok(());
        }
        if task.state == task::State::Scheduling {
            task.node = Some(node);
        }
        let state = task.state;
        let result = self.apply_task_event(key, task::Event::Allocate, now, step);
        // A duplicate changes nothing. A task that has already ended releases its allocation.
        if result.is_err() && state.is_terminated() {
            step.send(release);
            return Ok(());
        }
        result
    }

    /// Stops the process and confirms the release when the process has ended. A placeholder has no
    /// process, so it ends now.
    fn release_allocation(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let confirm = ToCore::Confirm {
            key: key.clone(),
            termination,
        };
        let Some(task) = self.tasks.get_mut(key) else {
            step.send(confirm);
            return Ok(());
        };
        if task.state.is_terminated() {
            step.send(confirm);
            return Ok(());
        }
        if task.release.is_some() {
            return Ok(());
        }
        task.release = Some(termination);
        task.allocation.get_or_insert_with(|| key.clone());
        self.changed.insert(key.clone());
        let (placeholder, state) = (task.placeholder, task.state);
        // The allocation is released even if the application has no such transition.
        let _ = self.fire(Event::ReleaseAllocation, now, step);
        if placeholder || state.is_waiting() {
            return self.apply_task_event(key, task::Event::Complete, now, step);
        }
        match state {
            task::State::Killing => Ok(()),
            _ => self.apply_task_event(key, task::Event::Kill, now, step),
        }
    }

    fn withdraw_ask(
        &mut self,
        key: &TaskId,
        termination: Termination,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(task) = self.tasks.get_mut(key) else {
            return Ok(());
        };
        if !task.state.is_waiting() {
            return Ok(());
        }
        task.release = Some(termination);
        let _ = self.fire(Event::ReleaseAsk, now, step);
        self.apply_task_event(key, task::Event::Complete, now, step)
    }

    /// Adds a placeholder that the core created for a lost member.
    fn on_repaired(
        &mut self,
        ask: Ask,
        node: NodeName,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        if self.tasks.contains_key(&ask.key) {
            return Err(Refusal::new(
                Reason::AlreadySo,
                &"Repaired",
                &self.head.state,
            ));
        }
        if self.head.state.is_dead() {
            step.send(ToCore::ReleaseAllocation {
                key: ask.key,
                termination: Termination::StoppedByRm,
            });
            return Ok(());
        }
        let spec = TaskSpec {
            size: ask.size,
            priority: ask.priority,
            task_group_name: ask.group,
            node_selector: ask.node_selector,
            ..TaskSpec::default()
        };
        let mut task = Task::new(ask.key, spec, now);
        task.placeholder = true;
        task.state = task::State::Bound;
        task.allocation = Some(task.id.clone());
        task.node = Some(node);
        self.put(task);
        self.check_reservation(now, step)
    }
}
