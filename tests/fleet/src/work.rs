//! Work to submit, and a witness that counts how often each task really ran.

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

/// Returns a job of `count` tasks with this command.
pub fn job(command: &[&str], count: u64) -> JobSubmission {
    job_of(command, Tasks::Count(count))
}

pub fn job_of(command: &[&str], tasks: Tasks) -> JobSubmission {
    JobSubmission {
        queue: None,
        pool: None,
        priority: None,
        container: None,
        name: None,
        class: None,
        command: command.iter().map(ToString::to_string).collect(),
        tasks,
        environment: BTreeMap::new(),
        working_directory: None,
        size: None,
        max_processes: None,
        threads: None,
        max_attempts: None,
        machines: Vec::new(),
        labels: BTreeMap::new(),
        when_unreachable: None,
        disruption_limit: None,
    }
}

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
pub async fn submit<T: Serialize>(client: &Client, what: &str, body: &T) -> WorkId {
    let key = clock::fresh_uuid().to_string();
    let path = format!("/v1/{what}");
    hayward_testkit::until(&format!("{what} to be accepted"), async || {
        let answer: Result<Submitted, _> = client.post(&path, body, Some(&key)).await;
        answer.ok()
    })
    .await
    .id
}

/// Waits up to `limit` until the state is as wanted, and returns it.
pub async fn reaches(
    client: &Client,
    path: &str,
    limit: Duration,
    wanted: impl Fn(&WorkView) -> bool,
) -> WorkView {
    let mut last = String::new();
    let found = hayward_testkit::until_within(path, limit, async || {
        let view = client.get::<WorkView>(path).await.ok()?;
        let now = format!(
            "{path}: {:?} {:?} {:?}",
            view.state, view.reason, view.tasks
        );
        if now != last {
            // Printed when the test fails.
            eprintln!("{now}");
            last = now;
        }
        wanted(&view).then_some(view)
    });
    found.await
}

pub async fn ends(client: &Client, job: &WorkId, limit: Duration) -> WorkView {
    reaches(client, &format!("/v1/jobs/{job}"), limit, |view| {
        view.state.is_final()
    })
    .await
}

/// Returns every outcome of a job, in the order of tasks.
pub async fn outcomes(client: &Client, job: &WorkId) -> Vec<TaskView> {
    let mut all = Vec::new();
    let mut path = format!("/v1/jobs/{job}/tasks?limit=1000");
    loop {
        let page: TaskList = client.get(&path).await.expect("outcomes");
        all.extend(page.tasks);
        match page.next_cursor {
            Some(cursor) => path = format!("/v1/jobs/{job}/tasks?limit=1000&cursor={cursor}"),
            None => return all,
        }
    }
}

/// A folder in which tasks leave a mark each time they run.
pub struct Witness(PathBuf);

impl Witness {
    pub fn new(dir: &Path) -> Self {
        let dir = dir.join("witness");
        std::fs::create_dir_all(&dir).expect("a folder");
        // Tasks may run under another account.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&dir, open).expect("open to all");
        Self(dir)
    }

    /// Returns the command of a task that marks its start, sleeps, and prints its number times
    /// seven.
    pub fn command(&self, rest: &str) -> Vec<String> {
        let marks = self.0.display();
        let script = format!("echo x >> {marks}/{{task}}; sleep {rest}; echo $(({{task}} * 7))");
        vec!["sh".into(), "-c".into(), script]
    }

    pub fn times(&self, task: u64) -> usize {
        let marks = std::fs::read_to_string(self.0.join(task.to_string())).unwrap_or_default();
        marks.lines().count()
    }
}

/// Asserts that every task has exactly one outcome with the right answer.
pub fn all_right(outcomes: &[TaskView], count: u64) {
    let tasks: Vec<u64> = outcomes.iter().map(|outcome| outcome.task).collect();
    assert_eq!(
        tasks,
        (0..count).collect::<Vec<_>>(),
        "one outcome per task"
    );
    for outcome in outcomes {
        assert!(outcome.succeeded, "{outcome:?}");
        assert_eq!(outcome.output.trim(), (outcome.task * 7).to_string());
    }
}

pub fn is_running(view: &WorkView) -> bool {
    view.state == WorkState::Running
}
