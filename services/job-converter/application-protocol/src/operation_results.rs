//! Results of the operations, one variant per HTTP status.

use serde::Serialize;

use crate::frontend::{self, Failure, Step};
use crate::no_change_reason::Reason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// HTTP 201.
    Created,
    /// HTTP 200: the application exists. These fields of the request differ and were ignored.
    Existing { ignored_fields: Vec<&'static str> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdded {
    #[error("the application belongs to the manager {writer}")]
    OtherWriter { writer: String },
    #[error("there are {limit} applications, which is the limit; remove ended ones")]
    Full { limit: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRemoved {
    /// HTTP 404.
    #[error("unknown application")]
    NotFound,
    /// HTTP 409.
    #[error("live tasks prevent this: {}", blocking_tasks.join(", "))]
    Blocked { blocking_tasks: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAdded {
    /// HTTP 201.
    Created,
    /// HTTP 200.
    Existing,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskNotAdded {
    /// HTTP 404.
    #[error("unknown application")]
    NotFound,
    /// HTTP 409, with the failure code of the application if it has one.
    #[error("the application is {state:?} and accepts no more tasks")]
    Dead {
        state: frontend::State,
        failure: Option<Failure>,
    },
    #[error("the application has {limit} tasks, which is the limit")]
    Full { limit: usize },
}

/// Response 202: whether the transition was applied, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied<S> {
    pub applied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// State of the application or task. `None` if it no longer exists.
    pub state: Option<S>,
    #[serde(skip)]
    pub step: Step,
}

impl<S> Applied<S> {
    pub(crate) fn new(step: Step, state: Option<S>) -> Self {
        Self {
            applied: step.is_applied(),
            reason: step.refusal.as_ref().map(|it| it.reason),
            state,
            step,
        }
    }

    pub(crate) fn refused(reason: Reason) -> Self {
        Self {
            applied: false,
            reason: Some(reason),
            state: None,
            step: Step::default(),
        }
    }
}
