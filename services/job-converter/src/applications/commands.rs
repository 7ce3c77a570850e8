//! The operations of the application protocol, each with its answer.

use hayward_job_converter_api::applications::{
    ApplicationList, ApplicationView, TaskAccepted, Told,
};
use hayward_job_converter_application_protocol::answers::{
    self, Added, NotAdded, NotRemoved, TaskNotAdded,
};
use hayward_job_converter_application_protocol::frontend::{self, FailureCode};
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::metadata::Metadata;
use hayward_job_converter_application_protocol::task::{self, Wish};
use hayward_publication::committer::{Batch, Moment};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::UserName;
use serde::Serialize;
use uuid::Uuid;

use super::parse::Of;
use super::record::{Half, Program};
use super::view::{self, Filter, Said};
use super::{Applications, Verdicts, demand};
use crate::config;
use crate::store::Rows;

/// All applications, and what a command on them may read and write.
pub struct Access<'a> {
    pub applications: &'a mut Applications,
    pub verdicts: &'a Verdicts,
    pub moment: &'a Moment,
    pub batch: &'a mut Batch<Rows>,
}

impl Access<'_> {
    pub fn show(&self, id: &AppId, whose: &Whose) -> Result<ApplicationView, Refusal> {
        self.applications.show(id, whose, self.verdicts)
    }
}

/// One request to applications; it sends its own answer.
pub type Act = Box<dyn FnOnce(Access<'_>) + Send>;

/// Owner that the application must have; `None`: any.
pub type Whose = Option<String>;

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("unknown application {0}")]
    NoSuchApplication(AppId),
    #[error("application {0} has no task {1}")]
    NoSuchTask(AppId, TaskId),
    #[error("the id {0} is in use; choose another")]
    Taken(AppId),
    #[error(transparent)]
    NotAdded(#[from] NotAdded),
    #[error("live tasks prevent this: {}", .0.join(", "))]
    Blocked(Vec<String>),
    #[error("application {id} is {state} and accepts no more tasks")]
    Dead {
        id: AppId,
        state: String,
        failure: Option<frontend::Failure>,
    },
    #[error("the application has {0} tasks, which is the limit")]
    Full(usize),
    #[error("{0} tasks are open, which is the limit; try again when some have ended")]
    AllFull(usize),
    #[error(
        "user {user} has {has} open tasks of applications, and one user may have {limit} \
         (`max_user_application_tasks`); try again when some have ended"
    )]
    UserFull {
        user: UserName,
        has: usize,
        limit: usize,
    },
    #[error(
        "user {user} has {has} applications, and one user may have {limit} \
         (`max_user_applications`); remove ended ones"
    )]
    UserHasMost {
        user: UserName,
        has: usize,
        limit: usize,
    },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::NoSuchApplication(_) | Refusal::NoSuchTask(..) => {
                Self::new(Code::NotFound, text)
            }
            Refusal::NotAdded(NotAdded::Full { .. })
            | Refusal::Full(_)
            | Refusal::AllFull(_)
            | Refusal::UserFull { .. }
            | Refusal::UserHasMost { .. } => Self::new(Code::TooManyRequests, text),
            Refusal::Taken(_) | Refusal::NotAdded(_) => Self::new(Code::Conflict, text),
            Refusal::Blocked(blocking) => {
                let text = format!("{text}; wait for them, or remove it with ?force=true");
                Self::new(Code::Conflict, text).with("blockingTasks", blocking)
            }
            Refusal::Dead { state, failure, .. } => {
                let because = failure.as_ref().map(|it| format!(": {}", it.message));
                let text = format!("{text}{}", because.unwrap_or_default());
                let problem = Self::new(Code::Conflict, text).with("state", state);
                match failure {
                    Some(failure) => problem.with("failureCode", written(&failure.code)),
                    None => problem,
                }
            }
        }
    }
}

/// Wire name of an enum value.
pub(super) fn written<T: Serialize>(word: &T) -> String {
    match serde_json::to_value(word) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

pub(super) fn code(code: FailureCode) -> String {
    written(&code)
}

/// How to remove an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remove {
    Strictly,
    /// Stops its live tasks.
    ByForce,
}

impl Applications {
    fn theirs(&self, id: &AppId, whose: &Whose) -> Result<&Half, Refusal> {
        let half = self.halves.get(id);
        let may = |half: &&Half| whose.as_ref().is_none_or(|user| user == half.user.as_str());
        half.filter(may)
            .ok_or_else(|| Refusal::NoSuchApplication(id.clone()))
    }

    /// Task groups and queue of an application, which its tasks depend on.
    pub fn of_tasks(&self, id: &AppId, whose: &Whose) -> Result<Of, Refusal> {
        self.theirs(id, whose)?;
        let known = self.book.get(id);
        Ok(Of {
            groups: known.map_or_else(Vec::new, |it| it.head.metadata.task_groups.clone()),
            in_queue: known.is_some_and(demand::asks_for_admission),
        })
    }

    /// True when the application is new.
    pub fn add(
        &mut self,
        id: &AppId,
        (metadata, warnings): (Metadata, Vec<String>),
        uuid: Uuid,
        moment: &Moment,
    ) -> Result<(bool, Vec<String>), Refusal> {
        let user: UserName = metadata.user.clone();
        if self.halves.get(id).is_some_and(|half| half.user != user) {
            return Err(Refusal::Taken(id.clone()));
        }
        let members = metadata.task_groups.iter();
        let members: usize = members.map(|it| it.min_member as usize).sum();
        if !self.halves.contains_key(id) {
            self.counted.has_room_for_application(&user, members)?;
        }
        match self
            .book
            .add(config::APPLICATIONS, id, metadata, moment.now)?
        {
            Added::Existing { ignored_fields } => {
                let fields = ignored_fields.into_iter().map(str::to_owned);
                Ok((false, fields.collect()))
            }
            Added::Created => {
                self.counted.enter(&user, members);
                let mut half = Half::new(uuid, user);
                half.counted = members;
                for message in warnings {
                    half.warn(moment.now, None, message);
                }
                self.by_number.insert(uuid, id.clone());
                self.halves.insert(id.clone(), half);
                self.touch(id);
                Ok((true, Vec::new()))
            }
        }
    }

    pub fn remove(
        &mut self,
        id: &AppId,
        whose: &Whose,
        how: Remove,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.theirs(id, whose)?;
        match self.book.remove(id, how == Remove::ByForce) {
            // Withdrawing the demand ends its processes.
            Ok(_) => {
                self.withdraw(id, batch);
                Ok(())
            }
            Err(NotRemoved::NotFound) => Err(Refusal::NoSuchApplication(id.clone())),
            Err(NotRemoved::Blocked { blocking_tasks }) => Err(Refusal::Blocked(blocking_tasks)),
        }
    }

    /// True when the task is new.
    pub fn add_task(
        &mut self,
        (id, task): (&AppId, &TaskId),
        whose: &Whose,
        what: (Wish, Program),
        moment: &Moment,
    ) -> Result<bool, Refusal> {
        let one = vec![(task.clone(), what)];
        Ok(self.add_tasks(id, whose, one, moment)?.contains(&true))
    }

    /// True for each task that would be new; an error when not all could be added.
    pub fn would_add(
        &self,
        id: &AppId,
        whose: &Whose,
        tasks: &[&TaskId],
    ) -> Result<Vec<bool>, Refusal> {
        let user = &self.theirs(id, whose)?.user;
        let new = self.book.new_among(id, tasks.iter().copied());
        let new = new.map_err(|refused| not_added(id, refused))?;
        self.counted.has_room(user, new)?;
        let known = |task: &&&TaskId| {
            self.book
                .get(id)
                .is_some_and(|it| it.tasks.contains_key(**task))
        };
        Ok(tasks.iter().map(|task| !known(&task)).collect())
    }

    /// True for each task that is new. Adds all tasks or none.
    pub fn add_tasks(
        &mut self,
        id: &AppId,
        whose: &Whose,
        tasks: Vec<(TaskId, (Wish, Program))>,
        moment: &Moment,
    ) -> Result<Vec<bool>, Refusal> {
        let user = self.theirs(id, whose)?.user.clone();
        let names: Vec<&TaskId> = tasks.iter().map(|(task, _)| task).collect();
        self.would_add(id, whose, &names)?;
        let mut entered = Vec::with_capacity(tasks.len());
        for (task, (wish, program)) in tasks {
            let added = self.book.add_task(id, &task, wish, moment.now);
            let added = added.map_err(|refused| not_added(id, refused))?;
            let is_new = added == answers::TaskAdded::Created;
            if let Some(half) = self.halves.get_mut(id).filter(|_| is_new) {
                half.enter(&task, program);
                half.counted += 1;
                self.counted.recount(&user, (0, 1));
                self.touch(id).keys.insert(task);
            }
            entered.push(is_new);
        }
        Ok(entered)
    }

    fn is_placeholder(&self, id: &AppId, task: &TaskId) -> bool {
        let known = self.book.get(id).and_then(|it| it.tasks.get(task));
        known.is_some_and(|it| it.placeholder)
    }

    /// Unknown tasks are no error, and placeholders count as unknown.
    pub fn remove_task(&mut self, (id, task): (&AppId, &TaskId), whose: &Whose) {
        if self.theirs(id, whose).is_ok() && !self.is_placeholder(id, task) {
            self.book.remove_task(id, task);
            self.touch(id).keys.insert(task.clone());
        }
    }

    pub fn tell(
        &mut self,
        id: &AppId,
        whose: &Whose,
        input: frontend::Input,
        moment: &Moment,
    ) -> Result<Told, Refusal> {
        self.theirs(id, whose)?;
        let missing = || Refusal::NoSuchApplication(id.clone());
        let told = self.book.tell(id, input, moment.now).ok_or_else(missing)?;
        self.touch(id).all = true;
        let answer = answer(&told);
        self.obey(id, told.step.effects, moment.now);
        Ok(answer)
    }

    /// Completing a placeholder releases its allocation, and its gang needs one member less.
    pub fn complete_task(
        &mut self,
        (id, task): (&AppId, &TaskId),
        whose: &Whose,
        moment: &Moment,
    ) -> Result<Told, Refusal> {
        self.theirs(id, whose)?;
        let gives_back = self.is_placeholder(id, task);
        let told = self
            .book
            .tell_task(id, task, task::Event::Complete, moment.now);
        let told = told.ok_or_else(|| Refusal::NoSuchTask(id.clone(), task.clone()))?;
        self.touch(id).keys.insert(task.clone());
        // The demand of its group shrinks.
        self.touch(id).all |= gives_back;
        let answer = answer(&told);
        self.obey(id, told.step.effects, moment.now);
        Ok(answer)
    }

    /// Unknown tasks are no error; 404 only when the application never existed.
    pub fn confirm(
        &mut self,
        (id, task): (&AppId, &TaskId),
        whose: &Whose,
        moment: &Moment,
    ) -> Result<Told, Refusal> {
        if self.halves.contains_key(id) {
            self.theirs(id, whose)?;
        } else if let Some(user) = whose
            && self.book.buried_of(id).map(UserName::as_str) != Some(user.as_str())
        {
            return Err(Refusal::NoSuchApplication(id.clone()));
        }
        let told = self.book.confirm(id, task, moment.now);
        let told = told.ok_or_else(|| Refusal::NoSuchApplication(id.clone()))?;
        let answer = answer(&told);
        if self.halves.contains_key(id) {
            self.touch(id).keys.insert(task.clone());
            self.obey(id, told.step.effects, moment.now);
        }
        Ok(answer)
    }

    pub fn show(&self, id: &AppId, whose: &Whose, said: Said) -> Result<ApplicationView, Refusal> {
        let half = self.theirs(id, whose)?;
        let missing = || Refusal::NoSuchApplication(id.clone());
        let front = self.book.get(id).ok_or_else(missing)?;
        Ok(view::of(half, front, said))
    }

    pub fn show_task(
        &self,
        (id, task): (&AppId, &TaskId),
        whose: &Whose,
    ) -> Result<TaskAccepted, Refusal> {
        let half = self.theirs(id, whose)?;
        let front = self.book.get(id);
        let known = front.and_then(|it| it.tasks.get(task));
        let known = known.filter(|it| !it.placeholder);
        let missing = || Refusal::NoSuchTask(id.clone(), task.clone());
        Ok(TaskAccepted {
            application_id: id.to_string(),
            task: view::task(half, known.ok_or_else(missing)?),
        })
    }

    /// Sorted by id.
    pub fn list(&self, filter: &Filter) -> ApplicationList {
        view::list(&self.book, &self.halves, filter)
    }
}

fn answer<S: Serialize>(told: &answers::Told<S>) -> Told {
    Told {
        applied: told.applied,
        reason: told.reason.as_ref().map(written),
        state: told.state.as_ref().map(written),
    }
}

fn not_added(id: &AppId, refused: TaskNotAdded) -> Refusal {
    match refused {
        TaskNotAdded::NotFound => Refusal::NoSuchApplication(id.clone()),
        TaskNotAdded::Dead { state, failure } => Refusal::Dead {
            id: id.clone(),
            state: written(&state),
            failure,
        },
        TaskNotAdded::Full { limit } => Refusal::Full(limit),
    }
}

#[cfg(test)]
mod tests;
