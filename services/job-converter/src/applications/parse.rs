//! Parses submissions of the application protocol. All faults are reported at once, each with a
//! JSON pointer (A8).

use hayward_job_converter_api::applications::{ApplicationSubmission, TaskSubmission};
use hayward_job_converter_application_protocol::groups::{self, Fault, TaskGroup};
use hayward_job_converter_application_protocol::ids::GroupName;
use hayward_job_converter_application_protocol::metadata::{FORCE_CREATE, Metadata};
use hayward_job_converter_application_protocol::policy::{MAX_SECONDS, Policy};
use hayward_job_converter_application_protocol::task::{Placing, Runtime, Spread, Wish};
use hayward_service::auth::Groups;
use hayward_service::http::problem::FieldFault;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Size, UserName};
use serde_json::Value;

use super::record::Program;
use crate::work::validate;

const MAX_TAGS: usize = 64;
const MAX_QUEUE_LENGTH: usize = 512;
/// Limit on the sum of a gang. It exceeds all nodes of a fleet, and is far from overflow.
const MAX_PER_GANG: u64 = 1 << 56;
/// Fields that select nodes for placeholders. They are not supported.
const NOT_SERVED: [&str; 3] = ["nodeSelector", "affinity", "topologySpreadConstraints"];

/// Parsed submission. `warnings` lists what a lenient submission dropped.
pub struct Parsed {
    pub metadata: Metadata,
    pub warnings: Vec<String>,
}

/// Options of a submission.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether faults in the task groups are refused. `false` drops the list and continues without
    /// a gang.
    pub strict: bool,
    /// Maximum number of members of all groups together.
    pub most_members: usize,
}

/// Properties of a parsed task, and its program.
pub struct TaskContent {
    pub wish: Wish,
    pub program: Program,
}

/// Parses the submission of an application.
///
/// # Errors
/// Returns all faults.
pub fn application(
    given: &ApplicationSubmission,
    user: UserName,
    groups: &Groups,
    options: Options,
) -> Result<Parsed, Vec<FieldFault>> {
    let mut faults = plain_faults(given);
    let list = Value::Array(given.task_groups.clone());
    let mut wrong = not_served(&given.task_groups);
    let taken = match groups::parse(&list) {
        Ok(groups) => groups,
        Err(faults) => {
            wrong.extend(faults);
            Vec::new()
        }
    };
    wrong.extend(too_many(&taken, options.most_members));
    wrong.extend(too_large(&taken));
    let mut warnings = Vec::new();
    let pointed = wrong
        .into_iter()
        .map(|it| fault(format!("/taskGroups{}", it.pointer), it.message));
    if options.strict {
        faults.extend(pointed);
    } else {
        // A lenient submission drops the whole list and continues without a gang.
        let reported = pointed.map(|it| format!("TaskGroupsError {}: {}", it.pointer, it.detail));
        warnings.extend(reported);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let dropped = !warnings.is_empty();
    let task_groups = if dropped { Vec::new() } else { taken };
    let metadata = Metadata {
        groups: groups.names().to_vec(),
        task_groups,
        ..plain_fields(given, user)
    };
    if metadata.asks_for_recovery() {
        warnings.push(format!(
            "tag {FORCE_CREATE} has no effect: what runs keeps its queue, and what is new is \
             placed by the rules"
        ));
    }
    Ok(Parsed { metadata, warnings })
}

/// Returns the faults of all fields except for the task groups.
fn plain_faults(given: &ApplicationSubmission) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    if given.queue_name.len() > MAX_QUEUE_LENGTH || given.queue_name.contains('\0') {
        faults.push(fault("/queueName", "is not a valid queue name"));
    }
    let pool = given.pool.as_ref();
    let is_name = |it: &String| !it.trim().is_empty() && !it.contains('\0');
    if pool.is_some_and(|it| it.len() > MAX_QUEUE_LENGTH || !is_name(it)) {
        faults.push(fault("/pool", "is not a valid pool name"));
    }
    faults.extend(validate::map("/tags", &given.tags, MAX_TAGS));
    if given.scheduling_policy_parameters.len() > validate::MAX_TEXT_LENGTH {
        faults.push(fault("/schedulingPolicyParameters", "is too long"));
    }
    for key in Policy::too_long(&given.scheduling_policy_parameters) {
        let text = format!("{key} is at most {MAX_SECONDS}; leave it out to wait for ever");
        faults.push(fault("/schedulingPolicyParameters", text));
    }
    if given.owner_references.len() > MAX_TAGS {
        let text = format!("more than {MAX_TAGS} entries");
        faults.push(fault("/ownerReferences", text));
    }
    faults
}

/// Returns the fields that need no validation.
fn plain_fields(given: &ApplicationSubmission, user: UserName) -> Metadata {
    Metadata {
        queue_name: given.queue_name.clone(),
        pool: given.pool.clone(),
        tags: given.tags.clone(),
        priority: given.priority,
        preempts: given.preempts.unwrap_or(true),
        preemptable: given.preemptable.unwrap_or(true),
        owner_references: given.owner_references.clone(),
        scheduling_policy_parameters: Policy::parse(&given.scheduling_policy_parameters),
        ..Metadata::new(user)
    }
}

fn not_served(groups: &[Value]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        for field in NOT_SERVED {
            if group.get(field).is_some() {
                faults.push(Fault {
                    pointer: format!("/{at}/{field}"),
                    message: "not supported; choose a queue or a pool instead".to_owned(),
                });
            }
        }
    }
    faults
}

fn too_many(groups: &[TaskGroup], most: usize) -> Option<Fault> {
    let members: u64 = groups.iter().map(|it| u64::from(it.min_member)).sum();
    (members > most as u64).then(|| Fault {
        pointer: String::new(),
        message: format!("at most {most} members in total; got {members}"),
    })
}

/// Reports groups whose sum exceeds the limit. The sum of a gang therefore cannot overflow.
fn too_large(groups: &[TaskGroup]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let each = validate::amounts(&format!("/{at}/minResource"), &group.min_resource);
        faults.extend(each.into_iter().map(|it| Fault {
            pointer: it.pointer,
            message: it.detail,
        }));
    }
    let all = groups::placeholder_ask(groups);
    let mut amounts = [all.memory_bytes, all.cpu_milli, all.gpu_milli]
        .into_iter()
        .chain(all.extras.into_values());
    if faults.is_empty() && amounts.any(|amount| amount > MAX_PER_GANG) {
        faults.push(Fault {
            pointer: String::new(),
            message: format!("more than {MAX_PER_GANG} of one resource in total"),
        });
    }
    faults
}

/// Task groups and queue of an application, which its tasks depend on.
pub struct TaskContext {
    pub groups: Vec<TaskGroup>,
    /// Whether the application uses a pool with queues.
    pub in_queue: bool,
}

/// Parses the placement constraints of a task. A task of a group uses the node of its placeholder
/// and cannot set them.
fn placing(given: &TaskSubmission, in_queue: bool) -> Result<Placing, Vec<FieldFault>> {
    let mut faults = Vec::new();
    if given.machines.len() > validate::MAX_NODES {
        let text = format!("more than {} nodes", validate::MAX_NODES);
        faults.push(fault("/machines", text));
    }
    let apart = given.apart.as_ref();
    let label = apart.and_then(|it| it.by_label.as_ref());
    if label.is_some_and(|it| it.is_empty() || it.len() > 256 || it.contains('\0')) {
        faults.push(fault("/apart/byLabel", "must have 1 to 256 bytes"));
    }
    let of_queues = [
        ("/requiredNode", given.required_node.is_some()),
        ("/preempts", given.preempts.is_some()),
        ("/preemptable", given.preemptable.is_some()),
    ];
    for (pointer, _) in of_queues.iter().filter(|(_, is_set)| *is_set && !in_queue) {
        let text = "works in queues only; give the application a `queueName` or a `pool`";
        faults.push(fault(*pointer, text));
    }
    let of_places = [
        ("/machines", !given.machines.is_empty()),
        ("/requiredNode", given.required_node.is_some()),
        ("/apart", apart.is_some()),
    ];
    let in_group = given.task_group_name.is_some();
    for (pointer, _) in of_places.iter().filter(|(_, is_set)| *is_set && in_group) {
        let text = "a task of a group replaces one of its placeholders: leave this out, \
                    or `taskGroupName`";
        faults.push(fault(*pointer, text));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Placing {
        machines: given.machines.clone(),
        required_node: given.required_node.clone(),
        preempts: given.preempts.unwrap_or(true),
        preemptable: given.preemptable.unwrap_or(true),
        apart: apart.map(|it| Spread {
            by_label: it.by_label.clone(),
        }),
    })
}

/// Parses the submission of a task.
///
/// # Errors
/// Returns all faults.
pub fn task(
    given: &TaskSubmission,
    context: &TaskContext,
    traceparent: Option<String>,
) -> Result<TaskContent, Vec<FieldFault>> {
    let directory = given.working_directory.as_ref();
    let mut faults = validate::program(
        &given.command,
        &given.environment,
        directory,
        "/workingDirectory",
    );
    let name = given.task_group_name.as_ref();
    let name = name.and_then(|name| match GroupName::new(name) {
        Ok(name) => Some(name),
        Err(bad) => {
            faults.push(fault("/taskGroupName", bad.to_string()));
            None
        }
    });
    let mut groups = context.groups.iter();
    let group = groups.find(|it| Some(&it.name) == name.as_ref());
    let size = match &given.resources {
        None => group.map_or_else(|| Size::memory(GIB), |it| it.min_resource.clone()),
        Some(amounts) => groups::amounts(amounts).unwrap_or_else(|wrong| {
            let pointed = wrong.into_iter();
            faults.extend(pointed.map(|it| fault(format!("/resources{}", it.pointer), it.message)));
            Size::default()
        }),
    };
    faults.extend(validate::amounts("/resources", &size));
    let alias = given.alias.clone();
    if alias.as_ref().is_some_and(|it| !is_alias(it)) {
        faults.push(fault("/alias", "must have 1 to 256 bytes"));
    }
    let placing = placing(given, context.in_queue).unwrap_or_else(|wrong| {
        faults.extend(wrong);
        Placing::default()
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    let wish = Wish {
        alias,
        size,
        priority: given.priority,
        task_group_name: name,
        originator: given.originator,
        placing,
        runtime: Runtime::Unassigned,
        ..Wish::default()
    };
    let program = Program {
        command: given.command.clone(),
        environment: given.environment.clone(),
        working_directory: given.working_directory.clone(),
        traceparent,
    };
    Ok(TaskContent { wish, program })
}

fn is_alias(text: &str) -> bool {
    (1..=256).contains(&text.len()) && !text.contains('\0')
}

fn fault(pointer: impl Into<String>, detail: impl Into<String>) -> FieldFault {
    FieldFault {
        pointer: pointer.into(),
        detail: detail.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn context(groups: Vec<TaskGroup>) -> TaskContext {
        let in_queue = !groups.is_empty();
        TaskContext { groups, in_queue }
    }

    fn read(body: Value, strict: bool) -> Result<Parsed, Vec<FieldFault>> {
        let given: ApplicationSubmission = serde_json::from_value(body).unwrap();
        application(
            &given,
            "ann".parse().unwrap(),
            &Groups::NONE,
            Options {
                strict,
                most_members: 100,
            },
        )
    }

    #[test]
    fn a_bad_group_names_each_fault_or_drops_the_whole_list() {
        let body = json!({ "taskGroups": [
            { "name": "a", "minMember": 0, "minResource": { "cpu": "x" }, "nodeSelector": {} },
            { "name": "b", "minMember": 1, "minResource": { "cpu": "1" } },
        ] });
        let faults = read(body.clone(), true).err().unwrap();
        let pointers: Vec<&str> = faults.iter().map(|it| it.pointer.as_str()).collect();
        let expected = [
            "/taskGroups/0/nodeSelector",
            "/taskGroups/0/minMember",
            "/taskGroups/0/minResource/cpu",
        ];
        assert_eq!(pointers, expected);
        let lenient = read(body, false).unwrap();
        assert!(lenient.metadata.task_groups.is_empty());
        assert_eq!(lenient.warnings.len(), 3);
    }

    #[test]
    fn a_gang_above_the_limit_is_refused() {
        let group = json!({ "name": "a", "minMember": 101, "minResource": { "cpu": "1" } });
        let faults = read(json!({ "taskGroups": [group] }), true).err().unwrap();
        assert_eq!(faults[0].pointer, "/taskGroups");
    }

    #[test]
    fn amounts_and_timeouts_beyond_the_limits_are_refused() {
        let most = u64::MAX.to_string();
        let group = |memory: &str, members: u32| {
            let resource = json!({ "memory": memory });
            json!({ "name": "a", "minMember": members, "minResource": resource })
        };
        let pointer = |body: Value| read(body, true).err().unwrap()[0].pointer.clone();
        let groups = json!({ "taskGroups": [group(&most, 1)] });
        assert_eq!(pointer(groups), "/taskGroups/0/minResource/memory");
        assert!(read(json!({ "taskGroups": [group("1Ti", 100)] }), true).is_ok());
        let policy = json!({ "schedulingPolicyParameters": format!("gangRepairInSeconds={most}") });
        assert_eq!(pointer(policy), "/schedulingPolicyParameters");
        for name in ["memory", "cpu", "gpu"] {
            let large = json!({ "command": ["x"], "resources": { name: "1000000G" } });
            let given: TaskSubmission = serde_json::from_value(large).unwrap();
            let faults = task(&given, &context(Vec::new()), None).err().unwrap();
            assert_eq!(faults[0].pointer, format!("/resources/{name}"));
        }
    }

    #[test]
    fn a_task_has_the_size_of_its_group_unless_it_requests_another() {
        let groups = json!([{ "name": "a", "minMember": 1, "minResource": { "cpu": "2" } }]);
        let groups = context(groups::parse(&groups).unwrap());
        let given = |body: Value| serde_json::from_value::<TaskSubmission>(body).unwrap();
        let plain = given(json!({ "command": ["/bin/true"], "taskGroupName": "a" }));
        assert_eq!(
            task(&plain, &groups, None).unwrap().wish.size.cpu_milli,
            2_000
        );
        let own = json!({ "command": ["/bin/true"], "resources": { "cpu": "500m" } });
        assert_eq!(
            task(&given(own), &groups, None)
                .unwrap()
                .wish
                .size
                .cpu_milli,
            500
        );
        let bad = json!({ "command": [], "workingDirectory": "x", "resources": { "cpu": "-1" } });
        let faults = task(&given(bad), &groups, None).err().unwrap();
        let pointers: Vec<&str> = faults.iter().map(|it| it.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            ["/command", "/workingDirectory", "/resources/cpu"]
        );
    }
}
