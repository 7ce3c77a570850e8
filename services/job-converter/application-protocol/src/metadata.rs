//! Submitted properties of an application.

use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, UserName};
use serde::{Deserialize, Serialize};

use crate::gang_policy::Policy;
use crate::task_groups::TaskGroup;

/// Tag with which other implementations put an application into a recovery queue, bypassing all
/// rules. Hayward stores the queue of running work, so the tag has no effect here (decision 0036).
pub const FORCE_CREATE: &str = "application.create.force";

fn default_true() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Name of the queue. If empty, the placement rules decide.
    #[serde(default)]
    pub queue_name: String,
    /// Node pool of the queue. `None` selects the first pool by name that has queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub user: UserName,
    /// Groups of the user.
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub task_groups: Vec<TaskGroup>,
    /// Priority of the placeholders. Tasks have their own priority.
    #[serde(default)]
    pub priority: i32,
    /// Whether the placeholders may preempt other work.
    #[serde(default = "default_true")]
    pub preempts: bool,
    /// Whether the placeholders are preempted like others. If `false`, other work is preempted
    /// first.
    #[serde(default = "default_true")]
    pub preemptable: bool,
    #[serde(default)]
    pub owner_references: Vec<String>,
    #[serde(default)]
    pub scheduling_policy_parameters: Policy,
    #[serde(default)]
    pub creation_time: Option<Timestamp>,
}

impl Metadata {
    pub fn new(user: UserName) -> Self {
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

    /// Returns true if the application asks to bypass all rules, which is not supported.
    pub fn requests_recovery(&self) -> bool {
        self.tags.get(FORCE_CREATE).is_some_and(|it| it == "true")
    }

    /// Returns the fields that differ in a second submission. The first submission counts. The
    /// creation time is not compared.
    pub fn differing_fields(&self, other: &Self) -> Vec<&'static str> {
        let differs = [
            ("queueName", self.queue_name != other.queue_name),
            ("pool", self.pool != other.pool),
            ("user", self.user != other.user),
            ("groups", self.groups != other.groups),
            ("tags", self.tags != other.tags),
            ("taskGroups", self.task_groups != other.task_groups),
            ("priority", self.priority != other.priority),
            ("preempts", self.preempts != other.preempts),
            ("preemptable", self.preemptable != other.preemptable),
            (
                "ownerReferences",
                self.owner_references != other.owner_references,
            ),
            (
                "schedulingPolicyParameters",
                self.scheduling_policy_parameters != other.scheduling_policy_parameters,
            ),
        ];
        let differing = differs.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(name, _)| name).collect()
    }
}
