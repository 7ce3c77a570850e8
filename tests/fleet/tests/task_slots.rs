//! Use of granted space: tasks run in all free slots, and a long task delays no other task.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_job_converter_api::{TaskCounts, WorkState};
use hayward_testkit::until;
use hayward_tests_fleet::{TestFleet, job, submit, wait_for_end, wait_for_view};

const LIMIT: Duration = Duration::from_mins(2);
/// Slots of a fleet of three agents, with four quanta each.
const SLOTS: u64 = 12;

/// Creates a folder in which tasks of any account may create files.
fn shared_folder(parent: &Path) -> PathBuf {
    let folder = parent.join("shared");
    std::fs::create_dir_all(&folder).expect("a folder");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&folder, permissions).expect("permissions are set");
    folder
}

/// Each task waits until all tasks have started. So the job ends only if all of them run at the
/// same time (TC-10).
#[tokio::test(flavor = "multi_thread")]
async fn equal_tasks_on_as_many_free_slots_run_at_the_same_time() {
    let fleet = TestFleet::start_with_agents(3).await;
    let ada = fleet.client("job-converter", "user-ada");
    let folder = shared_folder(fleet.dir.path());
    let script = format!(
        "cd {}; : > {{task}}; while [ $(ls | wc -l) -lt {SLOTS} ]; do sleep 0.05; done",
        folder.display()
    );
    let submission = job(&["sh", "-c", &script], SLOTS);
    let id = submit(&ada, "jobs", &submission).await;
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
}

/// One of many short tasks is long. The others end while it runs, and only its process stays
/// (TC-8).
#[tokio::test(flavor = "multi_thread")]
async fn short_tasks_end_while_a_long_one_runs_and_idle_processes_leave() {
    let fleet = TestFleet::start_with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let go = shared_folder(fleet.dir.path()).join("go");
    let script = format!(
        "[ {{task}} -ne 700 ] || while [ ! -e {} ]; do sleep 0.05; done",
        go.display()
    );
    let submission = job(&["sh", "-c", &script], 2_000);
    let id = submit(&ada, "jobs", &submission).await;
    let path = format!("/v1/jobs/{id}");
    let expected = TaskCounts {
        total: 2_000,
        running: 1,
        succeeded: 1_999,
        ..TaskCounts::default()
    };
    wait_for_view(&ada, &path, LIMIT, |view| view.tasks == Some(expected)).await;
    let scheduler = fleet.client("rm-scheduler", "operator");
    until("only the process of the long task to stay", async || {
        let list: hayward_rm_scheduler_api::views::AllocationList =
            scheduler.get("/v1/allocations").await.ok()?;
        (list.allocations.len() == 1).then_some(())
    })
    .await;
    std::fs::write(&go, "").expect("a file");
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
}

/// A process with an idle slot waits for tasks at job-converter while its other slot runs one. The
/// outcome is reported when the task ends, and not when the wait is over, which takes 20 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_reported_at_its_end_although_another_slot_is_idle() {
    let fleet = TestFleet::start_with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    for tasks in [1, 3] {
        let mut submission = job(&["sleep", "0.2"], tasks);
        submission.threads = Some(2);
        let id = submit(&ada, "jobs", &submission).await;
        let view = wait_for_end(&ada, &id, Duration::from_secs(15)).await;
        assert_eq!(view.state, WorkState::Completed, "{view:?}");
    }
}
