//! The types of the JSON document, and its parser. Every field is optional.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{NodeSort, Preemption, Sort};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{Faults, JsonPointer, MAX_FAULTS};

/// The whole configuration of the queues of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// Queues by name; a missing `root` above them is implied.
    pub queues: BTreeMap<String, Queue>,
    /// Rules that assign applications to queues. The first rule that gives a queue applies.
    pub placement: Vec<Rule>,
    pub node_sort: NodeSorting,
    /// Limits of the root.
    pub limits: Vec<Limit>,
    /// False disables preemption for guarantees.
    pub preemption: Option<bool>,
    /// True enables preemption in queues that exceed a lowered maximum.
    pub quota_preemption: Option<bool>,
    /// Milliseconds after a preemption in which the work is not preempted again.
    pub preemption_cooldown_ms: Option<u64>,
    /// Milliseconds after which a reservation ends.
    pub reservation_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSorting {
    pub policy: NodeSort,
    /// Weight by resource type, a whole number.
    pub weights: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Children by name. A queue without children is a leaf.
    pub queues: BTreeMap<String, Queue>,
    /// True for a queue that is no leaf even without children.
    pub parent: bool,
    pub resources: Resources,
    /// Maximum number of running applications. 0 means unlimited.
    pub max_applications: u64,
    pub submit_acl: String,
    pub admin_acl: String,
    /// Order of the applications in a leaf. Inherited if absent.
    pub sort: Option<Sort>,
    pub sort_by_priority: Option<bool>,
    /// Number of failed placements after which an application backs off. 0 disables the back-off.
    pub backoff_asks: Option<u64>,
    /// Milliseconds for which an application that backs off is not tried.
    pub backoff_ms: Option<u64>,
    pub priority_policy: PriorityPolicy,
    /// Added to the priorities of the work below the queue.
    pub priority_offset: i32,
    pub preemption: Preemption,
    /// Milliseconds that work must wait before it preempts other work.
    pub preemption_delay_ms: Option<u64>,
    /// Milliseconds for which usage may exceed a lowered maximum. 0 disables its enforcement.
    pub quota_preemption_delay_ms: Option<u64>,
    /// Limits of users and groups.
    pub limits: Vec<Limit>,
    /// Settings of the queues that applications create below this one.
    pub child_template: Option<Template>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PriorityPolicy {
    /// The parent sees the highest priority of the work below the queue, plus the offset.
    #[default]
    Default,
    /// The parent sees only the offset.
    Fence,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Amounts by type, such as `{"memory": "2G", "vcore": 4}`.
    pub guaranteed: Value,
    pub max: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    /// Names of users. `*` matches every user without a limit of its own.
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub max_resources: Value,
    pub max_applications: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Template {
    pub resources: Resources,
    pub max_applications: u64,
    pub sort: Option<Sort>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(rename = "rule")]
    pub kind: RuleKind,
    /// The queue for the rule `fixed`, or the name of the tag for the rule `tag`.
    #[serde(default)]
    pub value: Option<String>,
    /// True if the rule may create missing queues.
    #[serde(default)]
    pub create: bool,
    /// Rule that gives the queue above the queue of this rule. Absent for the root.
    #[serde(default)]
    pub parent: Option<Box<Rule>>,
    /// Users and groups that the rule applies to, or does not apply to. Absent for all.
    #[serde(default)]
    pub filter: Option<Filter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleKind {
    /// The queue that the application requests.
    Provided,
    /// The queue named after the user.
    User,
    /// The queue in `value`.
    Fixed,
    /// The queue named in the tag `value` of the application.
    Tag,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    #[serde(rename = "type")]
    pub kind: FilterKind,
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub groups: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterKind {
    Allow,
    Deny,
}

/// Parses the document. Each unreadable part is reported and removed, and the rest is parsed again.
pub(super) fn read(value: &Value, faults: &mut Faults) -> Document {
    let mut remaining = value.clone();
    for _ in 0..MAX_FAULTS {
        let error = match serde_path_to_error::deserialize::<_, Document>(remaining.clone()) {
            Ok(document) => return document,
            Err(error) => error,
        };
        let mut steps: Vec<String> = error.path().iter().filter_map(path_step).collect();
        let detail = error.into_inner().to_string();
        // The path of an unknown field ends at its parent.
        let unknown = detail.strip_prefix("unknown field `");
        if let Some((name, _)) = unknown.and_then(|rest| rest.split_once('`'))
            && steps.last().is_none_or(|last| last != name)
        {
            steps.push(name.to_owned());
        }
        let pointer = steps
            .iter()
            .fold(JsonPointer::default(), |pointer, step| pointer.child(step));
        faults.add(&pointer, detail);
        if !remove(&mut remaining, &steps) {
            break;
        }
    }
    Document::default()
}

fn path_step(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        _ => None,
    }
}

/// Removes the value at this path, or its nearest removable parent. Returns whether a value was
/// removed.
fn remove(value: &mut Value, steps: &[String]) -> bool {
    let Some((first, remaining_steps)) = steps.split_first() else {
        return false;
    };
    let inner = match value {
        Value::Object(fields) => fields.get_mut(first),
        Value::Array(items) => first
            .parse()
            .ok()
            .and_then(|index: usize| items.get_mut(index)),
        _ => None,
    };
    if inner.is_some_and(|inner| remove(inner, remaining_steps)) {
        return true;
    }
    match value {
        Value::Object(fields) => fields.remove(first).is_some(),
        Value::Array(items) => match first.parse::<usize>() {
            Ok(index) if index < items.len() => {
                items.remove(index);
                true
            }
            _ => false,
        },
        _ => false,
    }
}
