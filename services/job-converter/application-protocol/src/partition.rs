//! All applications of one partition, and the eight operations on them (2.1).
//!
//! The book answers every operation and drops none; what has to be done is in the answer. It holds
//! what the rows hold: [`Book::take_changes`] is what differs from them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_vocabulary::{Timestamp, UserName};

use crate::answers::{Added, NotAdded, NotRemoved, TaskAdded, TaskNotAdded, Told};
use crate::frontend::{Application, Effect, Failure, Head, Input, State, Step};
use crate::ids::{AppId, TaskId};
use crate::messages::{ToCore, ToFront};
use crate::metadata::Metadata;
use crate::reason::Reason;
use crate::task::{self, Runtime, Task, Wish};

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub applications: usize,
    /// Of one application, its placeholders too.
    pub tasks: usize,
    /// Removed applications whose late confirmations are still understood.
    pub buried: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            applications: 100_000,
            tasks: 200_000,
            buried: 10_000,
        }
    }
}

#[derive(Debug, Default)]
pub struct Book {
    limits: Limits,
    apps: BTreeMap<AppId, Application>,
    /// Applications that are counted and not here, of one that was taken [`Book::apart`].
    elsewhere: usize,
    /// With whose each was.
    buried: VecDeque<(AppId, UserName)>,
    changed: BTreeSet<AppId>,
    /// Applications whose rows go, and tasks that were taken out of applications that stay.
    gone: BTreeSet<AppId>,
    gone_tasks: BTreeSet<(AppId, TaskId)>,
}

/// What differs from the rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub heads: Vec<Head>,
    pub tasks: Vec<(AppId, Task)>,
    /// Before tasks are written, as an id may be used again.
    pub removed_tasks: Vec<(AppId, TaskId)>,
    /// With all their tasks, and first of all.
    pub removed: Vec<AppId>,
}

/// What a general manager sees of one runtime object (2.6).
#[derive(Debug, Clone)]
pub struct Observed {
    pub app: AppId,
    pub metadata: Metadata,
    pub task: TaskId,
    pub wish: Wish,
    /// Its object was deleted.
    pub deleted: bool,
}

impl Book {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// From their rows.
    pub fn loaded(limits: Limits, apps: impl IntoIterator<Item = Application>) -> Self {
        let apps = apps.into_iter().map(|it| (it.head.id.clone(), it));
        Self {
            limits,
            apps: apps.collect(),
            ..Self::default()
        }
    }

    /// A book of one application, if it is there, in which the others are only counted.
    #[must_use]
    pub fn apart(&self, id: &AppId) -> Self {
        let one = self.apps.get(id).cloned();
        let buried = self.buried.iter().filter(|(app, _)| app == id);
        Self {
            limits: self.limits,
            elsewhere: self.apps.len() - usize::from(one.is_some()),
            apps: one.into_iter().map(|it| (id.clone(), it)).collect(),
            buried: buried.cloned().collect(),
            ..Self::default()
        }
    }

    pub fn get(&self, id: &AppId) -> Option<&Application> {
        self.apps.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Application> {
        self.apps.values()
    }

    /// Nothing is said to the core; that is done by the next tick.
    ///
    /// # Errors
    /// When another manager writes this id, or there is no room.
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
            let ignored_fields = known.metadata.ignored(&metadata);
            return Ok(Added::Existing { ignored_fields });
        }
        let limit = self.limits.applications;
        if self.apps.len() + self.elsewhere >= limit {
            return Err(NotAdded::Full { limit });
        }
        let mut metadata = metadata;
        metadata.creation_time.get_or_insert(now);
        let application = Application::new(id.clone(), writer.to_owned(), metadata, now);
        self.apps.insert(id.clone(), application);
        self.changed.insert(id.clone());
        Ok(Added::Created)
    }

    /// Strict: no task may be alive. With `force` those that are get stopped.
    ///
    /// # Errors
    /// When there is none, or tasks are alive and it is not forced.
    pub fn remove(&mut self, id: &AppId, force: bool) -> Result<Vec<Effect>, NotRemoved> {
        let application = self.apps.get(id).ok_or(NotRemoved::NotFound)?;
        let blocking_tasks = application.alive();
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
        self.bury(id);
        Ok(effects)
    }

    fn bury(&mut self, id: &AppId) {
        let Some(application) = self.apps.remove(id) else {
            return;
        };
        self.changed.remove(id);
        self.gone_tasks.retain(|(app, _)| app != id);
        self.gone.insert(id.clone());
        if self.buried.len() >= self.limits.buried {
            self.buried.pop_front();
        }
        let user = application.head.metadata.user;
        self.buried.push_back((id.clone(), user));
    }

    /// # Errors
    /// When there is no such application, or it takes no more.
    pub fn add_task(
        &mut self,
        id: &AppId,
        task: &TaskId,
        wish: Wish,
        now: Timestamp,
    ) -> Result<TaskAdded, TaskNotAdded> {
        let is_new = self.new_among(id, [task])? > 0;
        let Some(application) = self.apps.get_mut(id).filter(|_| is_new) else {
            return Ok(TaskAdded::Existing);
        };
        application.put(Task::of(task.clone(), wish, now));
        self.changed.insert(id.clone());
        Ok(TaskAdded::Created)
    }

    /// How many of these tasks would be new, all of which there is room for.
    ///
    /// # Errors
    /// When there is no such application, or it does not take all that are new.
    pub fn new_among<'a>(
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
        if application.tasks.len() + application.unreserved() + new.len() > limit {
            return Err(TaskNotAdded::Full { limit });
        }
        Ok(new.len())
    }

    /// Forgets it; what it has in the core stays (2.1). Unknown ones are no error.
    pub fn remove_task(&mut self, id: &AppId, task: &TaskId) {
        let application = self.apps.get_mut(id);
        if let Some(application) = application
            && application.tasks.remove(task).is_some()
        {
            application.changed.remove(task);
            self.gone_tasks.insert((id.clone(), task.clone()));
        }
    }

    /// Tells an application something. Nothing when there is none (404).
    pub fn tell(&mut self, id: &AppId, input: Input, now: Timestamp) -> Option<Told<State>> {
        let step = self.step(id, input, now)?;
        let state = self.get(id).map(|it| it.head.state);
        Some(Told::of(step, state))
    }

    /// Tells a task something. Nothing when there is no such task (404).
    pub fn tell_task(
        &mut self,
        id: &AppId,
        task: &TaskId,
        event: task::Event,
        now: Timestamp,
    ) -> Option<Told<task::State>> {
        let input = Input::Task {
            id: task.clone(),
            event,
        };
        self.tell_of(id, task, input, now)
    }

    /// A task ended by itself in another way than well. Nothing when there is no such task.
    pub fn task_failed(
        &mut self,
        id: &AppId,
        task: &TaskId,
        failure: Failure,
        now: Timestamp,
    ) -> Option<Told<task::State>> {
        let input = Input::TaskFailed {
            id: task.clone(),
            failure,
        };
        self.tell_of(id, task, input, now)
    }

    fn tell_of(
        &mut self,
        id: &AppId,
        task: &TaskId,
        input: Input,
        now: Timestamp,
    ) -> Option<Told<task::State>> {
        self.get(id)?.tasks.get(task)?;
        let step = self.step(id, input, now)?;
        let known = self.get(id).and_then(|it| it.tasks.get(task));
        let state = known.map(|it| it.state);
        Some(Told::of(step, state))
    }

    /// A release is confirmed. Nothing only when the application never existed (404).
    pub fn confirm(
        &mut self,
        id: &AppId,
        task: &TaskId,
        now: Timestamp,
    ) -> Option<Told<task::State>> {
        if self.apps.contains_key(id) {
            let step = self.step(id, Input::Confirmed { id: task.clone() }, now)?;
            let known = self.get(id).and_then(|it| it.tasks.get(task));
            let state = known.map(|it| it.state);
            return Some(Told::of(step, state));
        }
        let buried = self.buried_of(id).is_some();
        buried.then(|| Told::nothing(Reason::ApplicationGone))
    }

    /// Whose an application was that is gone; the last one of this id.
    pub fn buried_of(&self, id: &AppId) -> Option<&UserName> {
        let mut buried = self.buried.iter().rev();
        buried.find(|(app, _)| app == id).map(|(_, user)| user)
    }

    /// News of the core. What it says of an application that is gone is answered here, or places
    /// would stay taken for ever.
    pub fn core(&mut self, id: &AppId, news: ToFront, now: Timestamp) -> Step {
        if self.apps.contains_key(id) {
            let step = self.step(id, Input::Core(news), now);
            return step.unwrap_or_default();
        }
        let mut step = Step::default();
        if !matches!(news, ToFront::Updated { .. }) {
            step.effects.push(Effect::ToCore(ToCore::Remove));
        }
        step
    }

    /// 3.1: the tick of all of them; those that moved, or have something to do.
    pub fn tick(&mut self, now: Timestamp) -> Vec<(AppId, Step)> {
        let ids: Vec<AppId> = self.apps.keys().cloned().collect();
        let steps = ids.into_iter().filter_map(|id| {
            let step = self.step(&id, Input::Tick, now)?;
            let news = !step.moved.is_empty() || !step.effects.is_empty();
            news.then_some((id, step))
        });
        steps.collect()
    }

    fn step(&mut self, id: &AppId, input: Input, now: Timestamp) -> Option<Step> {
        let application = self.apps.get_mut(id)?;
        let step = application.step(input, now);
        if !step.moved.is_empty() || !application.changed.is_empty() {
            self.changed.insert(id.clone());
        }
        if step.effects.contains(&Effect::Drop) {
            self.bury(id);
        }
        Some(step)
    }

    /// The reactions of a general manager (2.6): added → application if new, then task; ended or
    /// deleted → the task completes.
    ///
    /// # Errors
    /// When another manager writes the application, or there is no room.
    pub fn observe(
        &mut self,
        writer: &str,
        seen: Observed,
        now: Timestamp,
    ) -> Result<Step, NotAdded> {
        let known = self.get(&seen.app).map(|it| it.head.writer == writer);
        let ended = seen.deleted || seen.wish.runtime == Runtime::Ended;
        if known != Some(false) && ended {
            let told = self.tell_task(&seen.app, &seen.task, task::Event::Complete, now);
            return Ok(told.map(|told| told.step).unwrap_or_default());
        }
        self.add(writer, &seen.app, seen.metadata, now)?;
        // An application that is over takes no task; it answers that when it is asked.
        let _ = self.add_task(&seen.app, &seen.task, seen.wish, now);
        Ok(Step::default())
    }

    /// What differs from the rows since this was asked last.
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = Changes {
            removed: std::mem::take(&mut self.gone).into_iter().collect(),
            removed_tasks: std::mem::take(&mut self.gone_tasks).into_iter().collect(),
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
