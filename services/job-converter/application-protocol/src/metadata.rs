//! What a submitter says of an application (2.2).

use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, UserName};
use serde::{Deserialize, Serialize};

use crate::groups::TaskGroup;
use crate::policy::Policy;

/// Upstream places an application with it in a recovery queue, past all rules (4.3). Here what runs
/// has its queue in its rows, so nothing has to be placed again (decision 0036).
pub const FORCE_CREATE: &str = "application.create.force";

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Empty: the placement rules decide.
    #[serde(default)]
    pub queue_name: String,
    /// Whose queues are meant; absent: the first by name that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub user: UserName,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub task_groups: Vec<TaskGroup>,
    /// Of its placeholders; a task says its own.
    #[serde(default)]
    pub priority: i32,
    /// Its placeholders may take from others.
    #[serde(default = "yes")]
    pub preempts: bool,
    /// Its placeholders are taken before those that would rather not be.
    #[serde(default = "yes")]
    pub preemptable: bool,
    #[serde(default)]
    pub owner_references: Vec<String>,
    #[serde(default)]
    pub scheduling_policy_parameters: Policy,
    #[serde(default)]
    pub creation_time: Option<Timestamp>,
}

impl Metadata {
    pub fn of(user: UserName) -> Self {
        Self {
            queue_name: String::new(),
            pool: None,
            user,
            groups: Vec::new(),
            tags: BTreeMap::new(),
            task_groups: Vec::new(),
            priority: 0,
            preempts: true,
            preemptable: true,
            owner_references: Vec::new(),
            scheduling_policy_parameters: Policy::default(),
            creation_time: None,
        }
    }

    /// It asks to be placed where no rule places it, which is not served.
    pub fn asks_for_recovery(&self) -> bool {
        self.tags.get(FORCE_CREATE).is_some_and(|it| it == "true")
    }

    /// Fields of a second submission that say something else: the first caller wins (2.1, rule 2).
    /// The creation time is no wish, and is not compared.
    pub fn ignored(&self, again: &Self) -> Vec<&'static str> {
        let differs = [
            ("queueName", self.queue_name != again.queue_name),
            ("pool", self.pool != again.pool),
            ("user", self.user != again.user),
            ("groups", self.groups != again.groups),
            ("tags", self.tags != again.tags),
            ("taskGroups", self.task_groups != again.task_groups),
            ("priority", self.priority != again.priority),
            ("preempts", self.preempts != again.preempts),
            ("preemptable", self.preemptable != again.preemptable),
            (
                "ownerReferences",
                self.owner_references != again.owner_references,
            ),
            (
                "schedulingPolicyParameters",
                self.scheduling_policy_parameters != again.scheduling_policy_parameters,
            ),
        ];
        let found = differs.into_iter().filter(|(_, differs)| *differs);
        found.map(|(name, _)| name).collect()
    }
}
