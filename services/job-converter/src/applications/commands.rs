//! The operations of the application protocol and their responses.

use hayward_job_converter_api::applications::{
    ApplicationList, ApplicationView, TaskAccepted, TransitionResult,
};
use hayward_job_converter_application_protocol::frontend::{self, FailureCode};
use hayward_job_converter_application_protocol::ids::{AppId, TaskId};
use hayward_job_converter_application_protocol::operation_results::{
    self, Added, NotAdded, NotRemoved, TaskNotAdded,
};
use hayward_job_converter_application_protocol::task;
use hayward_publication::committer::{Batch, Moment};
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::UserName;
use serde::Serialize;
use uuid::Uuid;

use super::application_record::AppRecord;
use super::parse_submission::{Parsed, TaskContent, TaskContext};
use super::view::{self, Filter};
use super::{Applications, Verdicts, demand};
use crate::config;
use crate::store::Rows;

/// All applications, and the state that a command on them may read and write.
pub struct CommandContext<'a> {
    pub applications: &'a mut Applications,
    pub verdicts: &'a Verdicts,
    pub moment: &'a Moment,
    pub batch: &'a mut Batch<Rows>,
}

impl CommandContext<'_> {
    pub fn show(&self, id: &AppId, owner: &OwnerFilter) -> Result<ApplicationView, Refusal> {
        self.applications.show(id, owner, self.verdicts)
    }
}

/// A request to applications. It sends its own response.
pub type ApplicationCommand = Box<dyn FnOnce(CommandContext<'_>) + Send>;

/// Owner that the application must have. `None` allows any owner.
pub type OwnerFilter = Option<String>;

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("unknown application {0}")]
    NoSuchApplication(AppId),
    #[error("application {0} has no task {1}")]
    NoSuchTask(AppId, TaskId),
    #[error("the id {0} is in use; choose another")]
    IdInUse(AppId),
    #[error(transparent)]
    NotAdded(#[from] NotAdded),
    #[error("live tasks prevent this: {}", .0.join(", "))]
    Blocked(Vec<String>),
    #[error("application {id} is {state} and accepts no more tasks")]
    Ended {
        id: AppId,
        state: String,
        failure: Option<frontend::Failure>,
    },
    #[error("the application has {0} tasks, which is the limit")]
    TaskLimit(usize),
    #[error("{0} tasks are open, which is the limit; try again when some have ended")]
    TotalTaskLimit(usize),
    #[error(
        "user {user} has {count} open tasks of applications, and one user may have {limit} \
         (`max_user_application_tasks`); try again when some have ended"
    )]
    UserTaskLimit {
        user: UserName,
        count: usize,
        limit: usize,
    },
    #[error(
        "user {user} has {count} applications, and one user may have {limit} \
         (`max_user_applications`); remove ended ones"
    )]
    UserApplicationLimit {
        user: UserName,
        count: usize,
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
            | Refusal::TaskLimit(_)
            | Refusal::TotalTaskLimit(_)
            | Refusal::UserTaskLimit { .. }
            | Refusal::UserApplicationLimit { .. } => Self::new(Code::TooManyRequests, text),
            Refusal::IdInUse(_) | Refusal::NotAdded(_) => Self::new(Code::Conflict, text),
            Refusal::Blocked(blocking) => {
                let text = format!("{text}; wait for them, or remove it with ?force=true");
                Self::new(Code::Conflict, text).with("blockingTasks", blocking)
            }
            Refusal::Ended { state, failure, .. } => {
                let because = failure.as_ref().map(|it| format!(": {}", it.message));
                let text = format!("{text}{}", because.unwrap_or_default());
                let problem = Self::new(Code::Conflict, text).with("state", state);
                match failure {
                    Some(failure) => problem.with("failureCode", wire_name(&failure.code)),
                    None => problem,
                }
            }
        }
    }
}

/// Returns the wire name of an enum value.
pub(super) fn wire_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

pub(super) fn failure_code_name(code: FailureCode) -> String {
    wire_name(&code)
}

/// A task that a request adds.
pub struct NewTask {
    pub id: TaskId,
    pub content: TaskContent,
}

/// How to remove an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalMode {
    Strict,
    /// Removes the application and stops its live tasks.
    Force,
}

impl Applications {
    fn find_owned(&self, id: &AppId, owner: &OwnerFilter) -> Result<&AppRecord, Refusal> {
        let record = self.records.get(id);
        let is_visible = |record: &&AppRecord| {
            owner
                .as_ref()
                .is_none_or(|user| user == record.user.as_str())
        };
        record
            .filter(is_visible)
            .ok_or_else(|| Refusal::NoSuchApplication(id.clone()))
    }

    /// Returns the properties of an application that its tasks depend on.
    pub fn task_context(&self, id: &AppId, owner: &OwnerFilter) -> Result<TaskContext, Refusal> {
        self.find_owned(id, owner)?;
        let application = self.partition.get(id);
        Ok(TaskContext {
            groups: application.map_or_else(Vec::new, |it| it.head.metadata.task_groups.clone()),
            in_queue: application.is_some_and(demand::needs_admission),
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
            return Err(Refusal::IdInUse(id.clone()));
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
                self.quota.add_application(&user, members);
                let mut record = AppRecord::new(uuid, user);
                record.quota_tasks = members;
                for message in warnings {
                    record.warn(moment.now, None, message);
                }
                self.id_by_uuid.insert(uuid, id.clone());
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
        mode: RemovalMode,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.find_owned(id, owner)?;
        match self.partition.remove(id, mode == RemovalMode::Force) {
            // Withdrawing the demand ends the processes of the application.
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
    pub fn check_new_tasks(
        &self,
        id: &AppId,
        owner: &OwnerFilter,
        tasks: &[&TaskId],
    ) -> Result<Vec<bool>, Refusal> {
        let user = &self.find_owned(id, owner)?.user;
        let new_count = self.partition.count_new_tasks(id, tasks.iter().copied());
        let new_count = new_count.map_err(|refused| not_added(id, refused))?;
        self.quota.check_tasks(user, new_count)?;
        let exists = |task: &&&TaskId| {
            self.partition
                .get(id)
                .is_some_and(|it| it.tasks.contains_key(**task))
        };
        Ok(tasks.iter().map(|task| !exists(&task)).collect())
    }

    /// Adds all tasks or none. Returns true for each task that is new.
    pub fn add_tasks(
        &mut self,
        id: &AppId,
        owner: &OwnerFilter,
        tasks: Vec<NewTask>,
        moment: &Moment,
    ) -> Result<Vec<bool>, Refusal> {
        let user = self.find_owned(id, owner)?.user.clone();
        let ids: Vec<&TaskId> = tasks.iter().map(|task| &task.id).collect();
        self.check_new_tasks(id, owner, &ids)?;
        let mut created = Vec::with_capacity(tasks.len());
        for NewTask { id: task, content } in tasks {
            let TaskContent { spec, program } = content;
            let added = self.partition.add_task(id, &task, spec, moment.now);
            let added = added.map_err(|refused| not_added(id, refused))?;
            let is_new = added == operation_results::TaskAdded::Created;
            if let Some(record) = self.records.get_mut(id).filter(|_| is_new) {
                record.add_task(&task, program);
                record.quota_tasks += 1;
                self.quota.update_tasks(&user, 0, 1);
                self.mark_dirty(id).keys.insert(task);
            }
            created.push(is_new);
        }
        Ok(created)
    }

    fn is_placeholder(&self, id: &AppId, task: &TaskId) -> bool {
        let found = self.partition.get(id).and_then(|it| it.tasks.get(task));
        found.is_some_and(|it| it.placeholder)
    }

    /// Removes a task. Unknown tasks are no error, and placeholders count as unknown.
    pub fn remove_task(&mut self, id: &AppId, task: &TaskId, owner: &OwnerFilter) {
        if self.find_owned(id, owner).is_ok() && !self.is_placeholder(id, task) {
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
        self.find_owned(id, owner)?;
        let not_found = || Refusal::NoSuchApplication(id.clone());
        let applied = self
            .partition
            .apply(id, input, moment.now)
            .ok_or_else(not_found)?;
        self.mark_dirty(id).all = true;
        let result = transition_result(&applied);
        self.run_effects(id, applied.step.effects, moment.now);
        Ok(result)
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
        self.find_owned(id, owner)?;
        let is_placeholder = self.is_placeholder(id, task);
        let applied = self
            .partition
            .apply_to_task(id, task, task::Event::Complete, moment.now);
        let applied = applied.ok_or_else(|| Refusal::NoSuchTask(id.clone(), task.clone()))?;
        self.mark_dirty(id).keys.insert(task.clone());
        // The demand of its group shrinks.
        self.mark_dirty(id).all |= is_placeholder;
        let result = transition_result(&applied);
        self.run_effects(id, applied.step.effects, moment.now);
        Ok(result)
    }

    /// Confirms the end of a task. An unknown task is no error. Fails only if the application never
    /// existed, or belongs to another user.
    pub fn confirm(
        &mut self,
        id: &AppId,
        task: &TaskId,
        owner: &OwnerFilter,
        moment: &Moment,
    ) -> Result<TransitionResult, Refusal> {
        if self.records.contains_key(id) {
            self.find_owned(id, owner)?;
        } else if let Some(user) = owner
            && self.partition.removed_user(id).map(UserName::as_str) != Some(user.as_str())
        {
            return Err(Refusal::NoSuchApplication(id.clone()));
        }
        let applied = self.partition.confirm(id, task, moment.now);
        let applied = applied.ok_or_else(|| Refusal::NoSuchApplication(id.clone()))?;
        let result = transition_result(&applied);
        if self.records.contains_key(id) {
            self.mark_dirty(id).keys.insert(task.clone());
            self.run_effects(id, applied.step.effects, moment.now);
        }
        Ok(result)
    }

    pub fn show(
        &self,
        id: &AppId,
        owner: &OwnerFilter,
        verdicts: &Verdicts,
    ) -> Result<ApplicationView, Refusal> {
        let record = self.find_owned(id, owner)?;
        let not_found = || Refusal::NoSuchApplication(id.clone());
        let front = self.partition.get(id).ok_or_else(not_found)?;
        Ok(view::application_view(record, front, verdicts))
    }

    pub fn show_task(
        &self,
        id: &AppId,
        task: &TaskId,
        owner: &OwnerFilter,
    ) -> Result<TaskAccepted, Refusal> {
        let record = self.find_owned(id, owner)?;
        let front = self.partition.get(id);
        let found = front.and_then(|it| it.tasks.get(task));
        let found = found.filter(|it| !it.placeholder);
        let not_found = || Refusal::NoSuchTask(id.clone(), task.clone());
        Ok(TaskAccepted {
            application_id: id.to_string(),
            task: view::task_view(record, found.ok_or_else(not_found)?),
        })
    }

    /// Returns the applications that match the filter, sorted by id.
    pub fn list(&self, filter: &Filter) -> ApplicationList {
        view::list(&self.partition, &self.records, filter)
    }
}

fn transition_result<S: Serialize>(applied: &operation_results::Applied<S>) -> TransitionResult {
    TransitionResult {
        applied: applied.applied,
        reason: applied.reason.as_ref().map(wire_name),
        state: applied.state.as_ref().map(wire_name),
    }
}

fn not_added(id: &AppId, refused: TaskNotAdded) -> Refusal {
    match refused {
        TaskNotAdded::NotFound => Refusal::NoSuchApplication(id.clone()),
        TaskNotAdded::Dead { state, failure } => Refusal::Ended {
            id: id.clone(),
            state: wire_name(&state),
            failure,
        },
        TaskNotAdded::Full { limit } => Refusal::TaskLimit(limit),
    }
}

#[cfg(test)]
mod quota_tests;
