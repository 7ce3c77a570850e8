//! All applications of one partition, and the operations on them.
//!
//! Every operation is answered, and effects are part of the answer. The state equals the rows,
//! except for the changes that [`Partition::take_changes`] returns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_vocabulary::{Timestamp, UserName};

use crate::frontend::{Application, Effect, Failure, Head, Input, State, Step};
use crate::ids::{AppId, TaskId};
use crate::messages::{ToCore, ToFront};
use crate::metadata::Metadata;
use crate::no_change_reason::Reason;
use crate::operation_results::{Added, Applied, NotAdded, NotRemoved, TaskAdded, TaskNotAdded};
use crate::task::{self, Runtime, Task, TaskSpec};

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub applications: usize,
    /// Maximum number of tasks of one application, including placeholders.
    pub tasks: usize,
    /// Maximum number of removed applications whose late confirmations are still accepted.
    pub removed_apps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            applications: 100_000,
            tasks: 200_000,
            removed_apps: 10_000,
        }
    }
}

#[derive(Debug, Default)]
pub struct Partition {
    limits: Limits,
    apps: BTreeMap<AppId, Application>,
    /// Number of applications that this copy does not contain. See [`Partition::copy_of_one`].
    other_apps: usize,
    /// Removed applications and their users.
    removed_apps: VecDeque<(AppId, UserName)>,
    changed: BTreeSet<AppId>,
    /// Applications to delete. Removed tasks of other applications are in `tasks_to_delete`.
    apps_to_delete: BTreeSet<AppId>,
    tasks_to_delete: BTreeSet<(AppId, TaskId)>,
}

/// Differences between the state and the rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub heads: Vec<Head>,
    pub tasks: Vec<(AppId, Task)>,
    /// Removed tasks. They are deleted before tasks are written, since an id may be used again.
    pub removed_tasks: Vec<(AppId, TaskId)>,
    /// Removed applications. They are deleted first, with all their tasks.
    pub removed: Vec<AppId>,
}

/// A runtime object, for example a pod, as observed by a manager.
#[derive(Debug, Clone)]
pub struct ObservedObject {
    pub app: AppId,
    pub metadata: Metadata,
    pub task: TaskId,
    pub spec: TaskSpec,
    /// Whether the object was deleted.
    pub deleted: bool,
}

impl Partition {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Restores the partition from its rows.
    pub fn from_rows(limits: Limits, apps: impl IntoIterator<Item = Application>) -> Self {
        let apps = apps.into_iter().map(|it| (it.head.id.clone(), it));
        Self {
            limits,
            apps: apps.collect(),
            ..Self::default()
        }
    }

    /// Returns a copy with one application. Limits still count the others.
    #[must_use]
    pub fn copy_of_one(&self, id: &AppId) -> Self {
        let application = self.apps.get(id).cloned();
        let removed_apps = self.removed_apps.iter().filter(|(app, _)| app == id);
        Self {
            limits: self.limits,
            other_apps: self.apps.len() - usize::from(application.is_some()),
            apps: application.into_iter().map(|it| (id.clone(), it)).collect(),
            removed_apps: removed_apps.cloned().collect(),
            ..Self::default()
        }
    }

    pub fn get(&self, id: &AppId) -> Option<&Application> {
        self.apps.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Application> {
        self.apps.values()
    }

    /// Adds an application. The next tick submits it to the core.
    ///
    /// # Errors
    /// Fails if another manager owns this id, or the limit is reached.
    pub fn add(
        &mut self,
        writer: &str,
        id: &AppId,
        metadata: Metadata,
        now: Timestamp,
    ) -> Result<Added, NotAdded> {
        if let Some(known) = self.apps.get(id) {
            let known = &known.head;
            if known.writer != writer {
                let writer = known.writer.clone();
                return Err(NotAdded::OtherWriter { writer });
            }
            let ignored_fields = known.metadata.differing_fields(&metadata);
            return Ok(Added::Existing { ignored_fields });
        }
        let limit = self.limits.applications;
        if self.apps.len() + self.other_apps >= limit {
            return Err(NotAdded::Full { limit });
        }
        let mut metadata = metadata;
        metadata.creation_time.get_or_insert(now);
        let application = Application::new(id.clone(), writer.to_owned(), metadata, now);
        self.apps.insert(id.clone(), application);
        self.changed.insert(id.clone());
        Ok(Added::Created)
    }

    /// Removes an application without live tasks. With `force`, stops live tasks.
    ///
    /// # Errors
    /// Fails if the application does not exist, or has live tasks and `force` is not set.
    pub fn remove(&mut self, id: &AppId, force: bool) -> Result<Vec<Effect>, NotRemoved> {
        let application = self.apps.get(id).ok_or(NotRemoved::NotFound)?;
        let blocking_tasks = application.live_task_aliases();
        if !force && !blocking_tasks.is_empty() {
            return Err(NotRemoved::Blocked { blocking_tasks });
        }
        let tasks = application.tasks.values();
        let running = tasks.filter(|it| !it.placeholder && !it.state.is_terminated());
        let stop = running.map(|it| Effect::Stop {
            task: it.id.clone(),
        });
        let mut effects: Vec<Effect> = stop.collect();
        effects.push(Effect::ToCore(ToCore::Remove));
        self.remove_app(id);
        Ok(effects)
    }

    fn remove_app(&mut self, id: &AppId) {
        let Some(application) = self.apps.remove(id) else {
            return;
        };
        self.changed.remove(id);
        self.tasks_to_delete.retain(|(app, _)| app != id);
        self.apps_to_delete.insert(id.clone());
        if self.removed_apps.len() >= self.limits.removed_apps {
            self.removed_apps.pop_front();
        }
        let user = application.head.metadata.user;
        self.removed_apps.push_back((id.clone(), user));
    }

    /// Adds a task to an application.
    ///
    /// # Errors
    /// Fails if the application does not exist or accepts no more tasks.
    pub fn add_task(
        &mut self,
        id: &AppId,
        task: &TaskId,
        spec: TaskSpec,
        now: Timestamp,
    ) -> Result<TaskAdded, TaskNotAdded> {
        let is_new = self.count_new_tasks(id, [task])? > 0;
        let Some(application) = self.apps.get_mut(id).filter(|_| is_new) else {
            return Ok(TaskAdded::Existing);
        };
        application.put(Task::new(task.clone(), spec, now));
        self.changed.insert(id.clone());
        Ok(TaskAdded::Created)
    }

    /// Returns the number of new tasks among these, if all can be added.
    ///
    /// # Errors
    /// Fails if the application does not exist, or cannot accept all of them.
    pub fn count_new_tasks<'a>(
        &self,
        id: &AppId,
        tasks: impl IntoIterator<Item = &'a TaskId>,
    ) -> Result<usize, TaskNotAdded> {
        let application = self.apps.get(id).ok_or(TaskNotAdded::NotFound)?;
        let tasks = tasks.into_iter();
        let new: BTreeSet<_> = tasks
            .filter(|task| !application.tasks.contains_key(*task))
            .collect();
        if new.is_empty() {
            return Ok(0);
        }
        let state = application.head.state;
        if state.is_dead() {
            let failure = application.head.failure.clone();
            return Err(TaskNotAdded::Dead { state, failure });
        }
        let limit = self.limits.tasks;
        if application.tasks.len() + application.missing_placeholders() + new.len() > limit {
            return Err(TaskNotAdded::Full { limit });
        }
        Ok(new.len())
    }

    /// Forgets a task. Its ask or allocation in the core stays. Unknown tasks are no error.
    pub fn remove_task(&mut self, id: &AppId, task: &TaskId) {
        let application = self.apps.get_mut(id);
        if let Some(application) = application
            && application.tasks.remove(task).is_some()
        {
            application.changed.remove(task);
            self.tasks_to_delete.insert((id.clone(), task.clone()));
        }
    }

    /// Applies an input to an application. Returns `None` if it does not exist.
    pub fn apply(&mut self, id: &AppId, input: Input, now: Timestamp) -> Option<Applied<State>> {
        let step = self.step(id, input, now)?;
        let state = self.get(id).map(|it| it.head.state);
        Some(Applied::new(step, state))
    }

    /// Applies an event to a task. Returns `None` if it does not exist.
    pub fn apply_to_task(
        &mut self,
        id: &AppId,
        task: &TaskId,
        event: task::Event,
        now: Timestamp,
    ) -> Option<Applied<task::State>> {
        let input = Input::Task {
            id: task.clone(),
            event,
        };
        self.step_task(id, task, input, now)
    }

    /// Handles a failed process of a task. Returns `None` if the task does not exist.
    pub fn task_failed(
        &mut self,
        id: &AppId,
        task: &TaskId,
        failure: Failure,
        now: Timestamp,
    ) -> Option<Applied<task::State>> {
        let input = Input::TaskFailed {
            id: task.clone(),
            failure,
        };
        self.step_task(id, task, input, now)
    }

    fn step_task(
        &mut self,
        id: &AppId,
        task: &TaskId,
        input: Input,
        now: Timestamp,
    ) -> Option<Applied<task::State>> {
        self.get(id)?.tasks.get(task)?;
        let step = self.step(id, input, now)?;
        let task = self.get(id).and_then(|it| it.tasks.get(task));
        let state = task.map(|it| it.state);
        Some(Applied::new(step, state))
    }

    /// Confirms a release. Returns `None` only if the application never existed.
    pub fn confirm(
        &mut self,
        id: &AppId,
        task: &TaskId,
        now: Timestamp,
    ) -> Option<Applied<task::State>> {
        if self.apps.contains_key(id) {
            let step = self.step(id, Input::Confirmed { id: task.clone() }, now)?;
            let task = self.get(id).and_then(|it| it.tasks.get(task));
            let state = task.map(|it| it.state);
            return Some(Applied::new(step, state));
        }
        let was_removed = self.removed_user(id).is_some();
        was_removed.then(|| Applied::refused(Reason::ApplicationGone))
    }

    /// Returns the user of the last removed application with this id.
    pub fn removed_user(&self, id: &AppId) -> Option<&UserName> {
        let mut removed_apps = self.removed_apps.iter().rev();
        removed_apps
            .find(|(app, _)| app == id)
            .map(|(_, user)| user)
    }

    /// Applies a message of the core. Messages for removed applications are answered here, because
    /// their allocations would otherwise never be released.
    pub fn apply_core_message(&mut self, id: &AppId, message: ToFront, now: Timestamp) -> Step {
        if self.apps.contains_key(id) {
            let step = self.step(id, Input::Core(message), now);
            return step.unwrap_or_default();
        }
        let mut step = Step::default();
        if !matches!(message, ToFront::Updated { .. }) {
            step.effects.push(Effect::ToCore(ToCore::Remove));
        }
        step
    }

    /// Ticks all applications. Returns those with transitions or effects.
    pub fn tick(&mut self, now: Timestamp) -> Vec<(AppId, Step)> {
        let ids: Vec<AppId> = self.apps.keys().cloned().collect();
        let steps = ids.into_iter().filter_map(|id| {
            let step = self.step(&id, Input::Tick, now)?;
            let has_output = !step.transitions.is_empty() || !step.effects.is_empty();
            has_output.then_some((id, step))
        });
        steps.collect()
    }

    fn step(&mut self, id: &AppId, input: Input, now: Timestamp) -> Option<Step> {
        let application = self.apps.get_mut(id)?;
        let step = application.step(input, now);
        if !step.transitions.is_empty() || !application.changed.is_empty() {
            self.changed.insert(id.clone());
        }
        if step.effects.contains(&Effect::Drop) {
            self.remove_app(id);
        }
        Some(step)
    }

    /// Reacts to a runtime object. A new object adds the application if needed, then the task. An
    /// ended or deleted one completes the task.
    ///
    /// # Errors
    /// Fails if another manager owns the application, or the limit is reached.
    pub fn observe(
        &mut self,
        writer: &str,
        observed: ObservedObject,
        now: Timestamp,
    ) -> Result<Step, NotAdded> {
        let known = self.get(&observed.app).map(|it| it.head.writer == writer);
        let is_ended = observed.deleted || observed.spec.runtime == Runtime::Ended;
        if known != Some(false) && is_ended {
            let result =
                self.apply_to_task(&observed.app, &observed.task, task::Event::Complete, now);
            return Ok(result.map(|result| result.step).unwrap_or_default());
        }
        self.add(writer, &observed.app, observed.metadata, now)?;
        // An ended application refuses the task, which is not an error here.
        let _ = self.add_task(&observed.app, &observed.task, observed.spec, now);
        Ok(Step::default())
    }

    /// Takes the changes since the last call. They are not in the rows yet.
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = Changes {
            removed: std::mem::take(&mut self.apps_to_delete)
                .into_iter()
                .collect(),
            removed_tasks: std::mem::take(&mut self.tasks_to_delete)
                .into_iter()
                .collect(),
            ..Changes::default()
        };
        for id in std::mem::take(&mut self.changed) {
            let Some(application) = self.apps.get_mut(&id) else {
                continue;
            };
            changes.heads.push(application.head.clone());
            for task in std::mem::take(&mut application.changed) {
                let task = application.tasks.get(&task).cloned();
                changes.tasks.extend(task.map(|task| (id.clone(), task)));
            }
        }
        changes
    }
}
