//! The operations of the application protocol and their responses.

use hayward_job_converter_api::applications::{
    ApplicationList, ApplicationView, TaskAccepted, TransitionResult,
};
use hayward_job_converter_application_protocol::answers::{
    self, Added, NotAdded, NotRemoved, TaskNotAdded,
};
use hayward_job_converter_application_protocol::frontend::{self, FailureCode};
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::{Batch, Moment};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::UserName;
use serde::Serialize;
use uuid::Uuid;

use super::parse::{Parsed, TaskContent, TaskContext};
use super::record::AppRecord;
use super::view::{self, Filter};
use super::{Applications, Verdicts, demand};
use crate::config;
use crate::store::Rows;

/// All applications, and the state that a command on them may read and write.
pub struct Access<'a> {
    pub applications: &'a mut Applications,
    pub verdicts: &'a Verdicts,
    pub moment: &'a Moment,
    pub batch: &'a mut Batch<Rows>,
}

impl Access<'_> {
    pub fn show(&self, id: &AppId, owner: &OwnerFilter) -> Result<ApplicationView, Refusal> {
        self.applications.show(id, owner, self.verdicts)
    }
}

/// A request to applications. It sends its own response.
pub type ApplicationCommand = Box<dyn FnOnce(Access<'_>) + Send>;

/// Owner that the application must have. `None` allows any owner.
pub type OwnerFilter = Option<String>;

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

/// Returns the wire name of an enum value.
pub(super) fn written<T: Serialize>(word: &T) -> String {
    match serde_json::to_value(word) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

pub(super) fn code(code: FailureCode) -> String {
    written(&code)
}

/// A task that a request adds.
pub struct NewTask {
    pub id: TaskId,
    pub content: TaskContent,
}

/// How to remove an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remove {
    Strictly,
    /// Removes the application and stops its live tasks.
    ByForce,
}

impl Applications {
    fn owned(&self, id: &AppId, owner: &OwnerFilter) -> Result<&AppRecord, Refusal> {
        let record = self.records.get(id);
        let may = |record: &&AppRecord| {
            owner
                .as_ref()
                .is_none_or(|user| user == record.user.as_str())
        };
        record
            .filter(may)
            .ok_or_else(|| Refusal::NoSuchApplication(id.clone()))
    }

    /// Returns the task groups and queue of an application, which its tasks depend on.
    pub fn task_context(&self, id: &AppId, owner: &OwnerFilter) -> Result<TaskContext, Refusal> {
        self.owned(id, owner)?;
        let known = self.partition.get(id);
        Ok(TaskContext {
            groups: known.map_or_else(Vec::new, |it| it.head.metadata.task_groups.clone()),
            in_queue: known.is_some_and(demand::asks_for_admission),
        })
    }

    /// Adds an application. Returns true if it is new, and the warnings.
    pub fn add(
        &mut self,
        id: &AppId,
        submission: Parsed,
        uuid: Uuid,
        moment: &Moment,
    ) -> Result<(bool, Vec<String>), Refusal> {
        let Parsed { metadata, warnings } = submission;
        let user: UserName = metadata.user.clone();
        if self
            .records
            .get(id)
            .is_some_and(|record| record.user != user)
        {
            return Err(Refusal::Taken(id.clone()));
        }
        let members = metadata.task_groups.iter();
        let members: usize = members.map(|it| it.min_member as usize).sum();
        if !self.records.contains_key(id) {
            self.quota.check_application(&user, members)?;
        }
        match self
            .partition
            .add(config::APPLICATIONS, id, metadata, moment.now)?
        {
            Added::Existing { ignored_fields } => {
                let fields = ignored_fields.into_iter().map(str::to_owned);
                Ok((false, fields.collect()))
            }
            Added::Created => {
                self.quota.enter(&user, members);
                let mut record = AppRecord::new(uuid, user);
                record.counted = members;
                for message in warnings {
                    record.warn(moment.now, None, message);
                }
                self.by_number.insert(uuid, id.clone());
                self.records.insert(id.clone(), record);
                self.mark_dirty(id);
                Ok((true, Vec::new()))
            }
        }
    }

    pub fn remove(
        &mut self,
        id: &AppId,
        owner: &OwnerFilter,
        how: Remove,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.owned(id, owner)?;
        match self.partition.remove(id, how == Remove::ByForce) {
            // Withdrawing the demand ends its processes.
            Ok(_) => {
                self.withdraw(id, batch);
                Ok(())
            }
            Err(NotRemoved::NotFound) => Err(Refusal::NoSuchApplication(id.clone())),
            Err(NotRemoved::Blocked { blocking_tasks }) => Err(Refusal::Blocked(blocking_tasks)),
        }
    }

    /// Adds a task. Returns true if it is new.
    pub fn add_task(
        &mut self,
        id: &AppId,
        owner: &OwnerFilter,
        task: NewTask,
        moment: &Moment,
    ) -> Result<bool, Refusal> {
        let added = self.add_tasks(id, owner, vec![task], moment)?;
        Ok(added.contains(&true))
    }

    /// Returns true for each task that would be new. Fails if not all could be added.
    pub fn would_add(
        &self,
        id: &AppId,
        owner: &OwnerFilter,
        tasks: &[&TaskId],
    ) -> Result<Vec<bool>, Refusal> {
        let user = &self.owned(id, owner)?.user;
        let new = self.partition.new_among(id, tasks.iter().copied());
        let new = new.map_err(|refused| not_added(id, refused))?;
        self.quota.check_tasks(user, new)?;
        let known = |task: &&&TaskId| {
            self.partition
                .get(id)
                .is_some_and(|it| it.tasks.contains_key(**task))
        };
        Ok(tasks.iter().map(|task| !known(&task)).collect())
    }

    /// Adds all tasks or none. Returns true for each task that is new.
    pub fn add_tasks(
        &mut self,
        id: &AppId,
        owner: &OwnerFilter,
        tasks: Vec<NewTask>,
        moment: &Moment,
    ) -> Result<Vec<bool>, Refusal> {
        let user = self.owned(id, owner)?.user.clone();
        let names: Vec<&TaskId> = tasks.iter().map(|task| &task.id).collect();
        self.would_add(id, owner, &names)?;
        let mut entered = Vec::with_capacity(tasks.len());
        for NewTask { id: task, content } in tasks {
            let TaskContent { wish, program } = content;
            let added = self.partition.add_task(id, &task, wish, moment.now);
            let added = added.map_err(|refused| not_added(id, refused))?;
            let is_new = added == answers::TaskAdded::Created;
            if let Some(record) = self.records.get_mut(id).filter(|_| is_new) {
                record.enter(&task, program);
                record.counted += 1;
                self.quota.recount(&user, 0, 1);
                self.mark_dirty(id).keys.insert(task);
            }
            entered.push(is_new);
        }
        Ok(entered)
    }

    fn is_placeholder(&self, id: &AppId, task: &TaskId) -> bool {
        let known = self.partition.get(id).and_then(|it| it.tasks.get(task));
        known.is_some_and(|it| it.placeholder)
    }

    /// Removes a task. Unknown tasks are no error, and placeholders count as unknown.
    pub fn remove_task(&mut self, id: &AppId, task: &TaskId, owner: &OwnerFilter) {
        if self.owned(id, owner).is_ok() && !self.is_placeholder(id, task) {
            self.partition.remove_task(id, task);
            self.mark_dirty(id).keys.insert(task.clone());
        }
    }

    pub fn transition(
        &mut self,
        id: &AppId,
        owner: &OwnerFilter,
        input: frontend::Input,
        moment: &Moment,
    ) -> Result<TransitionResult, Refusal> {
        self.owned(id, owner)?;
        let missing = || Refusal::NoSuchApplication(id.clone());
        let reported = self
            .partition
            .apply(id, input, moment.now)
            .ok_or_else(missing)?;
        self.mark_dirty(id).all = true;
        let answer = answer(&reported);
        self.run_effects(id, reported.step.effects, moment.now);
        Ok(answer)
    }

    /// Completes a task. Completing a placeholder releases its allocation, and its gang needs one
    /// member less.
    pub fn complete_task(
        &mut self,
        id: &AppId,
        task: &TaskId,
        owner: &OwnerFilter,
        moment: &Moment,
    ) -> Result<TransitionResult, Refusal> {
        self.owned(id, owner)?;
        let gives_back = self.is_placeholder(id, task);
        let reported = self
            .partition
            .apply_to_task(id, task, task::Event::Complete, moment.now);
        let reported = reported.ok_or_else(|| Refusal::NoSuchTask(id.clone(), task.clone()))?;
        self.mark_dirty(id).keys.insert(task.clone());
        // The demand of its group shrinks.
        self.mark_dirty(id).all |= gives_back;
        let answer = answer(&reported);
        self.run_effects(id, reported.step.effects, moment.now);
        Ok(answer)
    }

    /// Confirms the end of a task. Unknown tasks are no error. Returns 404 only if the application
    /// never existed.
    pub fn confirm(
        &mut self,
        id: &AppId,
        task: &TaskId,
        owner: &OwnerFilter,
        moment: &Moment,
    ) -> Result<TransitionResult, Refusal> {
        if self.records.contains_key(id) {
            self.owned(id, owner)?;
        } else if let Some(user) = owner
            && self.partition.removed_user(id).map(UserName::as_str) != Some(user.as_str())
        {
            return Err(Refusal::NoSuchApplication(id.clone()));
        }
        let reported = self.partition.confirm(id, task, moment.now);
        let reported = reported.ok_or_else(|| Refusal::NoSuchApplication(id.clone()))?;
        let answer = answer(&reported);
        if self.records.contains_key(id) {
            self.mark_dirty(id).keys.insert(task.clone());
            self.run_effects(id, reported.step.effects, moment.now);
        }
        Ok(answer)
    }

    pub fn show(
        &self,
        id: &AppId,
        owner: &OwnerFilter,
        verdicts: &Verdicts,
    ) -> Result<ApplicationView, Refusal> {
        let record = self.owned(id, owner)?;
        let missing = || Refusal::NoSuchApplication(id.clone());
        let front = self.partition.get(id).ok_or_else(missing)?;
        Ok(view::application(record, front, verdicts))
    }

    pub fn show_task(
        &self,
        id: &AppId,
        task: &TaskId,
        owner: &OwnerFilter,
    ) -> Result<TaskAccepted, Refusal> {
        let record = self.owned(id, owner)?;
        let front = self.partition.get(id);
        let known = front.and_then(|it| it.tasks.get(task));
        let known = known.filter(|it| !it.placeholder);
        let missing = || Refusal::NoSuchTask(id.clone(), task.clone());
        Ok(TaskAccepted {
            application_id: id.to_string(),
            task: view::task(record, known.ok_or_else(missing)?),
        })
    }

    /// Returns the applications that match the filter, sorted by id.
    pub fn list(&self, filter: &Filter) -> ApplicationList {
        view::list(&self.partition, &self.records, filter)
    }
}

fn answer<S: Serialize>(reported: &answers::Applied<S>) -> TransitionResult {
    TransitionResult {
        applied: reported.applied,
        reason: reported.reason.as_ref().map(written),
        state: reported.state.as_ref().map(written),
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
