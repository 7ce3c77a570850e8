//! Commands about single tasks: from users, and to the runners that run them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::signals::SentSignal;

/// `POST /v1/jobs/{id}/tasks/cancel`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelTasks {
    /// Numbers of tasks, from 0, and ranges of them: `["5-9", "12"]`.
    #[schema(min_items = 1, max_items = 1000)]
    pub tasks: Vec<String>,
    /// Running tasks get SIGKILL at once, without the stop signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
}

/// `POST /v1/jobs/{id}/tasks/signals`, and the same for one task
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalTasks {
    pub signal: SentSignal,
}

/// How many running tasks a signal was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignalsSent {
    pub tasks: u64,
    pub revision: u64,
}

/// Effect of a cancellation of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TasksCancelled {
    /// Tasks that had not started, and never will.
    pub cancelled: u64,
    /// Tasks of processes. They get the stop signal, and are cancelled when they end.
    pub stopping: u64,
    /// Tasks that had ended before, and stay unchanged.
    pub ended: u64,
    pub revision: u64,
}

/// `GET /v1/jobs/{id}/tasks/commands`: the commands to a runner after a number, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommandList {
    pub commands: Vec<RunnerCommand>,
}

/// A command to a runner about one of its tasks (TC-6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunnerCommand {
    /// Ascends. A runner carries out each number once.
    pub number: u64,
    pub kind: CommandKind,
    pub task: u64,
    pub attempt: u32,
    /// Milliseconds from the stop signal to SIGKILL. Default: those of the terms. Without any, no
    /// stop signal is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Name of the signal of `signal_task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// The run gets the stop signal, and SIGKILL after its grace.
    StopTask,
    /// The process group of the run gets a signal.
    SignalTask,
    /// A command of a later version. Runners skip it.
    #[serde(other)]
    Unknown,
}
