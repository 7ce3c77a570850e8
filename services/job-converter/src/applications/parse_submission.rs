//! Parses submissions of the application protocol. All faults are reported at once, each with a
//! JSON pointer (A8).

use hayward_job_converter_api::applications::{ApplicationSubmission, TaskSubmission};
use hayward_job_converter_application_protocol::gang_policy::{MAX_SECONDS, Policy};
use hayward_job_converter_application_protocol::ids::GroupName;
use hayward_job_converter_application_protocol::metadata::{FORCE_CREATE, Metadata};
use hayward_job_converter_application_protocol::task::{
    PlacementConstraints, Runtime, Spread, TaskSpec,
};
use hayward_job_converter_application_protocol::task_groups::{self, Fault, TaskGroup};
use hayward_service::auth::Groups;
use hayward_service::http::problem::FieldFault;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Size, UserName};
use serde_json::Value;

use super::application_record::Program;
use crate::work::validate;

const MAX_TAGS: usize = 64;
const MAX_QUEUE_LENGTH: usize = 512;
/// Limit on the sum of a gang. It exceeds all nodes of a fleet, and is far from overflow.
const MAX_GANG_AMOUNT: u64 = 1 << 56;
/// Fields that select nodes for placeholders. They are not supported.
const UNSUPPORTED_GROUP_FIELDS: [&str; 3] =
    ["nodeSelector", "affinity", "topologySpreadConstraints"];

/// Parsed submission. `warnings` lists what a lenient submission dropped.
pub struct Parsed {
    pub metadata: Metadata,
    pub warnings: Vec<String>,
}

/// Options of a submission.
#[derive(Debug, Clone, Copy)]
pub struct ParseOptions {
    /// Whether faults in the task groups are refused. `false` drops the list and continues without
    /// a gang.
    pub strict: bool,
    /// Maximum number of members of all groups together.
    pub max_members: usize,
}

/// Properties of a parsed task, and its program.
pub struct TaskContent {
    pub spec: TaskSpec,
    pub program: Program,
}

/// Parses the submission of an application.
///
/// # Errors
/// Returns all faults.
pub fn parse_application(
    submission: &ApplicationSubmission,
    user: UserName,
    groups: &Groups,
    options: ParseOptions,
) -> Result<Parsed, Vec<FieldFault>> {
    let mut faults = field_faults(submission);
    let list = Value::Array(submission.task_groups.clone());
    let mut group_faults = unsupported_fields(&submission.task_groups);
    let task_groups = match task_groups::parse(&list) {
        Ok(groups) => groups,
        Err(faults) => {
            group_faults.extend(faults);
            Vec::new()
        }
    };
    group_faults.extend(member_limit_fault(&task_groups, options.max_members));
    group_faults.extend(size_faults(&task_groups));
    let mut warnings = Vec::new();
    let located_faults = group_faults
        .into_iter()
        .map(|it| fault(format!("/taskGroups{}", it.pointer), it.message));
    if options.strict {
        faults.extend(located_faults);
    } else {
        // A lenient submission drops the whole list and continues without a gang.
        let texts =
            located_faults.map(|it| format!("TaskGroupsError {}: {}", it.pointer, it.detail));
        warnings.extend(texts);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let dropped = !warnings.is_empty();
    let task_groups = if dropped { Vec::new() } else { task_groups };
    let metadata = Metadata {
        groups: groups.names().to_vec(),
        task_groups,
        ..metadata_fields(submission, user)
    };
    if metadata.requests_recovery() {
        warnings.push(format!(
            "tag {FORCE_CREATE} has no effect: what runs keeps its queue, and what is new is \
             placed by the rules"
        ));
    }
    Ok(Parsed { metadata, warnings })
}

/// Returns the faults of all fields except for the task groups.
fn field_faults(submission: &ApplicationSubmission) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    if submission.queue_name.len() > MAX_QUEUE_LENGTH || submission.queue_name.contains('\0') {
        faults.push(fault("/queueName", "is not a valid queue name"));
    }
    let pool = submission.pool.as_ref();
    let is_valid_name = |it: &String| !it.trim().is_empty() && !it.contains('\0');
    if pool.is_some_and(|it| it.len() > MAX_QUEUE_LENGTH || !is_valid_name(it)) {
        faults.push(fault("/pool", "is not a valid pool name"));
    }
    faults.extend(validate::map_faults("/tags", &submission.tags, MAX_TAGS));
    if submission.scheduling_policy_parameters.len() > validate::MAX_TEXT_LENGTH {
        faults.push(fault("/schedulingPolicyParameters", "is too long"));
    }
    for key in Policy::find_too_long_timeouts(&submission.scheduling_policy_parameters) {
        let text = format!("{key} is at most {MAX_SECONDS}; leave it out to wait for ever");
        faults.push(fault("/schedulingPolicyParameters", text));
    }
    if submission.owner_references.len() > MAX_TAGS {
        let text = format!("more than {MAX_TAGS} entries");
        faults.push(fault("/ownerReferences", text));
    }
    faults
}

/// Returns the metadata of a valid submission, without user groups and task groups.
fn metadata_fields(submission: &ApplicationSubmission, user: UserName) -> Metadata {
    Metadata {
        queue_name: submission.queue_name.clone(),
        pool: submission.pool.clone(),
        tags: submission.tags.clone(),
        priority: submission.priority,
        preempts: submission.preempts.unwrap_or(true),
        preemptable: submission.preemptable.unwrap_or(true),
        owner_references: submission.owner_references.clone(),
        scheduling_policy_parameters: Policy::parse(&submission.scheduling_policy_parameters),
        ..Metadata::new(user)
    }
}

fn unsupported_fields(groups: &[Value]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        for field in UNSUPPORTED_GROUP_FIELDS {
            if group.get(field).is_some() {
                faults.push(Fault {
                    pointer: format!("/{index}/{field}"),
                    message: "not supported; choose a queue or a pool instead".to_owned(),
                });
            }
        }
    }
    faults
}

fn member_limit_fault(groups: &[TaskGroup], limit: usize) -> Option<Fault> {
    let members: u64 = groups.iter().map(|it| u64::from(it.min_member)).sum();
    (members > limit as u64).then(|| Fault {
        pointer: String::new(),
        message: format!("at most {limit} members in total; got {members}"),
    })
}

/// Reports groups whose sum exceeds the limit. The sum of a gang therefore cannot overflow.
fn size_faults(groups: &[TaskGroup]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let amount_faults =
            validate::amount_faults(&format!("/{index}/minResource"), &group.min_resource);
        faults.extend(amount_faults.into_iter().map(|it| Fault {
            pointer: it.pointer,
            message: it.detail,
        }));
    }
    let total = task_groups::placeholder_size(groups);
    let mut amounts = [total.memory_bytes, total.cpu_milli, total.gpu_milli]
        .into_iter()
        .chain(total.extras.into_values());
    if faults.is_empty() && amounts.any(|amount| amount > MAX_GANG_AMOUNT) {
        faults.push(Fault {
            pointer: String::new(),
            message: format!("more than {MAX_GANG_AMOUNT} of one resource in total"),
        });
    }
    faults
}

/// Properties of an application that its tasks depend on.
pub struct TaskContext {
    pub groups: Vec<TaskGroup>,
    /// Whether the application uses a pool with queues.
    pub in_queue: bool,
}

/// Parses the placement constraints of a task. A task of a group uses the node of its placeholder
/// and cannot set them.
fn parse_placement(
    submission: &TaskSubmission,
    in_queue: bool,
) -> Result<PlacementConstraints, Vec<FieldFault>> {
    let mut faults = Vec::new();
    if submission.machines.len() > validate::MAX_NODES {
        let text = format!("more than {} nodes", validate::MAX_NODES);
        faults.push(fault("/machines", text));
    }
    let apart = submission.apart.as_ref();
    let label = apart.and_then(|it| it.by_label.as_ref());
    if label.is_some_and(|it| it.is_empty() || it.len() > 256 || it.contains('\0')) {
        faults.push(fault("/apart/byLabel", "must have 1 to 256 bytes"));
    }
    let queue_fields = [
        ("/requiredNode", submission.required_node.is_some()),
        ("/preempts", submission.preempts.is_some()),
        ("/preemptable", submission.preemptable.is_some()),
    ];
    for (pointer, _) in queue_fields
        .iter()
        .filter(|(_, is_set)| *is_set && !in_queue)
    {
        let text = "works in queues only; give the application a `queueName` or a `pool`";
        faults.push(fault(*pointer, text));
    }
    let placement_fields = [
        ("/machines", !submission.machines.is_empty()),
        ("/requiredNode", submission.required_node.is_some()),
        ("/apart", apart.is_some()),
    ];
    let in_group = submission.task_group_name.is_some();
    for (pointer, _) in placement_fields
        .iter()
        .filter(|(_, is_set)| *is_set && in_group)
    {
        let text = "a task of a group replaces one of its placeholders: leave this out, \
                    or `taskGroupName`";
        faults.push(fault(*pointer, text));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(PlacementConstraints {
        machines: submission.machines.clone(),
        required_node: submission.required_node.clone(),
        preempts: submission.preempts.unwrap_or(true),
        preemptable: submission.preemptable.unwrap_or(true),
        apart: apart.map(|it| Spread {
            by_label: it.by_label.clone(),
        }),
    })
}

/// Parses the submission of a task.
///
/// # Errors
/// Returns all faults.
pub fn parse_task(
    submission: &TaskSubmission,
    context: &TaskContext,
    traceparent: Option<String>,
) -> Result<TaskContent, Vec<FieldFault>> {
    let directory = submission.working_directory.as_ref();
    let mut faults = validate::program_faults(
        &submission.command,
        &submission.environment,
        directory,
        "/workingDirectory",
    );
    let name = submission.task_group_name.as_ref();
    let name = name.and_then(|name| match GroupName::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            faults.push(fault("/taskGroupName", error.to_string()));
            None
        }
    });
    let mut groups = context.groups.iter();
    let group = groups.find(|it| Some(&it.name) == name.as_ref());
    let size = match &submission.resources {
        None => group.map_or_else(|| Size::memory(GIB), |it| it.min_resource.clone()),
        Some(amounts) => task_groups::parse_amounts(amounts).unwrap_or_else(|new_faults| {
            let located = new_faults.into_iter();
            faults.extend(located.map(|it| fault(format!("/resources{}", it.pointer), it.message)));
            Size::default()
        }),
    };
    faults.extend(validate::amount_faults("/resources", &size));
    let alias = submission.alias.clone();
    if alias.as_ref().is_some_and(|it| !is_valid_alias(it)) {
        faults.push(fault("/alias", "must have 1 to 256 bytes"));
    }
    let placement = parse_placement(submission, context.in_queue).unwrap_or_else(|new_faults| {
        faults.extend(new_faults);
        PlacementConstraints::default()
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    let spec = TaskSpec {
        alias,
        size,
        priority: submission.priority,
        task_group_name: name,
        originator: submission.originator,
        placement,
        runtime: Runtime::Unassigned,
        ..TaskSpec::default()
    };
    let program = Program {
        command: submission.command.clone(),
        environment: submission.environment.clone(),
        working_directory: submission.working_directory.clone(),
        traceparent,
    };
    Ok(TaskContent { spec, program })
}

fn is_valid_alias(text: &str) -> bool {
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

    fn parse(body: Value, strict: bool) -> Result<Parsed, Vec<FieldFault>> {
        let submission: ApplicationSubmission = serde_json::from_value(body).unwrap();
        parse_application(
            &submission,
            "ann".parse().unwrap(),
            &Groups::NONE,
            ParseOptions {
                strict,
                max_members: 100,
            },
        )
    }

    #[test]
    fn an_invalid_group_is_refused_if_strict_and_drops_all_groups_otherwise() {
        let body = json!({ "taskGroups": [
            { "name": "a", "minMember": 0, "minResource": { "cpu": "x" }, "nodeSelector": {} },
            { "name": "b", "minMember": 1, "minResource": { "cpu": "1" } },
        ] });
        let faults = parse(body.clone(), true).err().unwrap();
        let pointers: Vec<&str> = faults.iter().map(|it| it.pointer.as_str()).collect();
        let expected = [
            "/taskGroups/0/nodeSelector",
            "/taskGroups/0/minMember",
            "/taskGroups/0/minResource/cpu",
        ];
        assert_eq!(pointers, expected);
        let lenient = parse(body, false).unwrap();
        assert!(lenient.metadata.task_groups.is_empty());
        assert_eq!(lenient.warnings.len(), 3);
    }

    #[test]
    fn a_gang_above_the_limit_is_refused() {
        let group = json!({ "name": "a", "minMember": 101, "minResource": { "cpu": "1" } });
        let faults = parse(json!({ "taskGroups": [group] }), true).err().unwrap();
        assert_eq!(faults[0].pointer, "/taskGroups");
    }

    #[test]
    fn amounts_and_timeouts_beyond_the_limits_are_refused() {
        let max = u64::MAX.to_string();
        let group = |memory: &str, members: u32| {
            let resource = json!({ "memory": memory });
            json!({ "name": "a", "minMember": members, "minResource": resource })
        };
        let pointer = |body: Value| parse(body, true).err().unwrap()[0].pointer.clone();
        let groups = json!({ "taskGroups": [group(&max, 1)] });
        assert_eq!(pointer(groups), "/taskGroups/0/minResource/memory");
        assert!(parse(json!({ "taskGroups": [group("1Ti", 100)] }), true).is_ok());
        let policy = json!({ "schedulingPolicyParameters": format!("gangRepairInSeconds={max}") });
        assert_eq!(pointer(policy), "/schedulingPolicyParameters");
        for name in ["memory", "cpu", "gpu"] {
            let large = json!({ "command": ["x"], "resources": { name: "1000000G" } });
            let submission: TaskSubmission = serde_json::from_value(large).unwrap();
            let faults = parse_task(&submission, &context(Vec::new()), None)
                .err()
                .unwrap();
            assert_eq!(faults[0].pointer, format!("/resources/{name}"));
        }
    }

    #[test]
    fn a_task_has_the_size_of_its_group_unless_it_requests_another() {
        let groups = json!([{ "name": "a", "minMember": 1, "minResource": { "cpu": "2" } }]);
        let groups = context(task_groups::parse(&groups).unwrap());
        let submission = |body: Value| serde_json::from_value::<TaskSubmission>(body).unwrap();
        let plain = submission(json!({ "command": ["/bin/true"], "taskGroupName": "a" }));
        assert_eq!(
            parse_task(&plain, &groups, None)
                .unwrap()
                .spec
                .size
                .cpu_milli,
            2_000
        );
        let own = json!({ "command": ["/bin/true"], "resources": { "cpu": "500m" } });
        assert_eq!(
            parse_task(&submission(own), &groups, None)
                .unwrap()
                .spec
                .size
                .cpu_milli,
            500
        );
        let bad = json!({ "command": [], "workingDirectory": "x", "resources": { "cpu": "-1" } });
        let faults = parse_task(&submission(bad), &groups, None).err().unwrap();
        let pointers: Vec<&str> = faults.iter().map(|it| it.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            ["/command", "/workingDirectory", "/resources/cpu"]
        );
    }
}
