//! `hayward submit --gang FILE`: submits an application, its task groups and their tasks in one
//! document.
//!
//! All parts have names, so submitting the same file twice adds nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hayward_job_converter_api::applications::{
    ApplicationSubmission, ApplicationView, BulkTasks, BulkTasksAdded, NamedTask, TaskSubmission,
    WaitView,
};
use hayward_service::Client;
use hayward_service::runtime::clock::fresh_uuid;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AfterSubmit, display_name, parse_value, parse_yaml, read_text};
use crate::commands::work::apps;
use crate::connection::{Role, Service, Session};
use crate::output::{note, parse_response, print};

/// Placeholder for the number of a task in its group.
const TASK_PLACEHOLDER: &str = "{task}";
/// Maximum number of tasks in one request.
const MAX_TASKS_PER_REQUEST: usize = 1_000;
/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The document: an application whose task groups form a gang.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GangDocument {
    /// Id of the application. `None` makes a new id.
    id: Option<String>,
    #[serde(default)]
    queue_name: String,
    /// Name of the node pool. `None` selects the first pool with queues.
    pool: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    priority: i32,
    preempts: Option<bool>,
    preemptable: Option<bool>,
    #[serde(default)]
    scheduling_policy_parameters: String,
    groups: Vec<Group>,
}

/// A task group, and the command of its tasks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Group {
    name: String,
    min_member: u32,
    min_resource: BTreeMap<String, Value>,
    command: Vec<String>,
    /// Number of tasks of the group. `None` means `min_member` tasks.
    tasks: Option<u32>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    working_directory: Option<String>,
    #[serde(default)]
    priority: i32,
}

impl GangDocument {
    fn parse(text: &str) -> anyhow::Result<Self> {
        parse_value(parse_yaml(text)?)
    }

    /// Returns the submission of the application without its tasks.
    fn application(&self) -> ApplicationSubmission {
        let group = |group: &Group| {
            json!({
                "name": group.name, "minMember": group.min_member,
                "minResource": group.min_resource,
            })
        };
        ApplicationSubmission {
            queue_name: self.queue_name.clone(),
            pool: self.pool.clone(),
            tags: self.tags.clone(),
            task_groups: self.groups.iter().map(group).collect(),
            priority: self.priority,
            preempts: self.preempts,
            preemptable: self.preemptable,
            scheduling_policy_parameters: self.scheduling_policy_parameters.clone(),
            ..ApplicationSubmission::default()
        }
    }

    /// Returns the tasks of all groups.
    fn tasks(&self) -> impl Iterator<Item = NamedTask> {
        self.groups.iter().flat_map(|group| {
            let count = group.tasks.unwrap_or(group.min_member);
            (0..count).map(|number| NamedTask {
                id: format!("{}-{number}", group.name),
                task: group.task(number),
            })
        })
    }
}

impl Group {
    fn task(&self, number: u32) -> TaskSubmission {
        let number = number.to_string();
        let command = self.command.iter();
        TaskSubmission {
            command: command
                .map(|word| word.replace(TASK_PLACEHOLDER, &number))
                .collect(),
            environment: self.environment.clone(),
            working_directory: self.working_directory.clone(),
            task_group_name: Some(self.name.clone()),
            priority: self.priority,
            ..TaskSubmission::default()
        }
    }
}

pub async fn run(session: &Session, file: &Path, after: &AfterSubmit) -> anyhow::Result<ExitCode> {
    let gang = GangDocument::parse(&read_text(file)?).with_context(|| display_name(file))?;
    let client = session.client(Service::JobConverter, Role::User)?;
    let new_id = || fresh_uuid().simple().to_string();
    let id = gang.id.clone().unwrap_or_else(new_id);
    let path = format!("/v1/applications/{id}");
    let view: ApplicationView = client.put(&path, &gang.application()).await?;
    add_tasks(&client, &id, gang.tasks().collect()).await?;
    if !view.ignored_fields.is_empty() {
        let fields = view.ignored_fields.join(", ");
        note(&format!(
            "application {id} exists already, with another {fields}"
        ));
    }
    if !session.out.json {
        print(&format!("{id}\n"))?;
    }
    if after.wait {
        return wait_for_end(session, &client, &id, after).await;
    }
    if after.quiet && !session.out.json {
        return Ok(ExitCode::SUCCESS);
    }
    let response = wait_for_decision(&client, &path).await?;
    let view: ApplicationView = parse_response(response.clone())?;
    if session.out.json {
        session.out.json(&response)?;
    } else {
        note(&apps::summary(&view));
        note(&format!("see it with: hayward app {id}"));
    }
    Ok(if view.failure.is_some() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Waits until the application is refused, runs, or waits with a verdict. After a timeout, returns
/// the current state.
async fn wait_for_decision(client: &Client, path: &str) -> anyhow::Result<Value> {
    // The scheduler decides within a few rounds.
    const TIMEOUT: Duration = Duration::from_secs(10);
    let started = Instant::now();
    loop {
        let response: Value = client.get(path).await?;
        let view: ApplicationView = parse_response(response.clone())?;
        if is_decided(&view) || started.elapsed() >= TIMEOUT {
            return Ok(response);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns true if the application is refused, runs, or waits with a verdict.
fn is_decided(view: &ApplicationView) -> bool {
    let has_started = view.task_states.keys().any(|state| state != "New");
    let has_verdict = view.why.iter().any(WaitView::is_considered);
    view.failure.is_some() || has_started || has_verdict
}

/// Adds tasks. Existing tasks stay unchanged, so a file may be sent twice.
async fn add_tasks(client: &Client, id: &str, tasks: Vec<NamedTask>) -> anyhow::Result<()> {
    let path = format!("/v1/applications/{id}/tasks?atomic=true");
    for chunk in tasks.chunks(MAX_TASKS_PER_REQUEST) {
        let tasks = chunk.to_vec();
        let key = fresh_uuid().to_string();
        let bulk = BulkTasks { tasks };
        let _: BulkTasksAdded = client.post(&path, &bulk, Some(&key)).await?;
    }
    Ok(())
}

async fn wait_for_end(
    session: &Session,
    client: &Client,
    id: &str,
    after: &AfterSubmit,
) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/applications/{id}");
    let mut last_line = String::new();
    let response = loop {
        let response: Value = client.get(&path).await?;
        let view: ApplicationView = parse_response(response.clone())?;
        if apps::has_ended(&view) {
            break response;
        }
        let current_line = apps::summary(&view);
        if current_line != last_line && !after.quiet {
            note(&current_line);
            last_line = current_line;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let view: ApplicationView = parse_response(response.clone())?;
    if session.out.json || !after.quiet {
        session.out.print_response(response, apps::render_details)?;
    }
    Ok(if apps::has_succeeded(&view) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
id: train
queueName: root.science
pool: batch
groups:
  - name: worker
    minMember: 2
    minResource: {cpu: 500m, memory: 1Gi}
    command: [/bin/train, '{task}']
  - name: driver
    minMember: 1
    minResource: {cpu: '1'}
    tasks: 3
    command: [/bin/drive]
";

    #[test]
    fn a_file_has_an_application_and_its_tasks() {
        let gang = GangDocument::parse(FILE).unwrap();
        let application = gang.application();
        assert_eq!(application.queue_name, "root.science");
        assert_eq!(application.pool.as_deref(), Some("batch"));
        let unnamed = GangDocument::parse(&FILE.replace("pool: batch\n", "")).unwrap();
        assert_eq!(unnamed.application().pool, None);
        assert_eq!(application.task_groups[0]["minResource"]["cpu"], "500m");
        let tasks: Vec<NamedTask> = gang.tasks().collect();
        let names: Vec<&str> = tasks.iter().map(|it| it.id.as_str()).collect();
        let expected = ["worker-0", "worker-1", "driver-0", "driver-1", "driver-2"];
        assert_eq!(names, expected);
        assert_eq!(tasks[1].task.command, ["/bin/train", "1"]);
        assert_eq!(tasks[4].task.task_group_name.as_deref(), Some("driver"));
    }

    #[test]
    fn an_application_without_a_verdict_is_undecided() {
        let view = |reason: &str| -> ApplicationView {
            let wait_reason =
                json!({ "of": "worker", "work": "a.worker", "reason": reason, "detail": "" });
            parse_value(json!({
                "id": "a", "user": "ada", "queueName": "root", "priority": 0, "tags": {},
                "createdAt": "2026-01-01T00:00:00Z", "state": "Accepted", "taskGroups": [],
                "tasks": [], "taskStates": { "New": 2 }, "placeholders": [], "stateLog": [],
                "why": [wait_reason],
            }))
            .unwrap()
        };
        assert!(!is_decided(&view("not_yet_considered")));
        assert!(is_decided(&view("insufficient_resources")));
    }

    #[test]
    fn a_misspelled_field_is_named() {
        let fault = |text: &str| GangDocument::parse(text).unwrap_err().to_string();
        assert!(fault(&FILE.replace("minMember: 2", "minMembers: 2")).contains("minMembers"));
        assert!(fault("id: x\n").contains("groups"));
    }
}
