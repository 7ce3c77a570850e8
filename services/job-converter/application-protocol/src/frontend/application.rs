//! State of an application in the frontend: metadata, tasks and outgoing messages.
//!
//! Only [`Application::step`] changes the state. Its result lists the messages and actions that
//! follow. Repeating a message or an action is harmless.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureCode, NOTHING_COMPLETED};
use crate::frontend::{self, Event, State};
use crate::ids::{self, AppId, TaskId};
use crate::messages::{Submission, ToCore, ToFront};
use crate::metadata::Metadata;
use crate::no_change_reason::{Reason, Refusal};
use crate::state_log::StateLog;
use crate::task::{self, Task};

/// The head of an application: its state without the tasks, which have rows of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub id: AppId,
    /// The only manager that may change the application.
    pub writer: String,
    pub metadata: Metadata,
    pub state: State,
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Number of placeholders created so far. Their names are never reused.
    #[serde(default)]
    pub placeholders: u32,
    #[serde(default)]
    pub log: StateLog<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Tick,
    Recover,
    Complete,
    Fail {
        reason: Option<String>,
    },
    Kill,
    Task {
        id: TaskId,
        event: task::Event,
    },
    /// The process of the task failed.
    TaskFailed {
        id: TaskId,
        failure: Failure,
    },
    /// A requested release was carried out.
    Confirmed {
        id: TaskId,
    },
    Core(ToFront),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    ToCore(ToCore),
    /// Starts the task on the node.
    Start {
        task: TaskId,
        node: NodeName,
    },
    /// Stops the task. Its end arrives as `Killed`, `Complete` or a confirmation.
    Stop {
        task: TaskId,
    },
    /// Warns the users of the task.
    Warn {
        task: TaskId,
        message: String,
    },
    /// The core has completed. The application is dropped without checking its tasks.
    Drop,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    Application {
        from: State,
        event: Event,
        to: State,
    },
    Task {
        id: TaskId,
        from: task::State,
        event: task::Event,
        to: task::State,
    },
}

/// Result of one input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Reason of the refusal. `None` if the input was applied.
    pub refusal: Option<Refusal>,
    pub transitions: Vec<Transition>,
    pub effects: Vec<Effect>,
}

impl Step {
    pub fn is_applied(&self) -> bool {
        self.refusal.is_none()
    }

    pub(super) fn send(&mut self, message: ToCore) {
        self.effects.push(Effect::ToCore(message));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    pub head: Head,
    pub tasks: BTreeMap<TaskId, Task>,
    /// Tasks that differ from their stored rows.
    pub(crate) changed: BTreeSet<TaskId>,
}

impl Application {
    pub fn new(id: AppId, writer: String, metadata: Metadata, now: Timestamp) -> Self {
        let mut log = StateLog::default();
        log.record(State::New, now);
        Self::from_rows(
            Head {
                id,
                writer,
                metadata,
                state: State::New,
                failure: None,
                placeholders: 0,
                log,
            },
            [],
        )
    }

    /// Restores an application from its rows.
    pub fn from_rows(head: Head, tasks: impl IntoIterator<Item = Task>) -> Self {
        Self {
            head,
            tasks: tasks.into_iter().map(|it| (it.id.clone(), it)).collect(),
            changed: BTreeSet::new(),
        }
    }

    pub fn put(&mut self, task: Task) {
        self.changed.insert(task.id.clone());
        self.tasks.insert(task.id.clone(), task);
    }

    /// Returns the number of live tasks and of placeholders that are not created yet.
    pub fn open_task_count(&self) -> usize {
        let live = self.tasks.values().filter(|it| !it.state.is_terminated());
        live.count() + self.missing_placeholders()
    }

    /// Returns the failure message if the core completed the application without a successful task.
    pub fn failure_without_success(&self) -> Option<String> {
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        let tasks = || self.tasks.values().filter(|it| !it.placeholder);
        if tasks().any(|it| it.state == task::State::Completed) {
            return None;
        }
        for task in tasks() {
            *states.entry(format!("{:?}", task.state)).or_default() += 1;
        }
        let counts = states
            .iter()
            .map(|(state, count)| format!("{count} {state}"));
        let counts: Vec<String> = counts.collect();
        let message = format!(
            "{NOTHING_COMPLETED}: no task succeeded: {}",
            counts.join(", ")
        );
        (!counts.is_empty()).then_some(message)
    }

    /// Returns the number of placeholders that are not created yet.
    pub fn missing_placeholders(&self) -> usize {
        if self.head.placeholders > 0 || self.head.state.is_dead() {
            return 0;
        }
        let groups = self.head.metadata.task_groups.iter();
        groups.map(|it| it.min_member as usize).sum()
    }

    /// Returns the aliases of the live tasks that prevent a removal.
    pub fn live_task_aliases(&self) -> Vec<String> {
        let live = self.tasks.values().filter(|it| !it.state.is_terminated());
        live.map(|it| it.alias().to_owned()).collect()
    }

    /// Applies one input.
    pub fn step(&mut self, input: Input, now: Timestamp) -> Step {
        let mut step = Step::default();
        let result = match input {
            Input::Tick => self.tick(now, &mut step),
            Input::Recover => self.recover(now, &mut step),
            Input::Complete => self.complete(now, &mut step),
            Input::Fail { reason } => self.fail(&Failure::from_owner(reason), now, &mut step),
            Input::Kill => self.kill(now, &mut step),
            Input::Task { id, event } => self.apply_task_event(&id, event, now, &mut step),
            Input::TaskFailed { id, failure } => self.fail_task(&id, failure, now, &mut step),
            Input::Confirmed { id } => self.on_confirmed(&id, now, &mut step),
            Input::Core(message) => self.on_core_message(message, now, &mut step),
        };
        step.refusal = result.err();
        step
    }

    pub(crate) fn fire(
        &mut self,
        event: Event,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let from = self.head.state;
        let Some(to) = frontend::next(from, event) else {
            return Err(Refusal::new(Reason::NotLegalHere, &event, &from));
        };
        self.head.state = to;
        if from != to {
            self.head.log.record(to, now);
        }
        step.transitions
            .push(Transition::Application { from, event, to });
        Ok(())
    }

    pub(super) fn submission(&self) -> Submission {
        let metadata = &self.head.metadata;
        Submission {
            id: self.head.id.clone(),
            queue: metadata.queue_name.clone(),
            user: metadata.user.clone(),
            tags: metadata.tags.clone(),
            task_groups: metadata.task_groups.clone(),
            policy: metadata.scheduling_policy_parameters,
            created_at: metadata.creation_time.unwrap_or_default(),
        }
    }

    /// Handles the tick, which runs once a second.
    fn tick(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        match self.head.state {
            State::New => {
                self.fire(Event::Submit, now, step)?;
                step.send(ToCore::Submit(self.submission()));
                Ok(())
            }
            State::Accepted if self.wants_reservation() => self.reserve(now, step),
            State::Accepted => self.fire(Event::Run, now, step),
            State::Reserving => self.submit_new_tasks(true, now, step),
            State::Running => self.submit_new_tasks(false, now, step),
            _ => Ok(()),
        }
    }

    /// Repeats the submission after a restart.
    fn recover(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        self.fire(Event::Recover, now, step)?;
        step.send(ToCore::Submit(self.submission()));
        Ok(())
    }

    /// Returns true if the application has task groups and no real task has started.
    pub fn wants_reservation(&self) -> bool {
        let mut real = self.tasks.values().filter(|it| !it.placeholder);
        let has_started = real.any(|it| it.state != task::State::New);
        !self.head.metadata.task_groups.is_empty() && !has_started
    }

    fn reserve(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        self.fire(Event::TryReserve, now, step)?;
        let groups = self.head.metadata.task_groups.clone();
        for group in &groups {
            for _ in 0..group.min_member {
                let number = self.head.placeholders;
                self.head.placeholders += 1;
                let id = ids::placeholder_id(&self.head.id, &group.name, number)
                    .expect("a prefix, two valid names and a number form a valid id");
                self.put(Task::placeholder(id, group, now));
            }
        }
        Ok(())
    }

    fn submit_new_tasks(
        &mut self,
        placeholder: bool,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        for id in self.task_ids(|it| it.placeholder == placeholder && it.state == task::State::New)
        {
            self.apply_task_event(&id, task::Event::Init, now, step)?;
            self.apply_task_event(&id, task::Event::Submit, now, step)?;
        }
        Ok(())
    }

    pub(super) fn task_ids(&self, is_selected: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        let tasks = self.tasks.values().filter(|it| is_selected(it));
        tasks.map(|it| it.id.clone()).collect()
    }

    fn complete(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        self.fire(Event::Complete, now, step)?;
        self.complete_placeholders(now, step)
    }

    /// Completes the placeholders. Real tasks are not affected.
    pub(crate) fn complete_placeholders(
        &mut self,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        for id in self.task_ids(|it| it.placeholder && !it.state.is_terminated()) {
            self.apply_task_event(&id, task::Event::Complete, now, step)?;
        }
        Ok(())
    }

    /// Records the first failure and warns the users of waiting tasks. These tasks fail as well,
    /// unless the owner reported the failure.
    pub(crate) fn fail(
        &mut self,
        failure: &Failure,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        self.fire(Event::Fail, now, step)?;
        self.head.failure.get_or_insert_with(|| failure.clone());
        self.complete_placeholders(now, step)?;
        for id in self.task_ids(|it| !it.placeholder && it.state.is_waiting()) {
            step.effects.push(Effect::Warn {
                task: id.clone(),
                message: failure.message.clone(),
            });
            if failure.code != FailureCode::Reported {
                self.fail_waiting_task(&id, failure.clone(), now, step)?;
            }
        }
        Ok(())
    }

    fn kill(&mut self, now: Timestamp, step: &mut Step) -> Result<(), Refusal> {
        self.fire(Event::Kill, now, step)?;
        self.complete_placeholders(now, step)?;
        for id in self.task_ids(|it| !it.state.is_terminated()) {
            // A task that was never sent has nothing to stop.
            let event = match self.tasks[&id].state {
                task::State::New => task::Event::Complete,
                task::State::Killing => continue,
                _ => task::Event::Kill,
            };
            self.apply_task_event(&id, event, now, step)?;
        }
        self.check_end(now, step)
    }
}
