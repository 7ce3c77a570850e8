//! Helpers for work: they create submissions, submit them, wait for states, and count how often
//! each task ran.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission, Submitted, Tasks,
};
use hayward_job_converter_api::tasks::{TaskList, TaskView};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_service::runtime::clock;
use hayward_vocabulary::WorkId;
use serde::Serialize;

/// Returns a submission of a job with `count` tasks of this command.
pub fn job(command: &[&str], count: u64) -> JobSubmission {
    job_with_tasks(command, Tasks::Count(count))
}

pub fn job_with_tasks(command: &[&str], tasks: Tasks) -> JobSubmission {
    JobSubmission {
        command: command.iter().map(ToString::to_string).collect(),
        tasks,
        ..JobSubmission::default()
    }
}

/// Returns a submission of a service with this command.
pub fn service(command: &[&str], instances: u32) -> ServiceSubmission {
    ServiceSubmission {
        queue: None,
        pool: None,
        priority: None,
        container: None,
        name: None,
        class: None,
        command: command.iter().map(ToString::to_string).collect(),
        instances: Some(instances),
        standbys: None,
        host_affinity: None,
        retries: None,
        fault_domain_label: None,
        environment: BTreeMap::new(),
        working_directory: None,
        size: None,
        machines: Vec::new(),
        labels: BTreeMap::new(),
        when_unreachable: None,
        disruption_limit: None,
    }
}

pub fn reservation() -> ReservationSubmission {
    ReservationSubmission {
        name: None,
        class: None,
        size: None,
        machines: Vec::new(),
        labels: BTreeMap::new(),
    }
}

/// Submits work, and retries while services under test are down.
pub async fn submit<T: Serialize>(client: &Client, kind: &str, body: &T) -> WorkId {
    let key = clock::fresh_uuid().to_string();
    let path = format!("/v1/{kind}");
    hayward_testkit::until(&format!("{kind} to be accepted"), async || {
        let response: Result<Submitted, _> = client.post(&path, body, Some(&key)).await;
        response.ok()
    })
    .await
    .id
}

/// Waits up to `limit` until the view of the work fulfils the condition, and returns it.
pub async fn wait_for_view(
    client: &Client,
    path: &str,
    limit: Duration,
    is_expected: impl Fn(&WorkView) -> bool,
) -> WorkView {
    let mut last = String::new();
    let matching_view = hayward_testkit::until_within(path, limit, async || {
        let view = client.get::<WorkView>(path).await.ok()?;
        let summary = format!(
            "{path}: {:?} {:?} {:?}",
            view.state, view.reason, view.tasks
        );
        if summary != last {
            // Printed when the test fails.
            eprintln!("{summary}");
            last = summary;
        }
        is_expected(&view).then_some(view)
    });
    matching_view.await
}

pub async fn wait_for_end(client: &Client, job: &WorkId, limit: Duration) -> WorkView {
    wait_for_view(client, &format!("/v1/jobs/{job}"), limit, |view| {
        view.state.is_final()
    })
    .await
}

/// Returns every outcome of a job, in the order of tasks.
pub async fn task_outcomes(client: &Client, job: &WorkId) -> Vec<TaskView> {
    let mut task_outcomes = Vec::new();
    let mut path = format!("/v1/jobs/{job}/tasks?limit=1000");
    loop {
        let page: TaskList = client.get(&path).await.expect("outcomes");
        task_outcomes.extend(page.tasks);
        match page.next_cursor {
            Some(cursor) => path = format!("/v1/jobs/{job}/tasks?limit=1000&cursor={cursor}"),
            None => return task_outcomes,
        }
    }
}

/// Counts the runs of each task. A task adds a line to its own file each time that it runs.
pub struct TaskRunCounter(PathBuf);

impl TaskRunCounter {
    pub fn new(dir: &Path) -> Self {
        let dir = dir.join("task-runs");
        std::fs::create_dir_all(&dir).expect("a folder");
        // Tasks may run under another account.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&dir, permissions).expect("permissions are set");
        Self(dir)
    }

    /// Returns the command of a task that records its start, sleeps for this number of seconds, and
    /// prints its number times seven.
    pub fn command(&self, sleep_s: &str) -> Vec<String> {
        let folder = self.0.display();
        let script =
            format!("echo x >> {folder}/{{task}}; sleep {sleep_s}; echo $(({{task}} * 7))");
        vec!["sh".into(), "-c".into(), script]
    }

    pub fn count(&self, task: u64) -> usize {
        let runs = std::fs::read_to_string(self.0.join(task.to_string())).unwrap_or_default();
        runs.lines().count()
    }
}

/// Asserts that every task has exactly one outcome with the right output.
pub fn assert_all_succeeded(task_outcomes: &[TaskView], count: u64) {
    let tasks: Vec<u64> = task_outcomes.iter().map(|outcome| outcome.task).collect();
    assert_eq!(
        tasks,
        (0..count).collect::<Vec<_>>(),
        "one outcome per task"
    );
    for outcome in task_outcomes {
        assert!(outcome.succeeded, "{outcome:?}");
        assert_eq!(outcome.output.trim(), (outcome.task * 7).to_string());
    }
}

pub fn is_running(view: &WorkView) -> bool {
    view.state == WorkState::Running
}
